"""The files of a recording, and the reader for each: chosen by content, not by name. Decodes no message."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path, PurePath

import yaml
import zstandard

from specdrive_ros.errors import InputError
from specdrive_ros.evaluation.bag_mcap import MCAP_MAGIC, read_mcap
from specdrive_ros.evaluation.bag_messages import RawMessage
from specdrive_ros.evaluation.bag_sqlite import SQLITE_MAGIC, read_sqlite
from specdrive_ros.yaml_file import parse_yaml

ROS1_MAGIC = b"#ROSBAG"


class NotABag(InputError):
    """Raised for a path that holds no rosbag2 recording, or one of which nothing can be read."""


def read_metadata(path: Path, damage: list[str]) -> dict:
    """Contents of a folder's metadata.yaml; empty if there is none or it is unusable, which adds a line to
    `damage`."""
    file = path / "metadata.yaml"
    if not file.is_file():
        return {}
    try:
        metadata = parse_yaml(file.read_text(encoding="utf-8"))["rosbag2_bagfile_information"]
        names, count = metadata["relative_file_paths"], metadata.get("message_count")
        return {"files": [PurePath(name).name for name in names], "message_count": count and int(count)}
    except (OSError, ValueError, yaml.YAMLError, KeyError, TypeError, AttributeError):
        damage.append("metadata.yaml is not readable and not used")
        return {}


def find_files(path: Path, metadata: dict, damage: list[str]) -> list[Path]:
    """Storage files in order of recording: as metadata.yaml names them, else by name. Raises NotABag if there are
    none."""
    if not path.exists():
        raise NotABag(f"bag {path}: no such file or folder; must be a rosbag2 folder, .mcap or .db3")
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise NotABag(f"bag {path}: neither a file nor a folder; must be a rosbag2 folder, .mcap or .db3")
    named = [path / name for name in metadata.get("files", ())]
    missing = [file.name for file in named if not file.is_file()]
    if missing:
        damage.append(f"{', '.join(missing)} named in metadata.yaml is missing")
    present = [file for file in named if file.is_file()] or sorted(_storage_files(path), key=_natural_order)
    if not present:
        raise NotABag(f"bag {path}: {'; '.join(damage) or 'no .mcap or .db3 file inside'}; "
                      "must be a rosbag2 folder, .mcap or .db3")
    return present


def _storage_files(folder: Path) -> list[Path]:
    return [file for file in folder.iterdir() if re.search(r"\.(mcap|db3)(\.zstd)?$", file.name)]


def _natural_order(file: Path) -> list:
    """Sort key that puts bag_2 before bag_10."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", file.name)]


def reader_of(file: Path) -> Callable[[Path, list[str]], Iterator[RawMessage]]:
    """The reader for a file, chosen by content. Raises NotABag if there is none for it."""
    try:
        with file.open("rb") as stream:
            start = stream.read(16)
    except OSError as error:
        raise NotABag(f"bag file {file}: {error.strerror}; a readable file is needed") from None
    if start.startswith(MCAP_MAGIC):
        return read_mcap
    if start.startswith(SQLITE_MAGIC):
        return read_sqlite
    if not start:
        return _read_empty
    kind = "a ROS 1 bag" if start.startswith(ROS1_MAGIC) else "neither MCAP nor SQLite"
    raise NotABag(f"bag file {file}: it is {kind}; must be a rosbag2 folder, .mcap or .db3")


def _read_empty(file: Path, damage: list[str]) -> Iterator[RawMessage]:
    damage.append(f"{file.name} is empty (0 bytes)")
    yield from ()


def unpack(stream, out, file: Path, damage: list[str]) -> None:
    """Decompresses a wholly compressed file from stream to stream, as far as possible."""
    try:
        zstandard.ZstdDecompressor().copy_stream(stream, out)
    except zstandard.ZstdError as error:
        damage.append(f"{file.name} does not decompress to its end ({error})")
