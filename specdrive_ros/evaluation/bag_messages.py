"""A message as it lies in a recording, and what every storage has in common. Knows no files."""

from typing import NamedTuple

import zstandard

ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


class RawMessage(NamedTuple):
    """One message as it lies in the file."""

    topic: str
    type: str
    serialization: str
    log_time_ns: int
    data: bytes


def canonical_type(kind: str) -> str:
    """`sensor_msgs/Image` and `sensor_msgs::msg::Image` are `sensor_msgs/msg/Image`."""
    parts = kind.replace("::", "/").split("/")
    return "/".join([parts[0], "msg", parts[-1]]) if len(parts) in (2, 3) else kind


def plain_data(data: bytes) -> bytes:
    """A message's bytes; CDR begins with a zero byte, a compressed message with zstd's mark."""
    if not isinstance(data, bytes):
        return b""
    if not data.startswith(ZSTD_MAGIC):
        return data
    try:
        return zstandard.ZstdDecompressor().decompressobj().decompress(data)
    except zstandard.ZstdError:
        return b""
