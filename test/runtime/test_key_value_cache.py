import numpy as np
import pytest

from specdrive_ros.runtime.networks import KeyValueCache


def filled(tokens: int, capacity: int = 8) -> KeyValueCache:
    """Row k of every layer holds the number k."""
    cache = KeyValueCache(layers=2, heads=1, head_size=3, capacity=capacity)
    rows = np.broadcast_to(np.arange(tokens, dtype=np.float32)[:, None, None, None], (2, tokens, 2, 1, 3))
    cache.append(rows)
    return cache


def held(cache: KeyValueCache) -> list[float]:
    return cache.rows[1, : cache.length, 0, 0, 0].tolist()


def test_keep_compacts_accepted_rows_in_order():
    cache = filled(7)
    cache.keep(2, np.array([0, 2, 4]))
    assert held(cache) == [0, 1, 2, 4, 6]


def test_keep_nothing():
    cache = filled(5)
    cache.keep(3, np.array([]))
    assert held(cache) == [0, 1, 2]


def test_rows_of_a_layer_are_contiguous_however_many_are_held():
    cache = filled(5)
    assert cache.rows[1, : cache.length].flags.c_contiguous and cache.reserve(2)[0].flags.c_contiguous


def test_reserved_rows_count_only_when_advanced():
    cache = filled(3)
    cache.reserve(2)[:] = 9
    assert held(cache) == [0, 1, 2]
    cache.advance(1)
    assert held(cache) == [0, 1, 2, 9]


@pytest.mark.parametrize("length", [-1, 6])
def test_truncate_beyond_what_is_held(length):
    with pytest.raises(ValueError, match="cannot truncate 5 tokens"):
        filled(5).truncate(length)


def test_capacity():
    with pytest.raises(ValueError, match="9 tokens do not fit a capacity of 8"):
        filled(8).reserve(1)
