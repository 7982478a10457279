"""What is counted of a stream, and what is called odd about a message."""

import pytest

from specdrive_ros.observation.stream_statistics import StreamStatistics
from specdrive_ros.shapes import NANOSECONDS

TENTH = NANOSECONDS // 10


def fed(*stamps: int, frame_ids: tuple[str, ...] = ()) -> tuple[StreamStatistics, list[str]]:
    """One arrival a tenth of a second, whatever the stamps are."""
    statistics = StreamStatistics()
    frames = frame_ids or ("cam",) * len(stamps)
    odd = [statistics.note(stamp, count * TENTH, frame) for count, (stamp, frame) in enumerate(zip(stamps, frames))]
    return statistics, odd


def test_a_good_stream():
    statistics, odd = fed(*(7 + TENTH * k for k in range(30)))
    assert set(odd) == {""}
    assert statistics.rate_hz(29 * TENTH) == pytest.approx(10.0)
    assert statistics.values(29 * TENTH) == {
        "rate_hz": 10.0, "out_of_order": 0, "duplicates": 0, "jumps": 0, "largest_gap_s": 0.1, "frame_id": "cam",
        "frame_changes": 0,
    }


def test_the_rate_falls_while_nothing_comes():
    statistics, _ = fed(*(TENTH * k for k in range(30)))
    assert statistics.rate_hz(29 * TENTH + 4 * NANOSECONDS) == pytest.approx(0.25)
    assert StreamStatistics().rate_hz(0) == 0.0


@pytest.mark.parametrize(
    ("stamps", "odd"),
    [
        ((0, 2 * TENTH, TENTH), "OUT_OF_ORDER"),
        ((0, TENTH, TENTH), "DUPLICATE"),
        ((0, TENTH, 20 * TENTH), "JUMP"),
        ((50 * TENTH, 51 * TENTH, 0), "JUMP"),
    ],
)
def test_odd_stamps(stamps, odd):
    statistics, found = fed(*stamps)
    assert found == ["", "", odd]
    counts = (statistics.out_of_order, statistics.duplicates, statistics.jumps)
    assert counts == tuple(odd == name for name in ("OUT_OF_ORDER", "DUPLICATE", "JUMP"))


def test_after_a_jump_the_new_clock_counts():
    _, odd = fed(50 * TENTH, 0, TENTH, 2 * TENTH)
    assert odd == ["", "JUMP", "", ""]


def test_another_frame_id():
    statistics, odd = fed(0, TENTH, 2 * TENTH, frame_ids=("a", "b", "b"))
    assert odd == ["", "FRAME_CHANGED", ""] and statistics.frame_changes == 1


def test_a_burst_of_a_thousand_keeps_no_more_than_it_needs():
    statistics, _ = fed(*(TENTH * k for k in range(1000)))
    assert statistics.received == 1000 and len(statistics._arrivals) <= 20
