"""Memory for engines: what a runner needs from a device, tensors laid out in a block, memory pools, the cache.

Addresses are plain numbers, so that everything here can be tested with host memory as the device.
"""

import ctypes
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

ALIGNMENT = 256  # bytes; TensorRT's requirement for addresses
ITEM_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "int64": 8, "int32": 4}


class Device(Protocol):
    """See `cuda_driver.CudaDevice` for what each method does."""

    stream: int

    def use(self) -> None: ...
    def allocate(self, size: int) -> int: ...
    def free(self, address: int) -> None: ...
    def allocate_pinned(self, size: int) -> int: ...
    def free_pinned(self, address: int) -> None: ...
    def upload(self, target: int, source: int, size: int) -> None: ...
    def download(self, target: int, source: int, size: int) -> None: ...
    def clear(self, address: int, size: int) -> None: ...
    def copy_blocks(
        self, target: int, target_pitch: int, source: int, source_pitch: int, width: int, count: int
    ) -> None: ...
    def synchronize(self) -> None: ...
    def capture(self, enqueue: Callable[[], None]) -> int: ...
    def launch(self, captured: int) -> None: ...
    def drop(self, captured: int) -> None: ...


class Placed(Protocol):
    """Something that is on the device, such as `runner.Tensor`."""

    address: int


@dataclass(frozen=True)
class Layout:
    """Positions of tensors in one block of `size` bytes: name -> offset, each aligned."""

    offsets: dict[str, int]
    size: int


def lay_out(tensors: Mapping[str, tuple[str, tuple[int, ...]]]) -> Layout:
    """tensors: name -> (type, shape), in order."""
    offsets, position = {}, 0
    for name, (dtype, shape) in tensors.items():
        offsets[name] = position
        position += aligned(byte_size(dtype, shape))
    return Layout(offsets, position)


def byte_size(dtype: str, shape: tuple[int, ...]) -> int:
    return ITEM_BYTES[dtype] * int(np.prod(shape, dtype=np.int64))


def aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def array_at(address: int, shape: tuple[int, ...], dtype) -> np.ndarray:
    """An array over host memory at an address; whoever allocated the memory keeps it alive."""
    size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    return np.frombuffer((ctypes.c_char * size).from_address(address), dtype).reshape(shape)


class PinnedPool:
    """Arrays in pinned memory. An array's memory returns to the pool when nobody refers to the array any more."""

    def __init__(self, device: Device):
        self._device, self._free = device, {}

    def take(self, shape: tuple[int, ...], dtype=np.float32) -> np.ndarray:
        size = max(ALIGNMENT, 1 << (byte_size(np.dtype(dtype).name, shape) - 1).bit_length())
        free = self._free.setdefault(size, [])
        address = free.pop() if free else self._device.allocate_pinned(size)
        owner = (ctypes.c_char * byte_size(np.dtype(dtype).name, shape)).from_address(address)
        weakref.finalize(owner, free.append, address).atexit = False  # the array's base is `owner`
        return np.frombuffer(owner, dtype).reshape(shape)


@dataclass(frozen=True, eq=False)
class Block:
    """Device memory; it returns to its pool when nobody refers to this object any more."""

    address: int


class DevicePool:
    """Blocks on the device. A returned block may be given out again while work on it is still queued: there is only
    one stream, so whatever its next owner queues comes after."""

    def __init__(self, device: Device):
        self._device, self._free = device, {}

    def take(self, size: int) -> Block:
        free = self._free.setdefault(size, [])
        block = Block(free.pop() if free else self._device.allocate(size))
        weakref.finalize(block, free.append, block.address).atexit = False
        return block


class DeviceCache:
    """`KeyValueCache` on the device, [L, capacity, 2, H, D] in the engines' type. Rows never pass through the host."""

    def __init__(self, device: Device, layers: int, row_bytes: int, capacity: int):
        self.layers, self.row_bytes, self.capacity = layers, row_bytes, capacity
        self.layer_bytes = aligned(capacity * row_bytes)
        self.length = 0
        self._device = device
        self.address = device.allocate(layers * self.layer_bytes)
        self._free = weakref.finalize(self, device.free, self.address)
        self._free.atexit = False

    def past(self, length: int) -> "Rows":
        return Rows(self, 0, length)

    def reserve(self, tokens: int) -> "Rows":
        """The rows after the cached ones; `advance` makes them part of the cache. Raises ValueError beyond the
        capacity."""
        end = self.length + tokens
        if end > self.capacity:
            raise ValueError(f"key-value cache: {end} tokens do not fit a capacity of {self.capacity}")
        return Rows(self, self.length, tokens)

    def advance(self, tokens: int) -> None:
        self.length += tokens

    def write(self, start: int, count: int, source: int, source_layer_bytes: int) -> None:
        """Copies `count` rows of every layer from elsewhere on the device to row `start`."""
        target = self.address + start * self.row_bytes
        width = count * self.row_bytes
        self._device.copy_blocks(target, self.layer_bytes, source, source_layer_bytes, width, self.layers)

    def keep(self, start: int, accepted: np.ndarray) -> None:
        """Of the rows from `start` on, keeps only those at the offsets `accepted`, which must ascend."""
        accepted = np.asarray(accepted, np.int64)
        for target, source, count in moves(accepted):
            rows = self.address + (start + source) * self.row_bytes
            self.write(start + target, count, rows, self.layer_bytes)
        self.length = start + len(accepted)

    def truncate(self, length: int) -> None:
        if not 0 <= length <= self.length:
            raise ValueError(f"key-value cache: cannot truncate {self.length} tokens to {length}")
        self.length = length

    def wipe(self) -> None:
        """Queues writing zeros to every row, including those beyond the cached ones."""
        self._device.clear(self.address, self.layers * self.layer_bytes)


@dataclass(frozen=True)
class Rows:
    """`count` rows of every layer of a cache, from row `start` on."""

    cache: DeviceCache
    start: int
    count: int

    def take(self, given: Mapping[str, "Placed"], skip: int = 0) -> None:
        """Queues copies of an engine's outputs new_0 … new_L-1 from row `skip` on.

        They are equally far apart, so one copy takes the rows of all layers.
        """
        first, second = given["new_0"].address, given.get("new_1", given["new_0"]).address
        self.cache.write(self.start, self.count, first + skip * self.cache.row_bytes, second - first)

    def layer(self, index: int) -> int:
        """Address of one layer's rows."""
        cache = self.cache
        return cache.address + index * cache.layer_bytes + self.start * cache.row_bytes


def moves(accepted: np.ndarray) -> list[tuple[int, int, int]]:
    """(to, from, rows) of copies that move the rows `accepted` to 0, 1, 2 …; source and target of a copy do not
    overlap.

    A run of consecutive rows that moves by less than its length is split into pieces as long as the move, in order.
    Raises ValueError if the offsets do not ascend: an earlier copy would overwrite what a later one reads.
    """
    if np.any(np.diff(accepted) <= 0):
        raise ValueError(f"key-value cache: offsets to keep must rise, got {accepted.tolist()}")
    found: list[tuple[int, int, int]] = []
    place = 0
    while place < len(accepted):
        source, count = int(accepted[place]), 1
        shift = source - place
        while place + count < len(accepted) and accepted[place + count] == source + count and count < max(shift, 1):
            count += 1
        if shift:
            found.append((place, source, count))
        place += count
    return found
