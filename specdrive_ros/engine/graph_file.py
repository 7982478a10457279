"""The metadata of an exported graph's file, read without onnx and without a session.

Metadata are in the outer message of the file, the names of data files with the weights; everything else is skipped.
"""

import hashlib
from pathlib import Path

from specdrive_ros.errors import InputError
from specdrive_ros.runtime.bindings import GraphRecord
from specdrive_ros.runtime.weights_file import sha256
from specdrive_ros.shapes import FLOW_STEPS

_METADATA_PROPS, _KEY, _VALUE = 14, 1, 2  # field numbers of ModelProto and of StringStringEntryProto
_GRAPH, _INITIALIZER, _EXTERNAL_DATA = 7, 5, 13  # of ModelProto, GraphProto and TensorProto
_LENGTH_DELIMITED = 2
_FIXED = {1: 8, 5: 4}  # wire type -> bytes


def graph_identity_parts(path: Path, remedy: str) -> tuple[GraphRecord, str, dict[str, str]]:
    """Record, sha256 of the graph's file, and sha256 of every weights file it refers to.

    Raises `InputError` if a file is missing or the weights are not those it was exported from.
    """
    content = _content(path, remedy)
    record = _record(content, path, remedy)
    named = _data_files(content, path, remedy)
    for name in (*record.weights, *named):
        if not name or "\0" in name or Path(name).is_absolute() or ".." in Path(name).parts:
            raise InputError(f"{path}: takes weights from {name!r}, which is outside of its folder; {remedy}")
    files = {name: _sha256(path.parent / name, remedy) for name in record.weights}
    for name, expected in record.weights.items():
        if files[name] != expected:
            raise InputError(f"{path.parent / name}: is not the file {path.name} was exported from; {remedy}")
    beside = {data.name for data in path.parent.glob("*.onnx.data")} | named
    files |= {name: _sha256(path.parent / name, remedy) for name in sorted(beside - files.keys())}
    return record, hashlib.sha256(content).hexdigest(), files


def read_record(path: Path, remedy: str) -> GraphRecord:
    """Raises `InputError` naming `remedy` for a file that is missing, not a graph, or not exported by this version."""
    return _record(_content(path, remedy), path, remedy)


def exported_record(folder: Path, name: str) -> GraphRecord | None:
    """The record of one of a checkpoint's graphs; None if it has none. Raises `InputError` as `read_record` does."""
    path = folder / f"{name}.onnx"
    if not path.is_file():
        return None
    return read_record(path, f"export it again: ./specdrive export {folder} {folder}")


def exported_flow_steps(folder: Path) -> int:
    """Euler steps of a checkpoint's action head: those of its graph, as published where it has none."""
    record = exported_record(folder, "action_step")
    return FLOW_STEPS if record is None else record.flow_steps


def _content(path: Path, remedy: str) -> bytes:
    try:
        _require_regular(path, remedy)
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); {remedy}") from None


def _require_regular(path: Path, remedy: str) -> None:
    """Refuses other files: reading a pipe would wait forever, a device would never end."""
    if path.exists() and not path.is_file():
        raise InputError(f"{path}: is no regular file; {remedy}")


def _record(content: bytes, path: Path, remedy: str) -> GraphRecord:
    try:
        entries = [dict(_fields(value)) for number, value in _fields(content) if number == _METADATA_PROPS]
        metadata = {bytes(each[_KEY]).decode(): bytes(each[_VALUE]).decode() for each in entries}
    except (IndexError, KeyError, ValueError, TypeError):
        raise InputError(f"{path}: damaged or no ONNX file; {remedy}") from None
    return GraphRecord.from_metadata(metadata, str(path), remedy)


def _data_files(content: bytes, path: Path, remedy: str) -> set[str]:
    """Names of the files that hold the graph's weights."""
    try:
        graphs = [graph for number, graph in _fields(content) if number == _GRAPH]
        tensors = [tensor for graph in graphs for number, tensor in _fields(graph) if number == _INITIALIZER]
        pairs = [dict(_fields(pair)) for one in tensors for number, pair in _fields(one) if number == _EXTERNAL_DATA]
        return {bytes(pair[_VALUE]).decode() for pair in pairs if bytes(pair[_KEY]) == b"location"}
    except (IndexError, KeyError, ValueError):
        raise InputError(f"{path}: damaged or no ONNX file; {remedy}") from None


def _sha256(path: Path, remedy: str) -> str:
    try:
        _require_regular(path, remedy)
        return sha256(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); {remedy}") from None


def _fields(content: bytes):
    """(field number, its bytes) of a protobuf message; numbers are skipped. Raises ValueError or IndexError."""
    view, position = memoryview(content), 0
    while position < len(view):
        tag, position = _varint(view, position)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            _, position = _varint(view, position)
            continue
        if wire == _LENGTH_DELIMITED:
            length, position = _varint(view, position)
        elif wire in _FIXED:
            length = _FIXED[wire]
        else:
            raise ValueError("unknown wire type")
        if position + length > len(view):
            raise ValueError("ends too early")
        if wire == _LENGTH_DELIMITED:
            yield number, view[position : position + length]
        position += length


def _varint(view: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = view[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return value, position
        shift += 7
        if shift > 63:
            raise ValueError("number too long")
