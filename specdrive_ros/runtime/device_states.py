"""Hidden states that stay on the device: tapped in a pass of the target, read by a draft's engine, never on the host.

The operations that decoding and companies of drafts use on an array of states work on these as well: length, shape,
picking rows or columns, `np.concatenate`. None of them copies anything; they only note which rows of which block are
meant, and `place` copies these once, to where an engine reads them. `np.asarray` gives the numbers, after a wait. All
copies are queued on the device's single stream, so a block's next owner writes after its last reader.
"""

from dataclasses import dataclass

import numpy as np

from specdrive_ros.engine.memory import Block, Device, DevicePool, PinnedPool
from specdrive_ros.engine.runner import Tensor
from specdrive_ros.runtime.device_features import runs

_ITEM = 4  # bytes of a float32


@dataclass(frozen=True)
class _Part:
    """rows [n] of a block whose rows have `width` numbers."""

    block: Block
    rows: np.ndarray
    width: int


class DeviceStates:
    """[T, width] float32. columns: the columns of the blocks that are meant, None for all."""

    ndim, dtype = 2, np.dtype(np.float32)

    def __init__(self, store: "StateStore", parts: tuple[_Part, ...], columns: np.ndarray | None = None):
        self.store, self.parts, self.columns = store, parts, columns

    def __len__(self) -> int:
        return sum(len(part.rows) for part in self.parts)

    @property
    def shape(self) -> tuple[int, int]:
        return len(self), self.parts[0].width if self.columns is None else len(self.columns)

    @property
    def nbytes(self) -> int:
        return _ITEM * self.shape[0] * self.shape[1]

    def view(self) -> "DeviceStates":
        """Itself: states cannot be written."""
        return self

    def setflags(self, write: bool) -> None:
        """States are always read-only. Raises ValueError if they are to become writable."""
        if write:
            raise ValueError("states on the device are read-only")

    def __getitem__(self, index) -> "DeviceStates":
        """Rows, or (rows, columns); each a slice or indices."""
        rows, columns = index if isinstance(index, tuple) else (index, None)
        chosen = np.arange(len(self))[rows]
        if chosen.ndim != 1:
            raise IndexError(f"states on the device: rows must be a slice or a list of numbers, got {rows!r}")
        if columns is None:
            return DeviceStates(self.store, self._parts_of(chosen), self.columns)
        known = np.arange(self.shape[1]) if self.columns is None else self.columns
        return DeviceStates(self.store, self._parts_of(chosen), known[columns])

    def _parts_of(self, chosen: np.ndarray) -> tuple[_Part, ...]:
        """The chosen rows, with consecutive rows of one part kept together."""
        owners = np.repeat(np.arange(len(self.parts)), [len(part.rows) for part in self.parts])
        rows = np.concatenate([part.rows for part in self.parts])
        starts = np.flatnonzero(np.diff(owners[chosen], prepend=-1))
        found = []
        for group in np.split(chosen, starts[1:]):
            part = self.parts[owners[group[0]] if len(group) else 0]
            found.append(_Part(part.block, rows[group], part.width))
        return tuple(found)

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        """Copies them to the host and waits."""
        return np.asarray(self.store.fetch(self), dtype)

    def __array_function__(self, function, types, arguments, keywords):
        """`np.concatenate` of states stays on the device; every other function gets host arrays."""
        if function is np.concatenate and all(issubclass(each, DeviceStates) for each in types) and not keywords:
            return _joined(list(arguments[0]))
        host = [_on_host(each) for each in arguments]
        return function(*host, **{name: _on_host(each) for name, each in keywords.items()})


def _joined(states: list[DeviceStates]) -> DeviceStates:
    """The states one after another. Raises ValueError if their columns differ."""
    first = states[0]
    for each in states[1:]:
        if each.shape[1] != first.shape[1] or not np.array_equal(each.columns, first.columns):
            raise ValueError(f"states of different columns: {first.shape} and {each.shape}")
    return DeviceStates(first.store, tuple(part for each in states for part in each.parts), first.columns)


def _on_host(value):
    if isinstance(value, DeviceStates):
        return np.asarray(value)
    return [_on_host(each) for each in value] if isinstance(value, (list, tuple)) else value


class StateStore:
    """Blocks for states, reused when nobody refers to them; only few sizes occur, those of padded passes."""

    def __init__(self, device: Device, pinned: PinnedPool):
        self._device, self._pinned, self._pool = device, pinned, DevicePool(device)

    def keep(self, output: Tensor, rows: int) -> DeviceStates:
        """Queues a copy of the first `rows` rows of an engine's output [T, width], which its next run overwrites."""
        room, width = output.shape
        block = self._pool.take(_ITEM * room * width)
        size = _ITEM * rows * width
        self._device.copy_blocks(block.address, size, output.address, size, size, 1)
        return DeviceStates(self, (_Part(block, np.arange(rows), width),))

    def place(self, states: DeviceStates, target: Tensor, first: int = 0) -> None:
        """Queues what fills an engine's input [T, width]: states from row `first` on, zeros before and after.

        Zeros, because a mask hides added finite values, but NaN would show through it.
        """
        room, width = target.shape
        if width != states.shape[1]:
            raise ValueError(f"states of {states.shape[1]} columns for an input of {width}")
        row_bytes, behind = _ITEM * width, first + len(states)
        self._clear(target.address, first * row_bytes)
        self._clear(target.address + behind * row_bytes, (room - behind) * row_bytes)
        self._copy(states, target.address + first * row_bytes)

    def _clear(self, address: int, size: int) -> None:
        if size:
            self._device.clear(address, size)

    def _copy(self, states: DeviceStates, address: int) -> None:
        """Copies the rows one after another: one copy for each run of consecutive rows and columns."""
        width = states.shape[1]
        pieces = [(0, 0, width)] if states.columns is None else runs(states.columns)
        for part in states.parts:
            for first, row, count in runs(part.rows):
                for to, column, columns in pieces:
                    target = address + _ITEM * (first * width + to)
                    source = part.block.address + _ITEM * (row * part.width + column)
                    self._device.copy_blocks(
                        target, _ITEM * width, source, _ITEM * part.width, _ITEM * columns, count
                    )
            address += _ITEM * len(part.rows) * width

    def fetch(self, states: DeviceStates) -> np.ndarray:
        """[T, width] on the host, in pinned memory. Waits."""
        array = self._pinned.take(states.shape)
        if array.size:
            block = self._pool.take(_ITEM * array.size)
            self._copy(states, block.address)
            self._device.download(array.ctypes.data, block.address, array.nbytes)
            self._device.synchronize()
        return array
