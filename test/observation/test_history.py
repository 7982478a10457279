"""The history against a drive known in closed form: a circle at constant speed and turn rate."""

import numpy as np
import pytest

from specdrive_ros.geometry import matrix_from_quaternion, quaternion_from_yaw
from specdrive_ros.observation.history import OdometryHistory
from specdrive_ros.observation.observation import EgoHistory
from specdrive_ros.observation.refusal import Reason
from specdrive_ros.shapes import HISTORY_TIMES_S

START_NS = 1_700_000_000_123_456_789
SPEED_MPS, YAW_RATE = 8.0, 0.2


def pose(time_s):
    yaw = 2.5 + YAW_RATE * time_s  # passes pi on the way
    radius = SPEED_MPS / YAW_RATE
    return np.array([500_000 + radius * np.sin(yaw), -radius * np.cos(yaw), 30.0]), quaternion_from_yaw(yaw)


def stamp(time_s):
    return START_NS + int(round(time_s * 1e9))


def filled(times_s, speed=SPEED_MPS, **limits):
    history = OdometryHistory(**limits)
    for time_s in times_s:
        history.add(stamp(time_s), *pose(time_s), speed)
    return history


def truth(t0_s):
    origin, quaternion = pose(t0_s)
    ego = matrix_from_quaternion(quaternion)
    poses = [pose(t0_s + offset) for offset in HISTORY_TIMES_S]
    xyz = np.array([(p - origin) @ ego for p, _ in poses])
    return xyz, np.array([ego.T @ matrix_from_quaternion(q) for _, q in poses])


def assert_true(answer, t0_s, tolerance_m):
    assert isinstance(answer, EgoHistory), answer
    xyz, rotation = truth(t0_s)
    np.testing.assert_allclose(answer.xyz, xyz, atol=tolerance_m)
    np.testing.assert_allclose(answer.rotation, rotation, atol=2e-3)
    assert np.all(answer.xyz[-1] == 0) and np.array_equal(answer.rotation[-1], np.eye(3))


@pytest.mark.parametrize("rate_hz", [5, 7.3, 10, 20, 50, 100, 200])
def test_history_is_right_at_any_rate(rate_hz):
    history = filled(np.arange(0, 2.5, 1 / rate_hz))
    chord_m = SPEED_MPS * YAW_RATE / rate_hz**2 / 8  # a chord's distance from its arc
    for t0_s in (1.713, 1.9, 2.2):
        answer = history.at(stamp(t0_s))
        assert_true(answer, t0_s, 1e-6 + 2.5 * chord_m)
        assert answer.speed_mps == pytest.approx(SPEED_MPS)


def test_history_is_right_with_jitter_disorder_and_duplicates():
    generator = np.random.default_rng(3)
    times_s = np.arange(0, 2.6, 0.05) + generator.uniform(-0.02, 0.02, 52)
    shuffled = times_s[np.argsort(np.arange(52) + generator.uniform(0, 4, 52))]
    history = filled([*shuffled, *times_s[35:45]])
    assert history.out_of_order > 5
    assert history.rejected == {Reason.DUPLICATE_ODOMETRY: 10}
    assert_true(history.at(stamp(2.3)), 2.3, 5e-3)


def test_count_of_samples_does_not_matter_only_time_does():
    slow, fast = filled(np.arange(0, 2.01, 0.1)), filled(np.arange(0, 2.01, 0.01))
    np.testing.assert_allclose(slow.at(stamp(2.0)).xyz, fast.at(stamp(2.0)).xyz, atol=1e-6)


def test_a_pitched_and_rolled_body_is_turned_shortest():
    """q and -q are one rotation; interpolation between them must not spin."""
    history = OdometryHistory()
    for index in range(40):
        sign = -1 if index % 2 else 1
        history.add(stamp(index / 20), [index * 0.5, 0, 0], sign * np.array([0.1, 0.2, 0.3, 0.9]))
    rotation = history.at(stamp(1.925)).rotation
    np.testing.assert_allclose(rotation, np.broadcast_to(np.eye(3), (16, 3, 3)), atol=1e-6)


def test_extrapolates_a_little_and_refuses_more():
    history = filled(np.arange(0, 2.001, 0.02))
    assert_true(history.at(stamp(2.09)), 2.09, 1e-3)
    refusal = history.at(stamp(2.2))
    assert refusal.reason is Reason.NOT_YET and "0.20 s older" in refusal.text


def test_speed_comes_from_positions_when_the_twist_has_none():
    for speed in (None, float("nan")):
        answer = filled(np.arange(0, 2.001, 0.05), speed).at(stamp(2.0))
        assert answer.speed_mps == pytest.approx(SPEED_MPS, abs=0.02)


def test_reversing_has_a_negative_speed_either_way():
    history = OdometryHistory()
    for index in range(40):
        history.add(stamp(index / 20), [-index * 0.1, 0, 0], [0, 0, 0, 1])
    assert history.at(stamp(1.9)).speed_mps == pytest.approx(-2.0)


@pytest.mark.parametrize("times_s, t0_s, reason", [
    ([], 2.0, Reason.NO_ODOMETRY),
    ([2.0], 2.0, Reason.TOO_SHORT),
    (np.arange(0.6, 2.01, 0.05), 2.0, Reason.TOO_SHORT),
    (np.arange(1.0, 3.01, 0.05), 0.5, Reason.TOO_SHORT),
    ([*np.arange(0, 1.0, 0.05), *np.arange(1.6, 2.5, 0.05)], 2.4, Reason.GAP),
    (np.arange(0, 1.5, 0.05), 2.0, Reason.NOT_YET),
])
def test_refuses_with_its_reason(times_s, t0_s, reason):
    refusal = filled(times_s).at(stamp(t0_s))
    assert refusal.reason is reason
    assert refusal.text and "\n" not in refusal.text


def test_a_gap_that_is_over_does_not_matter():
    history = filled([*np.arange(0, 0.5, 0.05), *np.arange(1.2, 3.1, 0.05)])
    assert_true(history.at(stamp(3.0)), 3.0, 2e-3)


def test_bad_samples_are_refused_at_the_door_and_leave_the_history():
    history = filled(np.arange(0, 2.001, 0.05))
    before = history.at(stamp(2.0))
    good_xyz, good_quaternion = pose(1.0)
    assert history.add(stamp(1.01), [np.nan, 0, 0], good_quaternion) is Reason.NOT_FINITE
    assert history.add(stamp(1.01), good_xyz, [0, 0, np.inf, 1]) is Reason.NOT_FINITE
    assert history.add(stamp(1.01), [1e300, 0, 0], good_quaternion) is Reason.NOT_FINITE
    assert history.add(stamp(1.01), good_xyz, [0, 0, 0, 0]) is Reason.ZERO_QUATERNION
    assert history.rejected == {Reason.NOT_FINITE: 3, Reason.ZERO_QUATERNION: 1}
    np.testing.assert_array_equal(history.at(stamp(2.0)).xyz, before.xyz)


def test_an_unnormalised_quaternion_is_only_a_scale():
    history = OdometryHistory()
    for time_s in np.arange(0, 2.001, 0.05):
        xyz, quaternion = pose(time_s)
        history.add(stamp(time_s), xyz, 0.02 * quaternion)
    assert_true(history.at(stamp(2.0)), 2.0, 2e-3)


def test_clock_going_back_starts_anew_and_says_so():
    history = filled(np.arange(10, 12.001, 0.05))
    assert history.add(stamp(0.0), *pose(0.0)) is Reason.CLOCK_JUMP
    assert history.at(stamp(0.0)).reason is Reason.CLOCK_JUMP
    for time_s in np.arange(0.05, 2.001, 0.05):
        assert history.add(stamp(time_s), *pose(time_s)) is None
    assert_true(history.at(stamp(2.0)), 2.0, 2e-3)
    assert history.at(stamp(1.0)).reason is Reason.TOO_SHORT


def test_one_stamp_from_the_far_future_heals():
    history = filled(np.arange(0, 2.001, 0.05))
    history.add(stamp(1e6), *pose(2.0))
    assert history.at(stamp(2.0)).reason is Reason.TOO_SHORT
    for time_s in np.arange(2.05, 4.001, 0.05):
        history.add(stamp(time_s), *pose(time_s))
    assert_true(history.at(stamp(4.0)), 4.0, 2e-3)


def test_teleport_refuses_until_the_window_is_clean():
    history = OdometryHistory()
    reasons = []
    for index in range(100):
        xyz, quaternion = pose(index * 0.05)
        history.add(stamp(index * 0.05), xyz + (300 if index >= 50 else 0), quaternion)
        answer = history.at(stamp(index * 0.05))
        reasons.append(getattr(answer, "reason", None))
    assert reasons[31:50] == [None] * 19
    assert reasons[50:79] == [Reason.TELEPORT] * 29
    assert reasons[81:] == [None] * 19


def test_memory_is_bounded_in_time():
    history = filled(np.arange(0, 10, 0.005))
    assert len(history) == 3.0 / 0.005 + 1


@pytest.mark.parametrize("name", ["comma2k19_drive_mcap"])
def test_real_jitter_stays_within_centimetres_of_every_second_sample(name, recorded_odometry):
    """Leave every second real sample out; the history from the rest must still meet them."""
    stamps, xyz, quaternions = recorded_odometry(name)
    whole, half = OdometryHistory(), OdometryHistory()
    for index in range(100):
        whole.add(stamps[index], xyz[index], quaternions[index])
        if index % 2 == 0:
            half.add(stamps[index], xyz[index], quaternions[index])
    difference = whole.at(stamps[98]).xyz - half.at(stamps[98]).xyz
    assert 0 < np.abs(difference).max() < 0.05
