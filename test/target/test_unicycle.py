import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specdrive_ros.geometry import rotation_about_z, yaw_from_matrix
from specdrive_ros.target.config import ActionSpaceConfig
from specdrive_ros.target.unicycle import (
    action_to_trajectory,
    denormalize,
    normalize,
    speed_at_t0,
    trajectory_to_action,
    within_bounds,
    without_rolling_back,
)

SPACE = ActionSpaceConfig()


def straight_history(speed: float, poses: int = 16) -> tuple[np.ndarray, np.ndarray]:
    xyz = np.zeros((poses, 3))
    xyz[:, 0] = (np.arange(poses) - poses + 1) * speed * SPACE.dt
    return xyz, np.tile(np.eye(3), (poses, 1, 1))


def constant(acceleration: float, curvature: float) -> np.ndarray:
    return normalize(SPACE, np.tile([acceleration, curvature], (64, 1)))


def test_standing_still_stays_where_it_is():
    rolled = action_to_trajectory(SPACE, constant(0, 0.1), 0.0, z=1.5)
    np.testing.assert_allclose(rolled.xyz, np.tile([0, 0, 1.5], (64, 1)), atol=1e-12)
    np.testing.assert_allclose(rolled.speed_mps, 0, atol=1e-12)


def test_constant_acceleration_follows_the_textbook():
    rolled, time = action_to_trajectory(SPACE, constant(1.0, 0.0), 3.0), np.arange(1, 65) * 0.1
    np.testing.assert_allclose(rolled.xyz[:, 0], 3 * time + time**2 / 2, atol=1e-9)
    np.testing.assert_allclose(rolled.speed_mps, 3 + time, atol=1e-9)
    np.testing.assert_allclose(rolled.xyz[:, 1:], 0, atol=1e-9)


def test_positive_curvature_turns_left_on_a_circle():
    rolled = action_to_trajectory(SPACE, constant(0.0, 0.1), 5.0)
    radius = np.hypot(rolled.xyz[:, 0], rolled.xyz[:, 1] - 10)
    np.testing.assert_allclose(radius, 10, atol=0.01)
    np.testing.assert_allclose(rolled.yaw, 0.05 * np.arange(1, 65), atol=1e-9)
    np.testing.assert_allclose(yaw_from_matrix(rolled.rotation[:20]), rolled.yaw[:20])


def test_braking_is_not_clipped_at_rest():
    assert action_to_trajectory(SPACE, constant(-3.0, 0.0), 10.0).speed_mps[-1] == pytest.approx(10 - 3 * 6.4)


def test_without_rolling_back_it_waits_where_it_stops():
    """3 m/s braked at 2 m/s² stop after 1.5 s and 2.25 m, and go no further."""
    rolled = action_to_trajectory(SPACE, without_rolling_back(SPACE, constant(-2.0, 0.1), 3.0), 3.0)
    np.testing.assert_allclose(rolled.speed_mps, np.maximum(3 - 0.2 * np.arange(1, 65), 0), atol=1e-9)
    np.testing.assert_allclose(rolled.acceleration_mps2, np.where(np.arange(64) < 15, -2.0, 0.0), atol=1e-9)
    np.testing.assert_allclose(rolled.yaw[14:], 0.225, atol=1e-9)  # 0.1 / m along 2.25 m
    assert np.hypot(*rolled.xyz[-1, :2]) == pytest.approx(2.25, abs=0.01)


def test_a_step_that_would_stop_and_roll_back_only_stops():
    rolled = action_to_trajectory(SPACE, without_rolling_back(SPACE, constant(-2.0, 0.0), 0.1), 0.1)
    np.testing.assert_allclose(rolled.speed_mps, 0, atol=1e-12)
    assert rolled.acceleration_mps2[0] == pytest.approx(-1.0) and rolled.xyz[-1, 0] == pytest.approx(0.005)


def test_after_a_wait_it_sets_off_again():
    action = constant(-2.0, 0.0)
    action[32:] = constant(1.0, 0.0)[32:]
    rolled = action_to_trajectory(SPACE, without_rolling_back(SPACE, action, 1.0), 1.0)
    np.testing.assert_allclose(rolled.speed_mps[32:], 0.1 * np.arange(1, 33), atol=1e-9)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_who_drives_forwards_anyway_is_left_alone_and_nobody_rolls_back_faster(seed):
    rng = np.random.default_rng(seed)
    action, v0 = normalize(SPACE, rng.normal(0, 2, (5, 64, 2))), rng.normal(2, 3, 5)
    held = without_rolling_back(SPACE, action, v0)
    speed = action_to_trajectory(SPACE, held, v0).speed_mps
    assert (speed >= np.minimum(v0, 0)[:, None] - 1e-9).all()
    np.testing.assert_allclose(held[..., 1], action[..., 1], atol=1e-12)
    for one, given_one, first, held_speed in zip(held, action, v0, speed, strict=True):
        np.testing.assert_allclose(without_rolling_back(SPACE, given_one, first), one, atol=1e-12)
        free = action_to_trajectory(SPACE, given_one, first).speed_mps
        if (free >= min(first, 0)).all():
            np.testing.assert_allclose(held_speed, free, atol=1e-9)


@settings(max_examples=50, deadline=None)
@given(st.floats(-3, 30))
def test_speed_of_a_straight_history(speed):
    assert speed_at_t0(SPACE, *straight_history(speed)) == pytest.approx(speed, rel=1e-4, abs=1e-9)


knots = st.lists(st.tuples(st.floats(-2, 2), st.floats(-0.05, 0.05)), min_size=5, max_size=5)


@settings(max_examples=40, deadline=None)
@given(st.floats(8, 25), knots)
def test_a_smooth_drive_survives_the_way_to_actions_and_back(speed, knots):
    """The least squares smooth, so a path through given knots comes back near, not exactly."""
    at, spread = np.arange(64), np.linspace(0, 63, 5)
    accelerations, curvatures = np.array(knots).T
    physical = np.stack([np.interp(at, spread, accelerations), np.interp(at, spread, curvatures)], axis=-1)
    drive = action_to_trajectory(SPACE, normalize(SPACE, physical), speed)
    fit = trajectory_to_action(SPACE, *straight_history(speed), drive.xyz, drive.rotation)
    back = action_to_trajectory(SPACE, fit.action, fit.v0)
    assert np.linalg.norm(back.xyz - drive.xyz, axis=-1).max() < 0.5
    assert np.abs(np.median(fit.physical[:, 0] - physical[:, 0])) < 0.3


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=20, deadline=None)
def test_leading_dimensions_do_not_mix(seed):
    random = np.random.default_rng(seed)
    action, v0 = random.normal(size=(2, 3, 64, 2)), random.uniform(0, 20, (2, 3))
    together = action_to_trajectory(SPACE, action, v0)
    alone = action_to_trajectory(SPACE, action[1, 2], v0[1, 2])
    np.testing.assert_allclose(together.xyz[1, 2], alone.xyz)
    history = [np.broadcast_to(part, (2, 3, *part.shape)) for part in straight_history(8.0)]
    fit = trajectory_to_action(SPACE, *history, together.xyz, together.rotation)
    one = trajectory_to_action(SPACE, history[0][1, 2], history[1][1, 2], alone.xyz, alone.rotation)
    np.testing.assert_allclose(fit.action[1, 2], one.action, atol=1e-9)


def test_a_turn_past_half_a_circle_is_unwrapped():
    drive = action_to_trajectory(SPACE, constant(0.0, 0.12), 6.0)
    fit = trajectory_to_action(SPACE, *straight_history(6.0), drive.xyz, drive.rotation)
    assert drive.yaw[-1] > np.pi
    np.testing.assert_allclose(fit.physical[:, 1], 0.12, atol=2e-3)


def test_bounds_are_reported_and_not_imposed():
    assert within_bounds(SPACE, constant(9.0, 0.3))
    assert not within_bounds(SPACE, constant(9.9, 0.0))
    assert not within_bounds(SPACE, constant(0.0, -0.34))


def test_normalisation_is_its_own_inverse():
    physical = np.array([[1.0, 0.02], [-4.0, -0.1]])
    np.testing.assert_allclose(denormalize(SPACE, normalize(SPACE, physical)), physical)


def test_rotations_are_yaw_only():
    np.testing.assert_allclose(rotation_about_z(np.pi / 2) @ [1, 0, 0], [0, 1, 0], atol=1e-12)
