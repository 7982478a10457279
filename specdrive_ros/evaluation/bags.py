"""rosbag2 recordings without ROS: MCAP and SQLite, whole, split, compressed or damaged.

Messages come in the order of their *header* stamps: a recorder writes them as they arrive. What can
be read of a damaged recording is read, and `damage` says what is lost. Knows no camera and no car.
"""

import re
import sqlite3
import struct
import tempfile
import zlib
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from pathlib import Path, PurePath
from typing import Any, NamedTuple
from urllib.parse import quote

import lz4.frame
import numpy as np
import yaml
import zstandard
from mcap.data_stream import ReadDataStream
from mcap.exceptions import McapError
from mcap.opcode import Opcode
from mcap.records import Channel, Schema
from rosbags.typesys import Stores, get_typestore
from rosbags.typesys.store import Typestore

from specdrive_ros.errors import InputError
from specdrive_ros.shapes import NANOSECONDS

MCAP_MAGIC, SQLITE_MAGIC, ZSTD_MAGIC = b"\x89MCAP0\r\n", b"SQLite format 3\0", b"\x28\xb5\x2f\xfd"
ROS1_MAGIC = b"#ROSBAG"
HEADER_TYPE = "std_msgs/msg/Header"
ZERO_STAMP, UNREADABLE = "ZERO_STAMP", "UNREADABLE"
LISTED_TOPICS = 20


class NotABag(InputError):
    """A path that holds no rosbag2 recording, or nothing that can be read of one."""


class TopicAbsent(InputError):
    """A topic the recording does not have; the text lists those it has."""


class WrongType(InputError):
    """A topic of another type or serialization than asked for."""


@dataclass(frozen=True)
class Topic:
    """A topic of a recording; `type` as in `sensor_msgs/msg/Image`, `count` the messages readable."""

    name: str
    type: str
    serialization: str
    count: int

    def __str__(self) -> str:
        strange = "" if self.serialization == "cdr" else f", serialized as {self.serialization}"
        return f"{self.name} ({self.type}, {self.count}{strange})"


class BagMessage(NamedTuple):
    """One message. stamp_ns: its header's stamp, else when it was recorded, nanoseconds."""

    topic: str
    stamp_ns: int
    message: Any


class RawMessage(NamedTuple):
    """One message as it lies in the file."""

    topic: str
    type: str
    serialization: str
    log_time_ns: int
    data: bytes


def open_bag(path: Path | str) -> "Bag":
    """Open a rosbag2 folder, with or without metadata.yaml, or a single .mcap or .db3 file.

    Reads it once from end to end to know its topics and what of it is readable. Raises NotABag.
    """
    return Bag(Path(path))


class Bag:
    """A recording. `damage` lists in plain lines what could not be read."""

    def __init__(self, path: Path):
        self.path = path
        self.damage: list[str] = []
        self.rejected: Counter[str] = Counter()
        self._types = _message_types()
        self._unpacked: tempfile.TemporaryDirectory | None = None
        metadata = _read_metadata(path, self.damage)
        self._files = [self._plain_file(file) for file in _find_files(path, metadata, self.damage)]
        self._stamps: dict[tuple[str, str, str], array] = {}  # of each topic, in file order
        self._key_order = array("i")  # of each message, which entry of `_stamps` it belongs to
        self._scan(metadata.get("message_count"))

    @property
    def name(self) -> str:
        """The folder's or file's name, for people."""
        return self.path.resolve().name

    @property
    def topics(self) -> tuple[Topic, ...]:
        return tuple(Topic(*key, len(stamps)) for key, stamps in sorted(self._stamps.items()))

    def topic(self, name: str, types: Collection[str]) -> Topic:
        """The topic of that name if it is of one of these types. Raises TopicAbsent or WrongType."""
        found = [topic for topic in self.topics if topic.name == name]
        if not found:
            raise TopicAbsent(f"bag {self.path}: no topic {name}; it has {self.listing()}")
        for topic in found:
            if topic.type in types and topic.serialization == "cdr":
                return topic
        wrong = found[0]
        if wrong.type in types:
            raise WrongType(f"bag {self.path}: {name} is serialized as {wrong.serialization!r}; cdr is right")
        raise WrongType(f"bag {self.path}: {name} is {wrong.type}; {' or '.join(sorted(types))} is right")

    def listing(self, types: Collection[str] | None = None) -> str:
        """Topics with their types in one line, all or of some types."""
        chosen = [topic for topic in self.topics if types is None or topic.type in types]
        more = [f"and {len(chosen) - LISTED_TOPICS} more"] if len(chosen) > LISTED_TOPICS else []
        return ", ".join([str(topic) for topic in chosen[:LISTED_TOPICS]] + more) or "none"

    def span(self, topics: Collection[str]) -> tuple[int, int]:
        """Stamps of the first and the last message of these topics, nanoseconds."""
        stamps = [stamp for stamp in self._stamps_in_file_order(topics) if stamp != 0]
        return (min(stamps), max(stamps)) if stamps else (0, 0)

    def messages(self, topics: Collection[str]) -> Iterator[BagMessage]:
        """Messages of these topics by header stamp; of equal stamps in the order of recording.

        A message of a type this program does not know, or that does not decode, is skipped and
        counted in `rejected`, as is one with no stamp among others that have one; where a whole
        topic has none the time of recording counts. Memory holds only what is out of order.
        """
        self.rejected = Counter()
        wanted = (raw for raw in self._raw_messages() if raw.topic in topics)
        held: dict[int, tuple[int, RawMessage]] = {}
        due = 0
        stamps = self._stamps_in_file_order(topics)
        for rank, stamp_ns, raw in zip(_ranks(stamps), stamps, wanted):
            held[rank] = (stamp_ns, raw)
            while due in held:
                yield from self._decoded(*held.pop(due))
                due += 1

    def _stamps_in_file_order(self, topics: Collection[str]) -> list[int]:
        upcoming = [iter(stamps) if key[0] in topics else None for key, stamps in self._stamps.items()]
        return [next(upcoming[index]) for index in self._key_order if upcoming[index]]

    def _decoded(self, stamp_ns: int, raw: RawMessage) -> Iterator[BagMessage]:
        if stamp_ns == 0:
            self.rejected[ZERO_STAMP] += 1
            return
        if raw.serialization != "cdr" or raw.type not in self._types.fielddefs:
            self.rejected[UNREADABLE] += 1
            return
        try:
            message = self._types.deserialize_cdr(raw.data, raw.type)
        except Exception:  # generated code over foreign bytes: any error means these bytes are no message
            self.rejected[UNREADABLE] += 1
            return
        yield BagMessage(raw.topic, stamp_ns, message)

    def _scan(self, expected: int | None) -> None:
        damage: list[str] = []
        indices: dict[tuple[str, str, str], int] = {}
        recorded: dict[tuple[str, str, str], array] = {}
        for raw in self._raw_messages(damage):
            key = raw[:3]
            self._key_order.append(indices.setdefault(key, len(indices)))
            self._stamps.setdefault(key, array("q")).append(self._stamp_of(raw))
            recorded.setdefault(key, array("q")).append(raw.log_time_ns)
        self._stamps = {key: stamps if any(stamps) else recorded[key] for key, stamps in self._stamps.items()}
        self.damage += damage
        count = len(self._key_order)
        if not count:
            raise NotABag(f"bag {self.path}: {'; '.join(self.damage) or 'it holds no messages'}; "
                          "a recording with messages is needed")
        if self.damage and expected:
            self.damage.append(f"{count} of {expected} recorded messages are readable")

    def _stamp_of(self, raw: RawMessage) -> int:
        """Header stamp where the type begins with a header, else the time of recording."""
        if raw.serialization != "cdr" or not self._has_header(raw.type) or len(raw.data) < 12:
            return raw.log_time_ns
        order = "<" if raw.data[1] & 1 else ">"
        seconds, nanoseconds = struct.unpack_from(order + "iI", raw.data, 4)
        return seconds * NANOSECONDS + nanoseconds

    def _has_header(self, kind: str) -> bool:
        fields = self._types.fielddefs.get(kind, ((), ()))[1]
        return bool(fields) and fields[0][1][1] == HEADER_TYPE

    def _raw_messages(self, damage: list[str] | None = None) -> Iterator[RawMessage]:
        damage = [] if damage is None else damage
        for file in self._files:
            yield from _reader_of(file)(file, damage)

    def _plain_file(self, file: Path) -> Path:
        """The file itself, or a temporary unpacked copy where it is compressed as a whole."""
        with file.open("rb") as stream:
            if stream.read(4) != ZSTD_MAGIC:
                return file
            self._unpacked = self._unpacked or tempfile.TemporaryDirectory(prefix="specdrive-bag-")
            plain = Path(self._unpacked.name) / file.name.removesuffix(".zstd")
            stream.seek(0)
            with plain.open("wb") as out:
                _unpack(stream, out, file, self.damage)
        return plain


@lru_cache
def _message_types() -> Typestore:
    """The common interfaces of ROS 2; the types read here are the same in all distributions."""
    return get_typestore(Stores.ROS2_HUMBLE)


def _ranks(stamps: list[int]) -> list[int]:
    """The place of each in sorted order; equal ones keep their order."""
    ranks = np.empty(len(stamps), np.int64)
    ranks[np.argsort(np.array(stamps, np.int64), kind="stable")] = np.arange(len(stamps))
    return ranks.tolist()


def _unpack(stream, out, file: Path, damage: list[str]) -> None:
    try:
        zstandard.ZstdDecompressor().copy_stream(stream, out)
    except zstandard.ZstdError as error:
        damage.append(f"{file.name} does not decompress to its end ({error})")


# Which files


def _read_metadata(path: Path, damage: list[str]) -> dict:
    """metadata.yaml of a folder; empty where there is none or it cannot be used."""
    file = path / "metadata.yaml"
    if not file.is_file():
        return {}
    try:
        metadata = yaml.safe_load(file.read_text(encoding="utf-8"))["rosbag2_bagfile_information"]
        names, count = metadata["relative_file_paths"], metadata.get("message_count")
        return {"files": [PurePath(name).name for name in names], "message_count": count and int(count)}
    except (OSError, ValueError, yaml.YAMLError, KeyError, TypeError, AttributeError):
        damage.append("metadata.yaml is not readable and not used")
        return {}


def _find_files(path: Path, metadata: dict, damage: list[str]) -> list[Path]:
    if not path.exists():
        raise NotABag(f"bag {path}: no such file or folder; a rosbag2 folder, .mcap or .db3 is right")
    if path.is_file():
        return [path]
    named = [path / name for name in metadata.get("files", ())]
    missing = [file.name for file in named if not file.is_file()]
    if missing:
        damage.append(f"{', '.join(missing)} named in metadata.yaml is missing")
    present = [file for file in named if file.is_file()] or sorted(_storage_files(path), key=_natural_order)
    if not present:
        raise NotABag(f"bag {path}: {'; '.join(damage) or 'no .mcap or .db3 file inside'}; "
                      "a rosbag2 folder, .mcap or .db3 is right")
    return present


def _storage_files(folder: Path) -> list[Path]:
    return [file for file in folder.iterdir() if re.search(r"\.(mcap|db3)(\.zstd)?$", file.name)]


def _natural_order(file: Path) -> list:
    """bag_2 before bag_10."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", file.name)]


def _reader_of(file: Path) -> Callable[[Path, list[str]], Iterator[RawMessage]]:
    """By content, not by name."""
    try:
        with file.open("rb") as stream:
            start = stream.read(16)
    except OSError as error:
        raise NotABag(f"bag file {file}: {error.strerror}; a readable file is needed") from None
    if start.startswith(MCAP_MAGIC):
        return _read_mcap
    if start.startswith(SQLITE_MAGIC):
        return _read_sqlite
    if not start:
        return _read_empty
    kind = "a ROS 1 bag" if start.startswith(ROS1_MAGIC) else "neither MCAP nor SQLite"
    raise NotABag(f"bag file {file}: it is {kind}; a rosbag2 folder, .mcap or .db3 is right")


def _read_empty(file: Path, damage: list[str]) -> Iterator[RawMessage]:
    damage.append(f"{file.name} is empty (0 bytes)")
    yield from ()


def _canonical_type(kind: str) -> str:
    """`sensor_msgs/Image` and `sensor_msgs::msg::Image` are `sensor_msgs/msg/Image`."""
    parts = kind.replace("::", "/").split("/")
    return "/".join([parts[0], "msg", parts[-1]]) if len(parts) in (2, 3) else kind


def _plain_data(data: bytes) -> bytes:
    """A message's bytes; CDR begins with a zero byte, a compressed message with zstd's mark."""
    if not isinstance(data, bytes):
        return b""
    if not data.startswith(ZSTD_MAGIC):
        return data
    try:
        return zstandard.ZstdDecompressor().decompressobj().decompress(data)
    except zstandard.ZstdError:
        return b""


# SQLite


def _read_sqlite(file: Path, damage: list[str]) -> Iterator[RawMessage]:
    wal = file.with_name(file.name + "-wal")  # a killed recorder's last transactions
    mode = "mode=ro" if wal.is_file() and wal.stat().st_size else "mode=ro&immutable=1"
    try:
        database = sqlite3.connect(f"file:{quote(str(file.resolve()))}?{mode}", uri=True)
        try:
            rows = database.execute("SELECT id, name, type, serialization_format FROM topics")
            topics = {key: (name, _canonical_type(kind), form) for key, name, kind, form in rows}
            rows = database.execute("SELECT topic_id, timestamp, data FROM messages ORDER BY id")
            for topic, time_ns, data in rows:
                if topic in topics:
                    yield RawMessage(*topics[topic], time_ns, _plain_data(data))
        finally:
            database.close()
    except sqlite3.Error as error:
        damage.append(f"{file.name} is damaged ({error})")


# MCAP: records of one opcode byte, a length of eight bytes and content; most lie inside chunks


class _Channels:
    """Schemas and channels met so far in one file."""

    def __init__(self):
        self._schemas: dict[int, str] = {}
        self._channels: dict[int, tuple[str, str, str]] = {}

    def take(self, opcode: int, content: bytes) -> RawMessage | None:
        """Learn a schema or a channel, or make the message of this record."""
        if opcode == Opcode.MESSAGE:
            channel, _, log_time_ns, _ = struct.unpack_from("<HIQQ", content)
            known = self._channels.get(channel)
            return None if known is None else RawMessage(*known, log_time_ns, _plain_data(content[22:]))
        if opcode == Opcode.SCHEMA:
            schema = Schema.read(ReadDataStream(BytesIO(content)))
            self._schemas[schema.id] = _canonical_type(schema.name)
        elif opcode == Opcode.CHANNEL:
            channel = Channel.read(ReadDataStream(BytesIO(content)))
            kind = self._schemas.get(channel.schema_id, "")
            self._channels[channel.id] = (channel.topic, kind, channel.message_encoding)
        return None


def _read_mcap(file: Path, damage: list[str]) -> Iterator[RawMessage]:
    """Front to back, without the index: what a killed recorder or a cut copy left is read too."""
    channels = _Channels()
    size = file.stat().st_size
    with file.open("rb") as stream:
        stream.seek(len(MCAP_MAGIC))
        while True:
            head = stream.read(9)
            opcode, length = struct.unpack("<BQ", head) if len(head) == 9 else (0, 0)
            if opcode in (Opcode.DATA_END, Opcode.FOOTER):
                return
            content = stream.read(min(length, size))
            if opcode == Opcode.CHUNK:
                for inner in _chunk_records(content, file, damage):
                    yield from _messages_of(channels, [inner])
            elif len(content) == length:
                yield from _messages_of(channels, [(opcode, content)])
            if len(head) < 9 or len(content) < length:
                damage.append(f"{file.name} ends at byte {size} without its end mark: cut or never closed")
                return


def _messages_of(channels: _Channels, records: list[tuple[int, bytes]]) -> Iterator[RawMessage]:
    for opcode, content in records:
        try:
            message = channels.take(opcode, content)
        except (struct.error, ValueError, McapError):
            continue
        if message is not None:
            yield message


def _chunk_records(content: bytes, file: Path, damage: list[str]) -> Iterator[tuple[int, bytes]]:
    """Records of a chunk, whole or cut; of a whole one only if its checksum is right."""
    if len(content) < 32:
        return
    _, _, unpacked_size, checksum, name_length = struct.unpack_from("<QQQII", content)
    start = 32 + name_length + 8
    compression = content[32:32 + name_length].decode("ascii", "replace")
    data = _decompressed(compression, content[start:])
    if data is None:
        damage.append(f"{file.name} has a chunk that does not decompress ({compression})")
        return
    if len(data) == unpacked_size and checksum and zlib.crc32(data) != checksum:
        damage.append(f"{file.name} has a chunk with a wrong checksum, left out")
        return
    offset = 0
    while offset + 9 <= len(data):
        opcode, length = struct.unpack_from("<BQ", data, offset)
        offset += 9 + length
        if offset <= len(data):
            yield opcode, data[offset - length:offset]


def _decompressed(compression: str, data: bytes) -> bytes | None:
    """As far as the data reach; None where nothing comes out."""
    try:
        if compression == "zstd":
            return zstandard.ZstdDecompressor().decompressobj().decompress(data)
        if compression == "lz4":
            return lz4.frame.LZ4FrameDecompressor().decompress(data)
    except (zstandard.ZstdError, RuntimeError, EOFError):
        return None
    return data if compression == "" else None
