"""A method's row, by hand: what reasoning adds to the plain prefill, so that carried text pays for its place in it."""

import pytest

from specdrive_ros.evaluation.decode_benchmark import MethodResult


def test_a_row_by_hand():
    plain = MethodResult("none", ms=[30.0, 34.0], prefill_ms=[10.0, 14.0], tokens=20, target_passes=20)
    carried = MethodResult("dflash-mirror", ms=[18.0, 22.0], prefill_ms=[16.0, 20.0], tokens=20, target_passes=5)
    row = carried.row(plain)  # the plain prefill's median is 12 ms
    assert row["ms_per_reasoning"] == {"median": 8.0, "p99": pytest.approx(9.96), "mean": 8.0}
    assert row["speedup"] == 2.5 and plain.row(plain)["speedup"] == 1.0
    assert (row["accepted_length"], row["routine_share"]) == (4.0, 0.75)
    assert (row["draft"], row["rope"], row["identical"], row["mismatches"]) == ("dflash-mirror", "mirror", True, 0)
    assert plain.row(plain)["rope"] is None


def test_other_words_than_plain_decodings_are_counted():
    row = MethodResult("carryover", ms=[1.0], prefill_ms=[2.0], tokens=3, target_passes=1, mismatches=1)
    row = row.row(MethodResult("none", ms=[5.0], prefill_ms=[2.0], tokens=3, target_passes=3))
    assert row["identical"] is False and row["mismatches"] == 1
    assert row["speedup"] is None, "the reasoning's time drowned in the prefill's"
