"""Frames that carry their own number in their pixels, so a test sees which were chosen."""

import numpy as np
import pytest

from specdrive_ros.observation.observation import Observation
from specdrive_ros.observation.refusal import Reason
from specdrive_ros.observation.synchronisation import ObservationBuilder

START_NS = 1_600_000_000_000_000_000


def stamp(time_s):
    return START_NS + int(round(time_s * 1e9))


def frame(time_s, shape=(2, 3, 3)):
    """A picture whose value is its time in hundredths of a second."""
    return np.full(shape, round(time_s * 100) % 256, np.uint8)


def builder_with_odometry(cameras=("front",), until_s=2.001, **options):
    builder = ObservationBuilder(cameras, **options)
    add_odometry(builder, 0, until_s)
    return builder


def add_odometry(builder, start_s, until_s):
    for time_s in np.arange(start_s, until_s, 0.05):
        builder.add_odometry(stamp(time_s), [10 * time_s, 0, 0], [0, 0, 0, 1], 10.0)


def shown(observation, camera="front"):
    return observation.frames[camera][:, 0, 0, 0].tolist()


def test_picks_the_frames_of_the_last_four_tenths_and_their_true_stamps():
    builder = builder_with_odometry()
    for time_s in (1.52, 1.61, 1.72, 1.80, 1.90):
        builder.add_frame("front", stamp(time_s), frame(time_s))
    observation = builder.newest()
    assert observation.t0_ns == stamp(1.90)
    assert shown(observation) == [161, 172, 180, 190]
    assert observation.frame_stamps_ns["front"].tolist() == [stamp(t) for t in (1.61, 1.72, 1.80, 1.90)]
    assert observation.repeated_frames == 0
    assert observation.history.speed_mps == pytest.approx(10)


@pytest.mark.parametrize("rate_hz, repeated", [(10, 0), (20, 0), (30, 0), (60, 0), (5, 2)])
def test_frames_are_chosen_in_time_at_any_rate(rate_hz, repeated):
    builder = builder_with_odometry()
    for time_s in np.arange(0, 2.001, 1 / rate_hz):
        builder.add_frame("front", stamp(time_s), frame(time_s))
    observation = builder.newest()
    apart_s = (observation.t0_ns - observation.frame_stamps_ns["front"]) / 1e9
    assert np.abs(apart_s - [0.3, 0.2, 0.1, 0.0]).max() <= (0.05 if not repeated else 0.1)
    assert observation.repeated_frames == repeated


def test_each_set_makes_one_observation():
    builder = builder_with_odometry()
    builder.add_frame("front", stamp(1.8), frame(1.8))
    assert isinstance(builder.newest(), Observation)
    assert builder.newest().reason is Reason.NOTHING_NEW
    builder.add_odometry(stamp(2.02), [20.2, 0, 0], [0, 0, 0, 1])
    assert builder.newest().reason is Reason.NOTHING_NEW
    builder.add_frame("front", stamp(1.9), frame(1.9))
    assert builder.newest().t0_ns == stamp(1.9)


def test_missing_frames_are_repeated_and_counted_or_refused():
    for repeat, times_s, expected, count in [
        (True, (1.9,), [190] * 4, 3), (True, (1.6, 1.9), [160, 160, 190, 190], 2),
        (False, (1.6, 1.9), None, None)]:
        builder = builder_with_odometry(repeat_missing=repeat)
        for time_s in times_s:
            builder.add_frame("front", stamp(time_s), frame(time_s))
        answer = builder.newest()
        if repeat:
            assert (shown(answer), answer.repeated_frames) == (expected, count)
        else:
            assert answer.reason is Reason.MISSING_FRAMES


def test_t0_needs_every_camera_and_frames_close_together():
    builder = builder_with_odometry(("left", "front"))
    assert builder.newest().reason is Reason.NO_FRAMES
    builder.add_frame("front", stamp(1.70), frame(1.70))
    refusal = builder.newest()
    assert refusal.reason is Reason.CAMERA_MISSING and "left" in refusal.text
    builder.add_frame("left", stamp(1.80), frame(1.80))
    refusal = builder.newest()
    assert refusal.reason is Reason.NOT_SYNCHRONISED and "front is 0.100 s behind" in refusal.text
    builder.add_frame("front", stamp(1.82), frame(1.82))
    builder.add_frame("left", stamp(1.90), frame(1.90))
    observation = builder.newest()
    assert observation.t0_ns == stamp(1.82)
    assert list(observation.frames) == ["left", "front"]
    assert shown(observation, "left")[-1] == 180 and shown(observation, "front")[-1] == 182


def test_a_dead_camera_stops_observations():
    builder = builder_with_odometry(("left", "front"))
    for time_s in np.arange(1.5, 2.0, 0.1):
        builder.add_frame("front", stamp(time_s), frame(time_s))
        if time_s < 1.65:
            builder.add_frame("left", stamp(time_s), frame(time_s))
    observation = builder.newest()
    assert observation.t0_ns == stamp(1.6)
    assert builder.newest().reason is Reason.NOTHING_NEW


def test_waiting_for_odometry_serves_an_older_set_meanwhile():
    builder = builder_with_odometry(until_s=1.701)
    builder.add_frame("front", stamp(1.75), frame(1.75))
    builder.add_frame("front", stamp(1.85), frame(1.85))
    assert builder.newest().t0_ns == stamp(1.75)
    assert builder.newest().reason is Reason.NOT_YET
    add_odometry(builder, 1.75, 1.951)
    assert builder.newest().t0_ns == stamp(1.85)


def test_history_refusals_come_through():
    builder = ObservationBuilder(["front"])
    builder.add_frame("front", stamp(1.0), frame(1.0))
    assert builder.newest().reason is Reason.NO_ODOMETRY
    add_odometry(builder, 0, 1.001)
    assert builder.newest().reason is Reason.TOO_SHORT


def test_disorder_duplicates_and_latecomers():
    builder = builder_with_odometry()
    for time_s in (1.6, 1.8, 1.7, 1.9):
        assert builder.add_frame("front", stamp(time_s), frame(time_s)) is None
    assert builder.add_frame("front", stamp(1.8), frame(0.0)) is Reason.DUPLICATE_FRAME
    assert builder.add_frame("front", stamp(1.0), frame(1.0)) is Reason.TOO_OLD
    assert shown(builder.newest()) == [160, 170, 180, 190]
    assert builder.rejected == {"DUPLICATE_FRAME": 1, "TOO_OLD": 1}
    assert builder.frames_received == 6


@pytest.mark.parametrize("first", ["frame", "odometry"])
def test_a_clock_going_back_starts_everything_anew(first):
    builder = ObservationBuilder(["front"])
    add_odometry(builder, 100, 102.001)
    builder.add_frame("front", stamp(102), frame(2))
    assert builder.newest().t0_ns == stamp(102)
    if first == "frame":
        assert builder.add_frame("front", stamp(0), frame(0)) is Reason.CLOCK_JUMP
    add_odometry(builder, 0.0, 1.801)
    for time_s in (1.5, 1.6, 1.7, 1.8):
        builder.add_frame("front", stamp(time_s), frame(time_s))
    observation = builder.newest()
    assert observation.t0_ns == stamp(1.8) and shown(observation) == [150, 160, 170, 180]
    assert builder.rejected == {"CLOCK_JUMP": 1}


def test_a_camera_that_lags_behind_the_other_is_no_clock_jump():
    builder = builder_with_odometry(("front", "tele"))
    for k in range(20):
        assert builder.add_frame("front", stamp(0.1 * k), frame(0.1 * k)) is None
    assert builder.add_frame("tele", stamp(0.1), frame(0.1)) is None
    assert builder.add_frame("tele", stamp(0.2), frame(0.2)) is None
    assert builder.rejected == {}


def test_a_changed_image_size_restarts_that_camera_only():
    builder = builder_with_odometry(("left", "front"))
    for time_s in (1.6, 1.7, 1.8):
        builder.add_frame("left", stamp(time_s), frame(time_s))
        builder.add_frame("front", stamp(time_s), frame(time_s))
    builder.add_frame("left", stamp(1.9), frame(1.9))
    assert builder.add_frame("front", stamp(1.9), frame(1.9, (4, 6, 3))) is Reason.SIZE_CHANGED
    observation = builder.newest()
    assert observation.frames["front"].shape == (4, 4, 6, 3)
    assert observation.frames["left"].shape == (4, 2, 3, 3)
    assert shown(observation, "front") == [190] * 4 and shown(observation, "left") == [160, 170, 180, 190]
    assert observation.repeated_frames == 3


def test_only_ring_frames_are_kept():
    builder = ObservationBuilder(["front"])
    for index in range(3000):
        builder.add_frame("front", stamp(index / 30), frame(0))
    assert len(builder._rings["front"]) <= 0.45 * 30 + 1


def test_unreadable_images_are_counted_with_the_rest():
    builder = builder_with_odometry()
    builder.reject_frame("SHORT_DATA")
    builder.add_odometry(stamp(2.1), [np.nan] * 3, [0, 0, 0, 1])
    assert builder.rejected == {"NOT_FINITE": 1, "SHORT_DATA": 1}


def test_a_held_picture_counts_as_repeated_and_ages():
    builder = builder_with_odometry(until_s=3.001)
    builder.add_frame("front", stamp(0.0), frame(0.0))
    assert builder.newest().reason is Reason.TOO_SHORT
    refusal = builder.held_at(stamp(2.0), 0.2)
    assert refusal.reason is Reason.STALE_FRAMES and "2.00 s old" in refusal.text
    observation = builder.held_at(stamp(2.0), 10.0)
    assert observation.t0_ns == stamp(2.0) and observation.repeated_frames == 4
    assert observation.frame_stamps_ns["front"].tolist() == [stamp(0.0)] * 4


def test_an_unknown_camera_is_an_error():
    with pytest.raises(KeyError):
        ObservationBuilder(["front"]).add_frame("rear", stamp(0), frame(0))
