"""Whether a plan is one a car may follow: what is checked before anything is published.

A check says what is wrong in words with numbers; it repairs nothing. Limits are wide: they catch a broken
model or broken inputs, not an uncomfortable drive.
"""

import numpy as np

from specdrive_ros.observation.observation import Observation
from specdrive_ros.plan import Plan
from specdrive_ros.shapes import WAYPOINT_STEP_S

START_TOLERANCE_M = 1.0  # between where the first waypoint is and where the present speed leads
SPEED_TOLERANCE_MPS = 2.0  # between the plan's start speed and odometry …
SPEED_TOLERANCE_SHARE = 0.1  # … plus this share of the speed
ACCELERATION_LIMIT_MPS2 = 9.8
CURVATURE_LIMIT_PER_M = 0.33
STANDSTILL_MPS = 0.5  # below it a curvature turns nothing
REVERSE_LIMIT_M = 0.5


def check_plan(plan: Plan, observation: Observation) -> str:
    """What is wrong with a plan, in one line; empty when nothing is."""
    return "; ".join(violations(plan, observation))


def violations(plan: Plan, observation: Observation) -> list[str]:
    """Each violated check as `NAME: what was found`."""
    if fault := _not_finite(plan):
        return [fault]
    speed_mps = observation.history.speed_mps
    found = (
        _start(plan, speed_mps),
        _start_speed(plan, speed_mps),
        _acceleration(plan),
        _curvature(plan),
        _reverse(plan, speed_mps),
    )
    return [fault for fault in found if fault]


def _not_finite(plan: Plan) -> str:
    for name in ("xyz", "yaw", "speed_mps", "acceleration", "curvature", "v0_mps"):
        if not np.isfinite(getattr(plan, name)).all():
            return f"NOT_FINITE: {name} has values that are no numbers"
    return ""


def _start(plan: Plan, speed_mps: float) -> str:
    expected = np.array([speed_mps * WAYPOINT_STEP_S, 0.0, 0.0])
    distance = float(np.linalg.norm(plan.xyz[0] - expected))
    return f"START: begins {distance:.1f} m from the ego" if distance > START_TOLERANCE_M else ""


def _start_speed(plan: Plan, speed_mps: float) -> str:
    allowed = SPEED_TOLERANCE_MPS + SPEED_TOLERANCE_SHARE * abs(speed_mps)
    if abs(plan.v0_mps - speed_mps) > allowed:
        return f"START_SPEED: begins with {plan.v0_mps:.1f} m/s, odometry says {speed_mps:.1f} m/s"
    return ""


def _acceleration(plan: Plan) -> str:
    largest = float(np.abs(plan.acceleration).max())
    return f"ACCELERATION: {largest:.1f} m/s²" if largest > ACCELERATION_LIMIT_MPS2 else ""


def _curvature(plan: Plan) -> str:
    largest = float(np.abs(np.where(np.abs(plan.speed_mps) > STANDSTILL_MPS, plan.curvature, 0.0)).max())
    return f"CURVATURE: {largest:.2f} 1/m" if largest > CURVATURE_LIMIT_PER_M else ""


def _reverse(plan: Plan, speed_mps: float) -> str:
    """Backwards is explained only by driving backwards already."""
    backwards_m = float(np.maximum(-plan.speed_mps, 0.0).sum()) * WAYPOINT_STEP_S
    if backwards_m > REVERSE_LIMIT_M and speed_mps > -STANDSTILL_MPS:
        return f"REVERSE: {backwards_m:.1f} m backwards"
    return ""
