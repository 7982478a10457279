"""Rotations and rigid poses in NumPy. Knows nothing of cars, models or ROS.

Quaternions are `(x, y, z, w)` as in geometry_msgs, rotation matrices map body to world, angles are
radians. Every function takes leading axes.
"""

import numpy as np


def normalise_quaternion(quaternion: np.ndarray) -> np.ndarray:
    """[..., 4] -> unit length. A zero quaternion has no direction: the caller refuses it first."""
    quaternion = np.asarray(quaternion, np.float64)
    return quaternion / np.linalg.norm(quaternion, axis=-1, keepdims=True)


def matrix_from_quaternion(quaternion: np.ndarray) -> np.ndarray:
    """[..., 4] unit quaternions -> [..., 3, 3]."""
    x, y, z, w = np.moveaxis(np.asarray(quaternion, np.float64), -1, 0)
    rows = (
        (1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)),
        (2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)),
        (2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)),
    )
    return np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)


def quaternion_from_yaw(yaw: np.ndarray) -> np.ndarray:
    """[...] turns about z -> [..., 4]."""
    half = np.asarray(yaw, np.float64) / 2
    zero = np.zeros_like(half)
    return np.stack([zero, zero, np.sin(half), np.cos(half)], axis=-1)


def quaternion_product(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """[..., 4] each -> the turn `second` seen from the body that `first` has turned, as matrices multiply."""
    first, second = np.asarray(first, np.float64), np.asarray(second, np.float64)
    a, b = first[..., :3], second[..., :3]
    vector = first[..., 3:] * b + second[..., 3:] * a + np.cross(a, b)
    scalar = first[..., 3:] * second[..., 3:] - np.sum(a * b, axis=-1, keepdims=True)
    return np.concatenate([vector, scalar], axis=-1)


def rotation_about_z(yaw: np.ndarray) -> np.ndarray:
    """[...] -> [..., 3, 3]."""
    rotation = np.zeros((*np.shape(yaw), 3, 3))
    rotation[..., 0, 0] = rotation[..., 1, 1] = np.cos(yaw)
    rotation[..., 1, 0] = np.sin(yaw)
    rotation[..., 0, 1] = -rotation[..., 1, 0]
    rotation[..., 2, 2] = 1.0
    return rotation


def yaw_from_quaternion(quaternion: np.ndarray) -> np.ndarray:
    """[..., 4] -> [...] heading of the body's x axis in the ground plane."""
    return yaw_from_matrix(matrix_from_quaternion(quaternion))


def yaw_from_matrix(rotation: np.ndarray) -> np.ndarray:
    """[..., 3, 3] -> [...] heading of the body's x axis in the ground plane."""
    rotation = np.asarray(rotation, np.float64)
    return np.arctan2(rotation[..., 1, 0], rotation[..., 0, 0])


def wrap_angle(angle: np.ndarray) -> np.ndarray:
    """Any angle -> (-pi, pi]."""
    return np.pi - np.mod(np.pi - np.asarray(angle, np.float64), 2 * np.pi)


def arc_end(length_m: np.ndarray, turned: np.ndarray) -> np.ndarray:
    """[...] lengths, signed, of arcs from the origin along x, and the angles they turn -> end points [..., 3]."""
    chord_m = length_m * np.sinc(turned / (2 * np.pi))  # an arc's chord stands at half its angle
    return np.stack([chord_m * np.cos(turned / 2), chord_m * np.sin(turned / 2), np.zeros_like(turned)], axis=-1)


def slerp(start: np.ndarray, end: np.ndarray, fraction: np.ndarray) -> np.ndarray:
    """Along the shorter arc at constant rate: 0 is `start`, 1 is `end`, beyond 1 goes on turning.

    start, end: [..., 4] unit quaternions; fraction: [...]. Returns [..., 4].
    """
    start, end = np.asarray(start, np.float64), np.asarray(end, np.float64)
    fraction = np.asarray(fraction, np.float64)[..., None]
    cosine = np.sum(start * end, axis=-1, keepdims=True)
    end = np.where(cosine < 0, -end, end)
    angle = np.arccos(np.clip(np.abs(cosine), 0.0, 1.0))
    straight = angle < 1e-6  # sin(angle) is too small to divide by: a chord is exact to 1e-12
    sine = np.where(straight, 1.0, np.sin(angle))
    weight_start = np.where(straight, 1 - fraction, np.sin((1 - fraction) * angle) / sine)
    weight_end = np.where(straight, fraction, np.sin(fraction * angle) / sine)
    return normalise_quaternion(weight_start * start + weight_end * end)


def in_frame(xyz: np.ndarray, origin: np.ndarray, rotation: np.ndarray) -> np.ndarray:
    """World points [..., 3] seen from a body at `origin` [3] turned by `rotation` [3, 3]. Works in 2-D, too."""
    return (np.asarray(xyz, np.float64) - origin) @ rotation


def out_of_frame(xyz: np.ndarray, origin: np.ndarray, rotation: np.ndarray) -> np.ndarray:
    """The inverse of `in_frame`: body points [..., 3] in the world."""
    return np.asarray(xyz, np.float64) @ np.asarray(rotation).T + origin


def interpolate_poses(
    stamps_ns: np.ndarray, xyz: np.ndarray, quaternions: np.ndarray, at_ns: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Poses at `at_ns`: linear position, slerp rotation. Past an end the last segment goes on.

    stamps_ns: [N] int64, strictly rising, N >= 2; xyz: [N, 3]; quaternions: [N, 4]; at_ns: [M] int64.
    Returns positions [M, 3] and unit quaternions [M, 4].
    """
    after = np.clip(np.searchsorted(stamps_ns, at_ns, side="left"), 1, len(stamps_ns) - 1)
    before = after - 1
    fraction = (at_ns - stamps_ns[before]) / (stamps_ns[after] - stamps_ns[before])
    positions = xyz[before] + fraction[:, None] * (xyz[after] - xyz[before])
    return positions, slerp(quaternions[before], quaternions[after], fraction)
