"""States on the device behave as the array they stand for, and cost nothing until somebody wants them."""

import gc

import numpy as np
import pytest

from specdrive_ros.draft.taps import TapSelection
from specdrive_ros.engine.memory import PinnedPool, array_at
from specdrive_ros.engine.runner import Tensor
from specdrive_ros.runtime.device_states import DeviceStates, StateStore

WIDTH = 6


@pytest.fixture
def store(device):
    return StateStore(device, PinnedPool(device))


@pytest.fixture
def kept(device, store):
    """`kept(rows, room)` -> states of an engine's output of `room` rows, and the array they stand for."""
    random = np.random.default_rng(0)

    def make(rows: int, room: int) -> tuple[DeviceStates, np.ndarray]:
        values = random.standard_normal((room, WIDTH)).astype(np.float32)
        output = Tensor(device.allocate(values.nbytes), values.shape)
        array_at(output.address, values.shape, np.float32)[...] = values
        states = store.keep(output, rows)
        device.synchronize()
        array_at(output.address, values.shape, np.float32)[...] = np.nan  # the engine runs again
        return states, values[:rows]

    return make


PICKS = [
    slice(None), slice(2, 5), slice(0, 0), [4], [0, 1, 4], np.array([3, 3, 1]), [-1], (slice(None), [4, 5, 0, 1]),
    (slice(1, 4), slice(2, 4)),
]  # fmt: skip


@pytest.mark.parametrize("pick", PICKS, ids=str)
def test_picking_rows_and_columns(kept, pick):
    states, values = kept(6, 8)
    picked, expected = states[pick], values[pick]
    assert (len(picked), picked.shape, picked.nbytes) == (len(expected), expected.shape, expected.nbytes)
    np.testing.assert_array_equal(np.asarray(picked), expected)


def test_picked_again_and_put_together(kept):
    """As a company of drafts does with rows that a draft has not read yet."""
    (one, first), (other, second) = kept(6, 8), kept(3, 4)
    together = np.concatenate([one[[0, 2, 3]], other, one[:1]])
    expected = np.concatenate([first[[0, 2, 3]], second, first[:1]])
    assert isinstance(together, DeviceStates)
    np.testing.assert_array_equal(np.asarray(together), expected)
    picked = together[[6, 1, 2, 4, 5]][1:]
    np.testing.assert_array_equal(np.asarray(picked), expected[[6, 1, 2, 4, 5]][1:])
    select = TapSelection((5, 2), (2, 3, 5), 2, "here")
    np.testing.assert_array_equal(np.asarray(select(together)), select(expected))
    with pytest.raises(ValueError, match="states of different columns"):
        np.concatenate([one, select(other)])
    np.testing.assert_array_equal(np.vstack([one, second]), np.vstack([first, second]))  # numbers to who wants numbers


def test_nothing_crosses_until_numbers_are_wanted(device, kept):
    states, values = kept(6, 8)
    before = device.downloaded, device.synchronisations, len(device.queue)
    picked = np.concatenate([states[[1, 2]].view(), states[3:]])
    picked.setflags(write=False)
    assert (device.downloaded, device.synchronisations, len(device.queue)) == before
    assert np.asarray(picked).nbytes == device.downloaded - before[0] == 5 * WIDTH * 4
    with pytest.raises(ValueError, match="read-only"):
        picked.setflags(write=True)
    with pytest.raises(IndexError, match="rows must be a slice or a list of numbers, got 3"):
        states[3]


@pytest.mark.parametrize("first", [0, 3])
def test_placed_among_zeros(device, store, kept, first):
    states, values = kept(6, 8)
    target = Tensor(device.allocate(10 * WIDTH * 4), (10, WIDTH))
    found = array_at(target.address, target.shape, np.float32)
    found[...] = np.nan
    picked = states[[0, 1, 4, 5]]
    before = device.downloaded
    store.place(picked, target, first)
    device.synchronize()
    expected = np.zeros((10, WIDTH), np.float32)
    expected[first : first + 4] = values[[0, 1, 4, 5]]
    np.testing.assert_array_equal(found, expected)
    assert device.downloaded == before
    with pytest.raises(ValueError, match="states of 2 columns for an input of 6"):
        store.place(picked[:, [0, 1]], target)


def test_blocks_are_given_out_again(device, store, kept):
    kept(6, 8)
    gc.collect()
    output = Tensor(device.allocate(8 * WIDTH * 4), (8, WIDTH))
    held = len(device.blocks)
    for _ in range(5):
        store.keep(output, 6)
        device.synchronize()
    assert len(device.blocks) == held
