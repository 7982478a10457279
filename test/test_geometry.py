"""Rotations against SciPy's."""

import numpy as np
import pytest

from specdrive_ros import geometry

rotation_of = pytest.importorskip("scipy.spatial.transform").Rotation


@pytest.fixture
def quaternions():
    values = np.random.default_rng(0).normal(size=(50, 4))
    return values / np.linalg.norm(values, axis=1, keepdims=True)


def test_matrix_and_yaw_are_scipys(quaternions):
    reference = rotation_of.from_quat(quaternions)
    answer = geometry.matrix_from_quaternion(quaternions)
    np.testing.assert_allclose(answer, reference.as_matrix(), atol=1e-12)
    np.testing.assert_allclose(
        geometry.yaw_from_quaternion(quaternions), reference.as_euler("ZYX")[:, 0], atol=1e-9)


@pytest.mark.parametrize("fraction", [-0.5, 0.0, 0.3, 1.0, 1.7])
def test_slerp_turns_about_one_axis_at_constant_rate(quaternions, fraction):
    start, end = quaternions[:25], quaternions[25:]
    turn = (rotation_of.from_quat(start).inv() * rotation_of.from_quat(end)).as_rotvec()
    expected = rotation_of.from_quat(start) * rotation_of.from_rotvec(fraction * turn)
    answer = rotation_of.from_quat(geometry.slerp(start, end, np.full(25, fraction)))
    assert np.max((answer.inv() * expected).magnitude()) < 1e-7


def test_slerp_of_equal_and_opposite_signs_stays(quaternions):
    for end in (quaternions, -quaternions):
        answer = geometry.slerp(quaternions, end, np.full(50, 0.5))
        np.testing.assert_allclose(np.abs(np.sum(answer * quaternions, axis=1)), 1, atol=1e-12)


def test_yaw_round_trip_and_wrap():
    yaw = np.linspace(-3.1, 3.1, 21)
    answer = geometry.yaw_from_quaternion(geometry.quaternion_from_yaw(yaw))
    np.testing.assert_allclose(answer, yaw, atol=1e-12)
    np.testing.assert_allclose(geometry.wrap_angle(yaw + 4 * np.pi), yaw, atol=1e-12)
    assert geometry.wrap_angle(-np.pi) == pytest.approx(np.pi)


def test_frames_are_inverse(quaternions):
    rotation = geometry.matrix_from_quaternion(quaternions[0])
    points = np.random.default_rng(1).normal(size=(4, 5, 3))
    inside = geometry.in_frame(points, [1, 2, 3], rotation)
    np.testing.assert_allclose(geometry.out_of_frame(inside, [1, 2, 3], rotation), points, atol=1e-12)


def test_a_point_ahead_of_a_body_facing_left_is_left_in_the_world():
    rotation = geometry.matrix_from_quaternion(geometry.quaternion_from_yaw(np.pi / 2))
    np.testing.assert_allclose(geometry.out_of_frame([2, 0, 0], [10, 0, 0], rotation), [10, 2, 0], atol=1e-12)
