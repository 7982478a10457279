"""Whether a car may follow a plan: checked before anything is published.

A check says in words and numbers what is wrong; it repairs nothing. The limits are wide: they catch a broken model or
broken inputs, not an uncomfortable drive. One table lists all checks; the node has a diagnostic for each check and a
parameter for each limit.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np

from specdrive_ros.errors import InputError
from specdrive_ros.observation.observation import Observation
from specdrive_ros.plan import Plan
from specdrive_ros.safety.contradiction import contradiction
from specdrive_ros.shapes import FUTURE_WAYPOINTS, WAYPOINT_STEP_S

SPEED_TOLERANCE_SHARE = 0.1  # of the speed, beside `start_speed_mps`
STANDSTILL_MPS = 0.5  # below it a curvature turns nothing
ARRAYS = {"xyz": 3, "yaw": 0, "speed_mps": 0, "acceleration": 0, "curvature": 0}  # name -> columns, 0: a vector


@dataclass(frozen=True)
class PlanLimits:
    """The limits of a plan. The defaults leave room for everything that mini and its expert do.

    start_m:                 from the first waypoint to where the present speed would lead.
    start_speed_mps:         between the plan's start speed and odometry, plus a tenth of the speed.
    step_m:                  between a waypoint and where the previous one leads at the speeds around it.
    acceleration_mps2:       along the heading, either sign.
    lateral_mps2:            speed² × curvature.
    curvature_per_m:         while the car moves.
    curvature_rate_per_m_s:  change of the curvature in time, while the car moves.
    reverse_m:               distance backwards, unless the car is already rolling backwards.
    """

    start_m: float = 1.0
    start_speed_mps: float = 2.0
    step_m: float = 1.0
    acceleration_mps2: float = 9.8
    lateral_mps2: float = 9.8
    curvature_per_m: float = 0.33
    curvature_rate_per_m_s: float = 3.0
    reverse_m: float = 0.5

    def __post_init__(self):
        for each in fields(self):
            value = getattr(self, each.name)
            if not (np.isfinite(value) and value > 0):
                raise InputError(f"plan limit {each.name}: {value}; must be a number above 0")


@dataclass(frozen=True)
class Findings:
    """Each is `NAME: what was found`; violations forbid driving the plan, warnings do not."""

    violations: tuple[str, ...]
    warnings: tuple[str, ...] = ()


def check(plan: Plan, observation: Observation, limits: PlanLimits = PlanLimits()) -> Findings:
    """Runs all checks. A plan of the wrong shape or with values that are not finite is not examined further."""
    for broken in (_shape(plan), _not_finite(plan)):
        if broken:
            return Findings((broken,))
    speed_mps = observation.history.speed_mps
    found = [(name, judge(plan, speed_mps, limits)) for name, judge in CHECKS.items()]
    violations = tuple(f"{name}: {text}" for name, text in found if text)
    contradicts = contradiction(plan)
    return Findings(violations, (f"{CONTRADICTION}: {contradicts}",) if contradicts else ())


def check_plan(plan: Plan, observation: Observation) -> str:
    """What is wrong with a plan, in one line; empty when nothing is."""
    return "; ".join(violations(plan, observation))


def violations(plan: Plan, observation: Observation, limits: PlanLimits = PlanLimits()) -> list[str]:
    """Each violated check as `NAME: what was found`."""
    return list(check(plan, observation, limits).violations)


def _shape(plan: Plan) -> str:
    for name, columns in ARRAYS.items():
        wanted = (FUTURE_WAYPOINTS, columns) if columns else (FUTURE_WAYPOINTS,)
        if np.shape(getattr(plan, name)) != wanted:
            return f"SHAPE: {name} is {np.shape(getattr(plan, name))}, must be {wanted}"
    return ""


def _not_finite(plan: Plan) -> str:
    for name in (*ARRAYS, "v0_mps"):
        if not np.isfinite(getattr(plan, name)).all():
            return f"NOT_FINITE: {name} has values that are no numbers"
    return ""


def _start(plan: Plan, speed_mps: float, limits: PlanLimits) -> str:
    expected = np.array([speed_mps * WAYPOINT_STEP_S, 0.0, 0.0])
    distance = float(np.linalg.norm(plan.xyz[0] - expected))
    return f"begins {distance:.1f} m from the ego" if distance > limits.start_m else ""


def _start_speed(plan: Plan, speed_mps: float, limits: PlanLimits) -> str:
    if abs(plan.v0_mps - speed_mps) > limits.start_speed_mps + SPEED_TOLERANCE_SHARE * abs(speed_mps):
        return f"begins with {plan.v0_mps:.1f} m/s, odometry says {speed_mps:.1f} m/s"
    return ""


def _step(plan: Plan, speed_mps: float, limits: PlanLimits) -> str:
    """Waypoints follow each other as their speeds say: none is skipped, repeated or out of order."""
    heading = np.unwrap(plan.yaw)
    middle = (heading[1:] + heading[:-1]) / 2
    ahead_m = (plan.speed_mps[1:] + plan.speed_mps[:-1]) / 2 * WAYPOINT_STEP_S
    expected = np.stack([ahead_m * np.cos(middle), ahead_m * np.sin(middle)], axis=1)
    apart_m = np.linalg.norm(np.diff(plan.xyz[:, :2], axis=0) - expected, axis=1)
    worst = int(apart_m.argmax())
    if apart_m[worst] <= limits.step_m:
        return ""
    return f"waypoint {worst + 1} is {apart_m[worst]:.1f} m from where the one before leads"


def _acceleration(plan: Plan, speed_mps: float, limits: PlanLimits) -> str:
    largest = float(np.abs(plan.acceleration).max())
    return f"{largest:.1f} m/s²" if largest > limits.acceleration_mps2 else ""


def _lateral(plan: Plan, speed_mps: float, limits: PlanLimits) -> str:
    if _curvature(plan, speed_mps, limits):
        return ""  # too much curvature explains it: one fault, one name
    largest = float((plan.speed_mps**2 * np.abs(plan.curvature)).max())
    return f"{largest:.1f} m/s² to the side" if largest > limits.lateral_mps2 else ""


def _curvature(plan: Plan, speed_mps: float, limits: PlanLimits) -> str:
    largest = float(np.abs(_turning(plan)).max())
    return f"{largest:.2f} 1/m" if largest > limits.curvature_per_m else ""


def _curvature_rate(plan: Plan, speed_mps: float, limits: PlanLimits) -> str:
    if _curvature(plan, speed_mps, limits):
        return ""
    moves = np.abs(plan.speed_mps) > STANDSTILL_MPS
    rates = np.abs(np.diff(plan.curvature)) / WAYPOINT_STEP_S
    largest = float(np.where(moves[1:] & moves[:-1], rates, 0.0).max())
    return f"changes by {largest:.1f} 1/m in a second" if largest > limits.curvature_rate_per_m_s else ""


def _reverse(plan: Plan, speed_mps: float, limits: PlanLimits) -> str:
    """Driving backwards is accepted only of a car that already does."""
    backwards_m = float(np.maximum(-plan.speed_mps, 0.0).sum()) * WAYPOINT_STEP_S
    if backwards_m > limits.reverse_m and speed_mps > -STANDSTILL_MPS:
        return f"{backwards_m:.1f} m backwards"
    return ""


def _turning(plan: Plan) -> np.ndarray:
    return np.where(np.abs(plan.speed_mps) > STANDSTILL_MPS, plan.curvature, 0.0)


Judge = Callable[[Plan, float, PlanLimits], str]
CHECKS: dict[str, Judge] = {
    "START": _start,
    "START_SPEED": _start_speed,
    "STEP": _step,
    "ACCELERATION": _acceleration,
    "LATERAL_ACCELERATION": _lateral,
    "CURVATURE": _curvature,
    "CURVATURE_RATE": _curvature_rate,
    "REVERSE": _reverse,
}
CONTRADICTION = "CONTRADICTION"
NAMES = ("SHAPE", "NOT_FINITE", *CHECKS, CONTRADICTION)  # of every check, in the order they are made
