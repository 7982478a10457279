"""Where a car's axles are and how far its front wheels turn: as given, or derived from the positions of its wheels.

A car is modelled as a bicycle: a rear axle, and a steered wheel a wheelbase ahead of it. Wheels that cannot belong to
a car are refused, because a wrong axle silently distorts every curve. Knows nothing about ROS.
"""

import math
from dataclasses import dataclass

import numpy as np

from specdrive_ros.errors import InputError

LEAST_WHEELS, LEAST_OF_AN_AXLE = 4, 2
STEERS_RAD = 0.01  # a wheel that turns less does not steer
ORIGIN_BEYOND_M = 1.0  # at most this far may a car's origin be ahead of its front axle or behind its rear axle
ORIGIN_ASIDE_M = 0.5  # and at most this far beside the car's middle
RANGES = {  # wide enough for a quadricycle and a bus; wheels in centimetres and angles in degrees are outside
    "rear_axle_x_m": (-10.0, 10.0),
    "wheelbase_m": (1.0, 8.0),
    "max_steering_angle_rad": (0.1, 1.4),
}


@dataclass(frozen=True)
class VehicleGeometry:
    """A car as a bicycle; by default the embedded world's, whose origin is its rear axle.

    rear_axle_x_m:          in the car's own frame, forward positive.
    wheelbase_m:            from the rear axle to the front one.
    max_steering_angle_rad: of the front wheels, to either side.
    Raises InputError for a value outside its range.
    """

    rear_axle_x_m: float = 0.0
    wheelbase_m: float = 2.7
    max_steering_angle_rad: float = float(np.radians(70.0))  # that of CARLA's cars

    def __post_init__(self):
        for name, (low, high) in RANGES.items():
            value = getattr(self, name)
            if not low <= value <= high:  # NaN too
                raise InputError(f"{name}: {value:.6g}; must be from {low} to {high}")

    def front_wheel_angle_rad(self, curvature_per_m: float) -> float:
        """Angle of the front wheels for a curvature of the rear axle's path, both left positive; may be more than
        they can turn."""
        return math.atan(self.wheelbase_m * curvature_per_m)

    def __str__(self) -> str:
        return (
            f"rear axle at {self.rear_axle_x_m:.2f} m, wheelbase {self.wheelbase_m:.2f} m, "
            f"steering to {self.max_steering_angle_rad:.2f} rad"
        )


EMBEDDED = VehicleGeometry()


def from_wheels(xy_m: np.ndarray, max_steer_rad: np.ndarray) -> VehicleGeometry:
    """A car from its wheels, in any order.

    xy_m:          [N, 2] in the car's own frame, x forward, y left.
    max_steer_rad: [N] how far each wheel turns to either side; 0: not at all.

    Several axles at one end count as one at their mean. Raises InputError for wheels that are not a car's.
    """
    _check_numbers(xy_m, max_steer_rad)
    x = xy_m[:, 0]
    is_rear = x < (x.min() + x.max()) / 2
    _check_axles(is_rear, x, max_steer_rad)
    rear_x, front_x = float(x[is_rear].mean()), float(x[~is_rear].mean())
    car = VehicleGeometry(rear_x, front_x - rear_x, float(max_steer_rad[~is_rear].max()))
    _check_origin(rear_x, front_x, xy_m[:, 1])
    return car


def _check_numbers(xy_m: np.ndarray, max_steer_rad: np.ndarray) -> None:
    if len(xy_m) < LEAST_WHEELS:
        raise InputError(f"{len(xy_m)} wheels; must be {LEAST_WHEELS} at least, on two axles")
    if not (np.isfinite(xy_m).all() and np.isfinite(max_steer_rad).all()):
        raise InputError("a wheel's position or steering angle is not finite; all of them must be")
    if (max_steer_rad < 0).any():
        raise InputError(f"a wheel steers {max_steer_rad.min():.6g} rad at most; must be 0 or more")


def _check_axles(is_rear: np.ndarray, x: np.ndarray, max_steer_rad: np.ndarray) -> None:
    if min(is_rear.sum(), (~is_rear).sum()) < LEAST_OF_AN_AXLE:
        where = ", ".join(f"{each:.6g}" for each in x[:LEAST_WHEELS])
        raise InputError(f"wheels at x {where} m; must be {LEAST_OF_AN_AXLE} or more on each of two axles")
    if (max_steer_rad[is_rear] > STEERS_RAD).any():
        raise InputError("wheels of the rear axle steer; must be the front ones alone, x forward")


def _check_origin(rear_x: float, front_x: float, y: np.ndarray) -> None:
    """Refuses positions in the map given instead of the car's frame: they have a valid wheelbase, too."""
    if rear_x > ORIGIN_BEYOND_M or front_x < -ORIGIN_BEYOND_M or abs(y.mean()) > ORIGIN_ASIDE_M:
        raise InputError(
            f"axles at x {rear_x:.6g} and {front_x:.6g} m, {y.mean():.6g} m aside; "
            "must be around the origin of the car's own frame"
        )
