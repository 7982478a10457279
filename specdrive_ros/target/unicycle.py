"""The unicycle action space: accelerations and curvatures to a trajectory, and back by least squares.

NumPy float64 throughout, any leading dimensions. Poses are in the ego frame at t0 (x forward, y left, z up); the
rollout starts at the origin with heading 0 whatever the history ends with; only its last height is kept. Nothing is
clipped: speed may become negative; use `within_bounds` to check.
"""

from dataclasses import dataclass

import numpy as np

from specdrive_ros.geometry import rotation_about_z, yaw_from_matrix
from specdrive_ros.shapes import ACCELERATION, CURVATURE
from specdrive_ros.target.config import ActionSpaceConfig


@dataclass(frozen=True)
class Trajectory:
    """W waypoints, the first one step after t0, and the motion that leads there.

    xyz:                [..., W, 3] metres
    yaw:                [..., W] radians, not wrapped
    speed_mps:          [..., W] signed along the heading, at the waypoints
    acceleration_mps2:  [..., W] during the step that ends at the waypoint
    curvature_per_m:    [..., W] the same, left positive
    """

    xyz: np.ndarray
    yaw: np.ndarray
    speed_mps: np.ndarray
    acceleration_mps2: np.ndarray
    curvature_per_m: np.ndarray

    @property
    def rotation(self) -> np.ndarray:
        """[..., W, 3, 3] rotation matrices of the yaw."""
        return rotation_about_z(self.yaw)


@dataclass(frozen=True)
class FittedAction:
    """The result of the inverse.

    action:     [..., W, 2] in the network's units
    physical:   [..., W, 2] the same in m/s² and 1/m
    v0:         [...] m/s at t0
    heading:    [..., W + 1] radians at t0 and the waypoints
    speed_mps:  [..., W + 1] the same
    """

    action: np.ndarray
    physical: np.ndarray
    v0: np.ndarray
    heading: np.ndarray
    speed_mps: np.ndarray


def normalize(space: ActionSpaceConfig, physical: np.ndarray) -> np.ndarray:
    """[..., 2] in m/s² and 1/m -> the network's units."""
    return (np.asarray(physical, np.float64) - _mean(space)) / _deviation(space)


def denormalize(space: ActionSpaceConfig, action: np.ndarray) -> np.ndarray:
    """[..., 2] in the network's units -> m/s² and 1/m."""
    return np.asarray(action, np.float64) * _deviation(space) + _mean(space)


def within_bounds(space: ActionSpaceConfig, action: np.ndarray) -> np.ndarray:
    """[...] bool: whether every waypoint of an action [..., W, 2] in the network's units is within the bounds."""
    physical = denormalize(space, action)
    low = np.array([space.accel_bounds[0], space.curvature_bounds[0]])
    high = np.array([space.accel_bounds[1], space.curvature_bounds[1]])
    return np.all((physical >= low) & (physical <= high), axis=(-2, -1))


def action_to_trajectory(
    space: ActionSpaceConfig, action: np.ndarray, v0: np.ndarray, z: np.ndarray = 0.0
) -> Trajectory:
    """Rolls out an action [..., W, 2] in the network's units from speed v0 [...] in m/s, at height z [...].

    Acceleration is constant during a step; heading turns with the distance of the step; position integrates the
    velocities by the trapezoidal rule.
    """
    physical, dt = denormalize(space, action), space.dt
    acceleration, curvature = physical[..., ACCELERATION], physical[..., CURVATURE]
    speed = _cumulate(v0, acceleration * dt)
    heading = _cumulate(0.0, curvature * (speed[..., :-1] * dt + acceleration * dt**2 / 2))
    velocity = speed[..., None] * np.stack([np.cos(heading), np.sin(heading)], axis=-1)
    xy = np.cumsum((velocity[..., :-1, :] + velocity[..., 1:, :]) * dt / 2, axis=-2)
    height = np.broadcast_to(np.asarray(z, np.float64)[..., None, None], (*xy.shape[:-1], 1))
    return Trajectory(
        np.concatenate([xy, height], axis=-1), heading[..., 1:], speed[..., 1:], acceleration, curvature
    )


def without_rolling_back(space: ActionSpaceConfig, action: np.ndarray, v0: np.ndarray) -> np.ndarray:
    """An action [..., W, 2] in the network's units that waits at standstill where the given one, from speed v0 [...] in
    m/s, brakes on until it drives backwards. A car that already rolls backwards gets no faster at it."""
    physical = denormalize(space, action)
    first = np.asarray(v0, np.float64)[..., None]
    gained = np.cumsum(physical[..., ACCELERATION] * space.dt, axis=-1)
    # v' = max(v + a dt, slowest), step by step: v less what was gained is the most that any step so far has asked for
    offset = np.maximum(np.maximum.accumulate(np.minimum(first, 0.0) - gained, axis=-1), first)
    physical[..., ACCELERATION] = np.diff(gained + offset, prepend=first) / space.dt
    return normalize(space, physical)


def speed_at_t0(
    space: ActionSpaceConfig, history_xyz: np.ndarray, history_rotation: np.ndarray
) -> np.ndarray:
    """Speed [...] in m/s at the end of a history of positions [..., N, 3] and rotations [..., N, 3, 3]."""
    steps = np.diff(np.asarray(history_xyz, np.float64)[..., :2], axis=-2)
    return _fit_speed(space, steps, np.unwrap(yaw_from_matrix(history_rotation), axis=-1))[..., -1]


def trajectory_to_action(
    space: ActionSpaceConfig,
    history_xyz: np.ndarray,
    history_rotation: np.ndarray,
    future_xyz: np.ndarray,
    future_rotation: np.ndarray,
) -> FittedAction:
    """The smooth action whose rollout is closest to a future [..., W, 3], [..., W, 3, 3] after a history.

    Heading comes from the rotations and is 0 at t0; speed comes from the steps projected on the heading and begins
    with the history's; both are differentiated with penalties on roughness.
    """
    v0 = speed_at_t0(space, history_xyz, history_rotation)
    positions = np.concatenate([np.asarray(history_xyz, np.float64)[..., -1:, :], future_xyz], axis=-2)
    heading = smooth_heading(space, future_rotation)
    speed = _fit_speed(space, np.diff(positions[..., :2], axis=-2), heading, v0)
    acceleration = _fit_ratio(
        np.ones_like(speed[..., 1:]), np.diff(speed) / space.dt, space.a_lambda, space.a_ridge, space.dt
    )
    distance = speed[..., :-1] * space.dt + acceleration * space.dt**2 / 2
    curvature = _fit_ratio(distance, np.diff(heading), space.kappa_lambda, space.kappa_ridge, space.dt)
    physical = np.stack([acceleration, curvature], axis=-1)
    return FittedAction(normalize(space, physical), physical, v0, heading, speed)


def smooth_heading(space: ActionSpaceConfig, rotation: np.ndarray) -> np.ndarray:
    """Heading [..., W + 1] in radians, 0 at t0, smooth and close to the yaw of rotations [..., W, 3, 3]."""
    yaw = np.unwrap(yaw_from_matrix(rotation), axis=-1)
    count = yaw.shape[-1]
    normal = _roughness(count + 1, 3, space.theta_lambda, space.dt)[1:, 1:] + (
        1 + space.theta_ridge
    ) * np.eye(count)
    return np.concatenate([np.zeros_like(yaw[..., :1]), _solve(normal, yaw)], axis=-1)


def _fit_speed(
    space: ActionSpaceConfig, steps: np.ndarray, heading: np.ndarray, first: np.ndarray | None = None
) -> np.ndarray:
    """Speeds [..., N + 1] whose trapezoids along a heading [..., N + 1] give steps [..., N, 2] in metres.

    With `first` [...], the first speed is fixed to it, otherwise it is fitted too.
    """
    count = steps.shape[-2]
    direction = np.stack([np.cos(heading), np.sin(heading)], axis=-1)  # [..., N + 1, 2]
    before, after = direction[..., :-1, :], direction[..., 1:, :]  # of each step: it is (v before + v' after) dt / 2
    normal = np.zeros((*heading.shape, count + 1))
    each, step = np.arange(count + 1), np.arange(count)
    normal[..., each, each] = np.where((each == 0) | (each == count), 1.0, 2.0)  # directions have length 1
    normal[..., step, step + 1] = normal[..., step + 1, step] = (before * after).sum(-1)
    normal += _roughness(count + 1, 3, space.v_lambda, space.dt)
    target, moment = steps * 2 / space.dt, np.zeros(heading.shape)
    moment[..., :-1] = (before * target).sum(-1)
    moment[..., 1:] += (after * target).sum(-1)
    if first is None:
        return _solve(normal + space.v_ridge * np.eye(count + 1), moment)
    first = np.broadcast_to(np.asarray(first, np.float64), moment.shape[:-1])[..., None]
    rest = _solve(
        normal[..., 1:, 1:] + space.v_ridge * np.eye(count), moment[..., 1:] - normal[..., 1:, 0] * first
    )
    return np.concatenate([first, rest], axis=-1)


def _fit_ratio(factor: np.ndarray, product: np.ndarray, weight: float, ridge: float, dt: float) -> np.ndarray:
    """x [..., N] with factor * x close to product and small second differences."""
    count = factor.shape[-1]
    normal = np.eye(count) * (factor**2)[..., None] + _roughness(count, 2, weight, dt) + ridge * np.eye(count)
    return _solve(normal, factor * product)


def _roughness(count: int, order: int, weight: float, dt: float) -> np.ndarray:
    """[count, count] penalty on differences of the given order in a series sampled every dt."""
    differences = np.diff(np.eye(count), order, axis=0)
    return weight / dt ** (2 * order) * differences.T @ differences


def _solve(normal: np.ndarray, moment: np.ndarray) -> np.ndarray:
    return np.linalg.solve(normal, moment[..., None])[..., 0]


def _cumulate(first: np.ndarray, changes: np.ndarray) -> np.ndarray:
    """[..., N + 1]: first [...], first + changes[0], …"""
    first = np.broadcast_to(np.asarray(first, np.float64)[..., None], (*changes.shape[:-1], 1))
    return np.concatenate([first, first + np.cumsum(changes, axis=-1)], axis=-1)


def _mean(space: ActionSpaceConfig) -> np.ndarray:
    return np.array([space.accel_mean, space.curvature_mean])


def _deviation(space: ActionSpaceConfig) -> np.ndarray:
    return np.array([space.accel_std, space.curvature_std])
