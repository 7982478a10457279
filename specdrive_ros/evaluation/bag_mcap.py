"""Reads the messages of an MCAP recording front to back, as far as the file is readable.

A record is an opcode of one byte, a length of eight bytes and content; most records lie inside chunks.
"""

import struct
import zlib
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import lz4.frame
import zstandard
from mcap.data_stream import ReadDataStream
from mcap.exceptions import McapError
from mcap.opcode import Opcode
from mcap.records import Channel, Schema

from specdrive_ros.evaluation.bag_messages import RawMessage, canonical_type, plain_data

MCAP_MAGIC = b"\x89MCAP0\r\n"


class _Channels:
    """Schemas and channels read so far from one file."""

    def __init__(self):
        self._schemas: dict[int, str] = {}
        self._channels: dict[int, tuple[str, str, str]] = {}

    def take(self, opcode: int, content: bytes) -> RawMessage | None:
        """Stores a schema or channel; returns the message if the record is one."""
        if opcode == Opcode.MESSAGE:
            channel, _, log_time_ns, _ = struct.unpack_from("<HIQQ", content)
            known = self._channels.get(channel)
            return None if known is None else RawMessage(*known, log_time_ns, plain_data(content[22:]))
        if opcode == Opcode.SCHEMA:
            schema = Schema.read(ReadDataStream(BytesIO(content)))
            self._schemas[schema.id] = canonical_type(schema.name)
        elif opcode == Opcode.CHANNEL:
            channel = Channel.read(ReadDataStream(BytesIO(content)))
            kind = self._schemas.get(channel.schema_id, "")
            self._channels[channel.id] = (channel.topic, kind, channel.message_encoding)
        return None


def read_mcap(file: Path, damage: list[str]) -> Iterator[RawMessage]:
    """Reads front to back, without the index, so that the remains of a killed recorder or a truncated copy are read
    too."""
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
    """(opcode, content) records of a chunk, complete or truncated; of a complete one only if its checksum is right."""
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
    """As much as the data give; None if nothing comes out."""
    try:
        if compression == "zstd":
            return zstandard.ZstdDecompressor().decompressobj().decompress(data)
        if compression == "lz4":
            return lz4.frame.LZ4FrameDecompressor().decompress(data)
    except (zstandard.ZstdError, RuntimeError, EOFError):
        return None
    return data if compression == "" else None
