"""Converts acceleration and curvature to a vehicle's command, and back.

CARLA knows two commands: AckermannDrive (speed, acceleration, steering angle; left positive), and pedals with a
normalised steering value (right positive). The controller writes them, the embedded world reads them; both use this
file, so that they cannot disagree. `car` is the geometry of the car that obeys. Knows nothing about ROS.
"""

from dataclasses import dataclass

import numpy as np

from specdrive_ros.ros.vehicle_geometry import EMBEDDED, VehicleGeometry

FULL_THROTTLE_MPS2 = 3.0
FULL_BRAKE_MPS2 = 8.0
SPEED_GAIN_PER_S = 2.0  # of the world's speed servo; the inverse of the controller's preview


@dataclass(frozen=True)
class Ackermann:
    """A speed, the acceleration to reach it with (0: the vehicle's choice), and a steering angle, left positive."""

    speed_mps: float
    acceleration_mps2: float
    steering_angle_rad: float


@dataclass(frozen=True)
class Pedals:
    """throttle and brake 0 … 1, steer -1 … 1, right positive."""

    throttle: float
    brake: float
    steer: float


def steering_angle(curvature_per_m: float, car: VehicleGeometry = EMBEDDED) -> float:
    """Angle of the front wheels (rad, left positive) for a curvature, limited to what they can turn."""
    limit = car.max_steering_angle_rad
    return float(np.clip(car.front_wheel_angle_rad(curvature_per_m), -limit, limit))


def curvature(steering_angle_rad: float, car: VehicleGeometry = EMBEDDED) -> float:
    return float(np.tan(np.clip(steering_angle_rad, -1.4, 1.4)) / car.wheelbase_m)


def ackermann(
    speed_mps: float, acceleration_mps2: float, curvature_per_m: float, car: VehicleGeometry = EMBEDDED
) -> Ackermann:
    return Ackermann(speed_mps, acceleration_mps2, steering_angle(curvature_per_m, car))


def servo_acceleration(command: Ackermann, speed_mps: float) -> float:
    """Acceleration (m/s²) of the vehicle's speed servo: closes the speed error, no harder than commanded."""
    wanted = SPEED_GAIN_PER_S * (command.speed_mps - speed_mps)
    limit = abs(command.acceleration_mps2)
    return float(np.clip(wanted, -limit, limit)) if limit > 0 else wanted


def pedals(acceleration_mps2: float, curvature_per_m: float, car: VehicleGeometry = EMBEDDED) -> Pedals:
    return Pedals(
        throttle=float(np.clip(acceleration_mps2 / FULL_THROTTLE_MPS2, 0.0, 1.0)),
        brake=float(np.clip(-acceleration_mps2 / FULL_BRAKE_MPS2, 0.0, 1.0)),
        steer=float(np.clip(-steering_angle(curvature_per_m, car) / car.max_steering_angle_rad, -1.0, 1.0)),
    )


def from_pedals(command: Pedals, car: VehicleGeometry = EMBEDDED) -> tuple[float, float]:
    """(acceleration m/s², curvature 1/m) of a vehicle under these pedals."""
    acceleration = command.throttle * FULL_THROTTLE_MPS2 - command.brake * FULL_BRAKE_MPS2
    return acceleration, curvature(-command.steer * car.max_steering_angle_rad, car)
