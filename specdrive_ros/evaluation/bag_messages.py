"""A message as stored in a recording, and what all storage formats share. Knows no files."""

from typing import NamedTuple

import zstandard

ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


class RawMessage(NamedTuple):
    """One message as stored in the file."""

    topic: str
    type: str
    serialization: str
    log_time_ns: int
    data: bytes


def canonical_type(kind: str) -> str:
    """Makes `sensor_msgs/Image` and `sensor_msgs::msg::Image` into `sensor_msgs/msg/Image`."""
    parts = kind.replace("::", "/").split("/")
    return "/".join([parts[0], "msg", parts[-1]]) if len(parts) in (2, 3) else kind


def plain_data(data: bytes) -> bytes:
    """A message's bytes, decompressed if needed: CDR begins with a zero byte, a compressed message with zstd's
    magic."""
    if not isinstance(data, bytes):
        return b""
    if not data.startswith(ZSTD_MAGIC):
        return data
    try:
        return zstandard.ZstdDecompressor().decompressobj().decompress(data)
    except zstandard.ZstdError:
        return b""
