"""A drive that is played over and over: its motion never jumps, its pictures begin anew with each lap."""

import numpy as np
import pytest

from specdrive_ros.shapes import FRAME_STEP_S, PICTURE_SIZE
from specdrive_ros.sim.recorded_drive import STEP_S, RecordedDrive, record_drive


@pytest.fixture(scope="module")
def drive():
    return record_drive("cruise", 0, "rgb_front", 2.0)


def test_a_recording_has_a_picture_every_frame_and_ends_where_the_next_lap_begins(drive):
    assert drive.pictures.shape == (20, *PICTURE_SIZE, 3) and drive.pictures.dtype == np.uint8
    assert drive.states.shape == (41, 4) and drive.lap_s == pytest.approx(2.0)
    assert len(np.unique(drive.pictures.reshape(20, -1), axis=0)) == 20


def test_the_motion_goes_on_over_laps(drive):
    times = np.arange(0, 3.5 * drive.lap_s, STEP_S / 2)
    motions = [drive.motion(float(time_s)) for time_s in times]
    speeds = [np.hypot(b.x - a.x, b.y - a.y) / (STEP_S / 2) for a, b in zip(motions, motions[1:])]
    assert max(abs(speed - motion.speed_mps) for speed, motion in zip(speeds, motions)) < 0.3
    assert max(abs(b.yaw - a.yaw) for a, b in zip(motions, motions[1:])) < 0.02


def test_a_lap_that_turns_is_turned_as_a_whole():
    """A quarter of a circle, four times, is a circle."""
    turned = np.linspace(0, np.pi / 2, 21)
    states = np.stack([10 * np.sin(turned), 10 - 10 * np.cos(turned), turned, np.full(21, 5.0)], axis=1)
    drive = RecordedDrive(np.zeros((10, 2, 2, 3), np.uint8), states)
    ends = [drive.motion(lap * drive.lap_s) for lap in range(5)]
    expected = [(0, 0), (10, 10), (0, 20), (-10, 10), (0, 0)]
    np.testing.assert_allclose([(end.x, end.y) for end in ends], expected, atol=1e-9)
    assert ends[4].yaw == pytest.approx(2 * np.pi)


def test_pictures_follow_the_time(drive):
    for number, time_s in [(0, 0.01), (7, 7.5 * FRAME_STEP_S), (0, drive.lap_s + 0.01), (19, 2 * drive.lap_s - 0.01)]:
        np.testing.assert_array_equal(drive.picture(time_s), drive.pictures[number])


def test_a_world_that_ends_ends_the_lap():
    drive = record_drive("cruise", 0, "rgb_front", 60.0)
    assert 5 < drive.lap_s < 40 and len(drive.pictures) == pytest.approx(drive.lap_s / FRAME_STEP_S, abs=1)
