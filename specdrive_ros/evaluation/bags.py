"""rosbag2 recordings without ROS: MCAP and SQLite, whole, split, compressed or damaged.

Messages come in the order of their *header* stamps; a recorder writes them in order of arrival. Of a damaged
recording, everything readable is read, and `damage` says what is lost. Knows no camera and no car.
"""

import struct
import tempfile
from array import array
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rosbags.typesys import Stores, get_typestore
from rosbags.typesys.store import Typestore

from specdrive_ros.errors import InputError
from specdrive_ros.evaluation.bag_files import NotABag, find_files, read_metadata, reader_of, unpack
from specdrive_ros.evaluation.bag_messages import ZSTD_MAGIC, RawMessage
from specdrive_ros.shapes import NANOSECONDS

HEADER_TYPE = "std_msgs/msg/Header"
ZERO_STAMP, UNREADABLE = "ZERO_STAMP", "UNREADABLE"
LISTED_TOPICS = 20


class TopicAbsent(InputError):
    """Raised for a topic that the recording does not have; the text lists those it has."""


class WrongType(InputError):
    """Raised for a topic whose type or serialization is not the one asked for."""


@dataclass(frozen=True)
class Topic:
    """A topic of a recording; `type` as in `sensor_msgs/msg/Image`, `count` is the number of readable messages."""

    name: str
    type: str
    serialization: str
    count: int

    def __str__(self) -> str:
        strange = "" if self.serialization == "cdr" else f", serialized as {self.serialization}"
        return f"{self.name} ({self.type}, {self.count}{strange})"


class BagMessage(NamedTuple):
    """One message. stamp_ns: stamp of its header, else time of recording, nanoseconds."""

    topic: str
    stamp_ns: int
    message: Any


def open_bag(path: Path | str) -> "Bag":
    """Opens a rosbag2 folder, with or without metadata.yaml, or a single .mcap or .db3 file.

    Reads it once from start to end to find its topics and what is readable. Raises NotABag.
    """
    return Bag(Path(path))


class Bag:
    """A recording. `damage` lists in plain words what could not be read."""

    def __init__(self, path: Path):
        self.path = path
        self.damage: list[str] = []
        self.rejected: Counter[str] = Counter()
        self._types = _message_types()
        self._unpacked: tempfile.TemporaryDirectory | None = None
        metadata = read_metadata(path, self.damage)
        self._files = [self._plain_file(file) for file in find_files(path, metadata, self.damage)]
        self._stamps: dict[tuple[str, str, str], array] = {}  # per topic, in file order
        self._key_order = array("i")  # per message: index of its entry in `_stamps`
        self._scan(metadata.get("message_count"))

    @property
    def name(self) -> str:
        """Name of the folder or file, for people."""
        return self.path.resolve().name

    @property
    def topics(self) -> tuple[Topic, ...]:
        return tuple(Topic(*key, len(stamps)) for key, stamps in sorted(self._stamps.items()))

    def topic(self, name: str, types: Collection[str]) -> Topic:
        """The topic of that name, if its type is one of these. Raises TopicAbsent or WrongType."""
        found = [topic for topic in self.topics if topic.name == name]
        if not found:
            raise TopicAbsent(f"bag {self.path}: no topic {name}; it has {self.listing()}")
        for topic in found:
            if topic.type in types and topic.serialization == "cdr":
                return topic
        wrong = found[0]
        if wrong.type in types:
            raise WrongType(f"bag {self.path}: {name} is serialized as {wrong.serialization!r}; must be cdr")
        raise WrongType(f"bag {self.path}: {name} is {wrong.type}; must be {' or '.join(sorted(types))}")

    def listing(self, types: Collection[str] | None = None) -> str:
        """Topics with their types in one line, all or only of some types."""
        chosen = [topic for topic in self.topics if types is None or topic.type in types]
        more = [f"and {len(chosen) - LISTED_TOPICS} more"] if len(chosen) > LISTED_TOPICS else []
        return ", ".join([str(topic) for topic in chosen[:LISTED_TOPICS]] + more) or "none"

    def span(self, topics: Collection[str]) -> tuple[int, int]:
        """Stamps of the first and last message of these topics, nanoseconds; (0, 0) if there are none."""
        stamps = [stamp for stamp in self._stamps_in_file_order(topics) if stamp != 0]
        return (min(stamps), max(stamps)) if stamps else (0, 0)

    def messages(self, topics: Collection[str]) -> Iterator[BagMessage]:
        """Messages of these topics by header stamp; those with equal stamps in order of recording.

        Skipped and counted in `rejected`: messages of a type this program does not know, messages that do not decode,
        and messages without a stamp if others of the topic have one; if a whole topic has none, the time of recording
        counts. Memory holds only messages that are out of order.
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
        except Exception:  # generated code on foreign bytes: any error means that these bytes are no message
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
        """Header stamp if the type begins with a header, else the time of recording; nanoseconds."""
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
            yield from reader_of(file)(file, damage)

    def _plain_file(self, file: Path) -> Path:
        """The file itself, or an unpacked temporary copy if it is compressed as a whole."""
        with file.open("rb") as stream:
            if stream.read(4) != ZSTD_MAGIC:
                return file
            self._unpacked = self._unpacked or tempfile.TemporaryDirectory(prefix="specdrive-bag-")
            plain = Path(self._unpacked.name) / file.name.removesuffix(".zstd")
            stream.seek(0)
            with plain.open("wb") as out:
                unpack(stream, out, file, self.damage)
        return plain


@lru_cache
def _message_types() -> Typestore:
    """The common interfaces of ROS 2; the types read here are the same in all distributions."""
    return get_typestore(Stores.ROS2_HUMBLE)


def _ranks(stamps: list[int]) -> list[int]:
    """The rank of each stamp in sorted order; equal ones keep their order."""
    ranks = np.empty(len(stamps), np.int64)
    ranks[np.argsort(np.array(stamps, np.int64), kind="stable")] = np.arange(len(stamps))
    return ranks.tolist()
