"""ADE and FDE against drives known in closed form."""

import numpy as np
import pytest

from specdrive_ros.evaluation.displacement import (
    OdometryTrace,
    constant_turn_rate_and_velocity,
    constant_velocity,
    displacement_summary,
    displacements,
)
from specdrive_ros.geometry import quaternion_from_yaw
from specdrive_ros.observation.observation import EgoHistory
from specdrive_ros.shapes import HISTORY_TIMES_S, WAYPOINT_TIMES_S

START_NS = 1_500_000_000_000_000_000


def ns(time_s):
    return START_NS + int(round(time_s * 1e9))


def straight_trace(times_s, speed=10.0, yaw=0.7):
    trace = OdometryTrace()
    for time_s in times_s:
        xyz = speed * time_s * np.array([np.cos(yaw), np.sin(yaw), 0])
        trace.add(ns(time_s), xyz, quaternion_from_yaw(yaw))
    return trace


def test_the_future_is_in_the_ego_frame_at_t0_and_resampled_in_time():
    future = straight_trace(np.arange(0, 10, 0.037)).future(ns(1.234))
    assert future.shape == (64, 3)
    np.testing.assert_allclose(future, WAYPOINT_TIMES_S[:, None] * [10, 0, 0], atol=1e-6)


@pytest.mark.parametrize("times_s, known", [
    (np.arange(0, 4.001, 0.1), 20),
    ([*np.arange(0, 4.001, 0.1), *np.arange(4.8, 12, 0.1)], 20),
    ([0, 1, 2], 0),
])
def test_the_future_ends_with_the_odometry_or_at_a_gap(times_s, known):
    assert len(straight_trace(times_s).future(ns(2.0))) == known


def test_the_future_ends_at_a_leap():
    trace = straight_trace(np.arange(0, 3.001, 0.1))
    for time_s in np.arange(3.1, 10, 0.1):
        trace.add(ns(time_s), [500 + 10 * time_s, 0, 0], [0, 0, 0, 1])
    assert len(trace.future(ns(2.0))) == 10


def test_a_repeated_stamp_replaces_the_sample():
    trace = straight_trace([0, 1])
    trace.add(ns(1), [1, 2, 3], [0, 0, 0, 1])
    assert len(trace) == 2
    np.testing.assert_allclose(trace.pose_at(ns(1))[0], [1, 2, 3])


def history_of(velocity_in_ego, speed):
    xyz = HISTORY_TIMES_S[:, None] * np.asarray(velocity_in_ego, float)
    return EgoHistory(xyz, np.broadcast_to(np.eye(3), (16, 3, 3)), speed)


@pytest.mark.parametrize("velocity, speed, end", [
    ((10, 0, 0), 10, (64, 0)), ((3, 4, 0), 5, (19.2, 25.6)), ((-2, 0, 0), -2, (-12.8, 0)),
    ((0, 0, 0), 0, (0, 0))])
def test_constant_velocity_goes_on_where_the_ego_was_moving(velocity, speed, end):
    np.testing.assert_allclose(constant_velocity(history_of(velocity, speed))[-1, :2], end, atol=1e-9)


def turning_history(turn_rate, speed, last_steps=16):
    """On an arc up to t0; turning only in the last steps."""
    times = np.maximum(HISTORY_TIMES_S, -0.1 * last_steps)
    yaw = turn_rate * times
    cos, sin, zero = np.cos(yaw), np.sin(yaw), np.zeros(16)
    rows = np.stack([cos, -sin, zero], 1), np.stack([sin, cos, zero], 1), np.tile([0, 0, 1.0], (16, 1))
    rotation = np.stack(rows, 1)
    return EgoHistory(np.zeros((16, 3)), rotation, speed)


@pytest.mark.parametrize("turn_rate, speed", [(0.3, 8.0), (-0.5, 5.0), (0.7, 12.0), (0.3, -2.0)])
def test_constant_turn_rate_goes_on_along_the_circle(turn_rate, speed):
    path = constant_turn_rate_and_velocity(turning_history(turn_rate, speed))
    radius, turned = speed / turn_rate, turn_rate * WAYPOINT_TIMES_S
    np.testing.assert_allclose(path[:, 0], radius * np.sin(turned), atol=1e-9)
    np.testing.assert_allclose(path[:, 1], radius * (1 - np.cos(turned)), atol=1e-9)


@pytest.mark.parametrize("turn_rate", [0.0, 1e-12])
def test_constant_turn_rate_without_a_turn_is_straight(turn_rate):
    path = constant_turn_rate_and_velocity(turning_history(turn_rate, 10.0))
    np.testing.assert_allclose(path, WAYPOINT_TIMES_S[:, None] * [10, 0, 0], atol=1e-6)


def test_the_turn_rate_is_that_of_the_last_half_second_and_standing_goes_nowhere():
    long, short = (turning_history(0.4, 10.0, steps) for steps in (16, 5))
    np.testing.assert_allclose(constant_turn_rate_and_velocity(long), constant_turn_rate_and_velocity(short), atol=1e-9)
    assert not constant_turn_rate_and_velocity(turning_history(0.4, 0.0)).any()


def test_summary_counts_each_horizon_by_the_future_it_needs():
    drifting = 0.1 * np.arange(1, 65)  # metres of error at each waypoint
    ours, baseline = [drifting, drifting[:35] * 3, drifting[:4]], [drifting * 2, drifting[:35], drifting[:4]]
    summary = displacement_summary(ours, baseline)
    assert summary["evaluated_at"] == {"1s": 2, "3s": 2, "6.4s": 1} and summary["evaluated"] == 2
    assert list(summary["ade_m"].values()) == pytest.approx([1.1, 3.1, 3.25])
    assert list(summary["fde_m"].values()) == pytest.approx([2, 6, 6.4])
    assert summary["constant_velocity_ade_m"]["6.4s"] == pytest.approx(6.5)


def test_nothing_evaluated_is_null_not_zero():
    summary = displacement_summary([], [])
    assert summary["ade_m"] == {"1s": None, "3s": None, "6.4s": None} and summary["evaluated"] == 0


def test_displacement_is_in_the_ground_plane():
    plan = np.zeros((64, 3))
    np.testing.assert_allclose(displacements(plan, np.array([[3.0, 4.0, 9.0]])), [5.0])
