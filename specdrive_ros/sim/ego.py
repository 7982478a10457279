"""The ego vehicle: a kinematic bicycle about the rear axle, driven by acceleration and curvature.

Knows nothing about roads or traffic.
"""

import math
from dataclasses import dataclass

LENGTH_M = 4.6
WIDTH_M = 1.86
REAR_OVERHANG_M = 0.9
FRONT_FROM_AXLE_M = LENGTH_M - REAR_OVERHANG_M
CENTRE_FROM_AXLE_M = 0.5 * LENGTH_M - REAR_OVERHANG_M

JERK_LIMIT_MPS3 = 12.0
CURVATURE_RATE_LIMIT = 0.25  # 1/(m s)
ACCELERATION_RANGE_MPS2 = (-8.0, 3.0)
CURVATURE_LIMIT = 0.2  # 1/m


@dataclass(frozen=True)
class EgoState:
    """Rear axle in the map frame: metres, radians, m/s, m/s², 1/m."""

    x: float
    y: float
    yaw: float
    speed: float
    acceleration: float = 0.0
    curvature: float = 0.0


@dataclass(frozen=True)
class Command:
    """The command to the car: acceleration along the heading, curvature of the rear axle's path (left positive)."""

    acceleration_mps2: float
    curvature_per_m: float


def clip(value: float, low: float, high: float) -> float:
    return min(max(value, low), high)


def move(ego: EgoState, command: Command, dt: float) -> EgoState:
    """The ego after dt seconds; jerk and curvature rate are limited, and the speed never goes below zero.

    A command that is not finite acts like releasing the pedals while holding the wheel.
    """
    wanted = command.acceleration_mps2 if math.isfinite(command.acceleration_mps2) else 0.0
    wheel = command.curvature_per_m if math.isfinite(command.curvature_per_m) else ego.curvature
    acceleration = clip(
        wanted, ego.acceleration - JERK_LIMIT_MPS3 * dt, ego.acceleration + JERK_LIMIT_MPS3 * dt
    )
    acceleration = clip(acceleration, *ACCELERATION_RANGE_MPS2)
    curvature = clip(
        wheel, ego.curvature - CURVATURE_RATE_LIMIT * dt, ego.curvature + CURVATURE_RATE_LIMIT * dt
    )
    curvature = clip(curvature, -CURVATURE_LIMIT, CURVATURE_LIMIT)
    speed = max(0.0, ego.speed + acceleration * dt)
    if speed == 0.0:
        acceleration = max(acceleration, 0.0)
    distance = 0.5 * (ego.speed + speed) * dt
    yaw = ego.yaw + distance * 0.5 * (ego.curvature + curvature)
    middle = 0.5 * (ego.yaw + yaw)
    return EgoState(
        ego.x + distance * math.cos(middle),
        ego.y + distance * math.sin(middle),
        yaw,
        speed,
        acceleration,
        curvature,
    )
