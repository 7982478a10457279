"""What an exported graph's file says about itself, read without onnx and without a session.

Metadata and the names of data files stand in the outer message of the file; everything else is skipped over.
"""

from pathlib import Path

from specdrive_ros.errors import InputError
from specdrive_ros.runtime.bindings import GraphRecord
from specdrive_ros.runtime.weights_file import sha256

_METADATA_PROPS, _KEY, _VALUE = 14, 1, 2  # field numbers of ModelProto and of StringStringEntryProto
_LENGTH_DELIMITED = 2
_FIXED = {1: 8, 5: 4}  # wire type -> bytes


def graph_identity_parts(path: Path, remedy: str) -> tuple[GraphRecord, str, dict[str, str]]:
    """Record, sha256 of the graph's file and of every file of weights it refers to.

    Raises `InputError` where a file is missing or the weights are not those it was exported from.
    """
    record = read_record(path, remedy)
    files = {name: _sha256(path.parent / name, remedy) for name in record.weights}
    for name, expected in record.weights.items():
        if files[name] != expected:
            raise InputError(f"{path.parent / name}: is not the file {path.name} was exported from; {remedy}")
    for data in sorted(path.parent.glob("*.onnx.data")):
        files[data.name] = sha256(data)
    return record, _sha256(path, remedy), files


def read_record(path: Path, remedy: str) -> GraphRecord:
    """Raises `InputError` naming `remedy` for a file that is missing, no graph, or not exported by this version."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); {remedy}") from None
    try:
        entries = [dict(_fields(value)) for number, value in _fields(content) if number == _METADATA_PROPS]
        metadata = {bytes(each[_KEY]).decode(): bytes(each[_VALUE]).decode() for each in entries}
    except (IndexError, KeyError, ValueError, TypeError):
        raise InputError(f"{path}: damaged or no ONNX file; {remedy}") from None
    return GraphRecord.from_metadata(metadata, str(path), remedy)


def _sha256(path: Path, remedy: str) -> str:
    try:
        return sha256(path)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); {remedy}") from None


def _fields(content: bytes):
    """(field number, bytes of it) of a protobuf message; numbers are passed over. Raises ValueError or IndexError."""
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
