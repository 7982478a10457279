"""Layouts, buckets, moves of cache rows, pinned results: what the TensorRT runtime does without TensorRT."""

import gc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdrive_ros.engine.axes import Range
from specdrive_ros.engine.memory import ALIGNMENT, DeviceCache, PinnedPool, array_at, byte_size, lay_out, moves
from specdrive_ros.engine.sizes import bucket, fit, ranges_of
from specdrive_ros.errors import InputError
from specdrive_ros.runtime.networks import KeyValueCache

RISING = st.lists(st.integers(0, 60), unique=True, max_size=30).map(sorted)


@given(RISING)
def test_moves_bring_rows_together_without_overlap(accepted):
    rows = list(range(64))
    for target, source, count in moves(np.array(accepted, np.int64)):
        assert count >= 1 and (target + count <= source)  # neither end reaches into the other
        rows[target : target + count] = rows[source : source + count]
    assert rows[: len(accepted)] == accepted


def test_a_run_moves_in_one_copy_where_it_can():
    assert moves(np.array([0, 1, 2])) == []
    assert moves(np.array([10, 11, 12, 13])) == [(0, 10, 4)]
    assert moves(np.array([0, 2, 3, 4])) == [(1, 2, 1), (2, 3, 1), (3, 4, 1)]


def test_rows_that_do_not_rise():
    with pytest.raises(ValueError, match=r"must rise, got \[2, 1\]"):
        moves(np.array([2, 1]))


@given(start=st.integers(0, 20), accepted=RISING)
def test_cache_keeps_what_the_hosts_cache_keeps(host_device, start, accepted):
    plain = KeyValueCache(3, 2, 4, 100)
    plain.rows[:] = np.random.default_rng(0).standard_normal(plain.rows.shape)
    cache = DeviceCache(host_device, 3, 2 * 2 * 4 * 4, 100)
    for layer in range(3):
        array_at(cache.past(100).layer(layer), (100, 2, 2, 4), np.float32)[:] = plain.rows[layer]
    for each in (plain, cache):
        each.advance(start + 61)
        each.keep(start, np.array(accepted, np.int64))
    host_device.synchronize()
    assert cache.length == plain.length == start + len(accepted)
    for layer in range(3):
        kept = array_at(cache.past(100).layer(layer), (100, 2, 2, 4), np.float32)[: cache.length]
        np.testing.assert_array_equal(kept, plain.rows[layer, : plain.length])


@given(
    st.lists(
        st.tuples(st.sampled_from(["float32", "float16", "int64"]), st.integers(0, 300), st.integers(1, 7)), max_size=6
    )
)
def test_tensors_do_not_share_bytes(tensors):
    named = {str(index): (dtype, (rows, columns)) for index, (dtype, rows, columns) in enumerate(tensors)}
    layout, end = lay_out(named), 0
    for name, (dtype, shape) in named.items():
        assert layout.offsets[name] % ALIGNMENT == 0 and layout.offsets[name] >= end
        end = layout.offsets[name] + byte_size(dtype, shape)
    assert layout.size >= end


@given(
    letter=st.sampled_from("TSR"), size=st.integers(0, 5000), least=st.integers(0, 64), largest=st.integers(64, 5000)
)
def test_a_bucket_holds_its_size(letter, size, least, largest):
    within = Range(least, least, largest)
    size = min(size, largest)
    assert max(size, least) <= bucket(letter, size, within) <= largest
    assert bucket(letter, bucket(letter, size, within), within) == bucket(letter, size, within)


def test_few_buckets():
    assert len({bucket("T", size, Range(1, 1, 512)) for size in range(1, 513)}) == 14
    assert {bucket("S", size, Range(0, 0, 512)) for size in range(513)} == {0, 128, 256, 384, 512}


PROFILES = (
    {"T": Range(1, 16, 64), "S": Range(1, 256, 512), "R": Range(1, 16, 64)},
    {"T": Range(1, 192, 512), "S": Range(0, 0, 128), "R": Range(1, 1, 64)},
)


@pytest.mark.parametrize(
    ("sizes", "index", "padded"),
    [
        ({"T": 1, "S": 200, "R": 1}, 0, {"T": 1, "S": 256, "R": 1}),
        ({"T": 60, "S": 511, "R": 60}, 0, {"T": 64, "S": 512, "R": 64}),
        ({"T": 141, "S": 0, "R": 3}, 1, {"T": 192, "S": 0, "R": 4}),
        ({"T": 8, "S": 0, "R": 1}, 1, {"T": 8, "S": 0, "R": 1}),
        ({"T": 1, "S": 100, "R": 1}, 0, {"T": 1, "S": 128, "R": 1}),
    ],
)
def test_the_profile_that_wastes_least(sizes, index, padded):
    assert fit("text", PROFILES, sizes) == (index, padded)


@pytest.mark.parametrize("sizes", [{"T": 65, "S": 200, "R": 1}, {"T": 1, "S": 513, "R": 1}, {"T": 1, "S": 0, "R": 65}])
def test_no_profile_is_large_enough(sizes):
    with pytest.raises(
        InputError, match="the text engine was built for .* at most, this pass has .* build it for more"
    ):
        fit("text", PROFILES, sizes)


def test_ranges_come_from_the_identity():
    from specdrive_ros.engine.profile import find_profile

    profile = find_profile("rtx-ada")
    assert ranges_of(profile.identity_of("text")) == profile.graphs["text"]


def test_pinned_memory_is_used_again_once_nobody_holds_it(device):
    pool = PinnedPool(device)
    one = pool.take((3, 5))
    view, address = one[1:], one.ctypes.data
    del one
    gc.collect()
    assert pool.take((3, 5)).ctypes.data != address  # a view still reads it
    del view
    gc.collect()
    assert address in {pool.take((3, 5)).ctypes.data for _ in range(1)} | {pool.take((3, 5)).ctypes.data}
    blocks = len(device.blocks)
    for _ in range(50):
        pool.take((3, 5))[:] = 1
    assert len(device.blocks) == blocks
