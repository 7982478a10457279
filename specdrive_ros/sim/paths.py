"""Smooth lateral paths along the road: around an obstacle and back, or over to another lane.

A path gives the rear axle's offset as a function of arc length. Knows nothing about who drives or when.
"""

import math
from dataclasses import dataclass

from specdrive_ros.sim.ego import FRONT_FROM_AXLE_M, REAR_OVERHANG_M, WIDTH_M
from specdrive_ros.sim.traffic import Obstacle

PASS_CLEARANCE_M = 0.9
PASS_RAMP_S = 3.0  # out and back: about 1.3 m/s² of lateral acceleration
LEAST_PASS_RAMP_M = 22.0
PASS_MARGIN_M = (2.0, 3.0)  # fully beside it this far before our front reaches it and after our rear has passed it
LEAST_CHANGE_M = 22.0
CHANGE_S = 3.3


@dataclass(frozen=True)
class PassPath:
    """A path around an obstacle: the rear axle's offset as a function of arc length."""

    obstacle: Obstacle
    side: str  # "left" or "right"
    lane_d: float
    pass_d: float
    s_in_start: float
    s_in_end: float
    s_out_start: float
    s_out_end: float
    speed_mps: float

    def offset(self, s: float) -> tuple[float, float, float]:
        """Offset (m), and its first and second derivative by arc length."""
        shift = self.pass_d - self.lane_d
        if s <= self.s_in_start or s >= self.s_out_end:
            return self.lane_d, 0.0, 0.0
        if s < self.s_in_end:
            return _cosine_ramp(self.lane_d, shift, s - self.s_in_start, self.s_in_end - self.s_in_start)
        if s <= self.s_out_start:
            return self.pass_d, 0.0, 0.0
        return _cosine_ramp(self.pass_d, -shift, s - self.s_out_start, self.s_out_end - self.s_out_start)


@dataclass(frozen=True)
class LaneChange:
    """A change to the next lane. cause: "slow_lead" or "lane_end"."""

    side: str
    cause: str
    from_d: float
    to_d: float
    s_start: float
    s_end: float

    def offset(self, s: float) -> tuple[float, float, float]:
        """Offset (m), and its first and second derivative by arc length."""
        if s <= self.s_start:
            return self.from_d, 0.0, 0.0
        if s >= self.s_end:
            return self.to_d, 0.0, 0.0
        return _cosine_ramp(
            self.from_d, self.to_d - self.from_d, s - self.s_start, self.s_end - self.s_start
        )

    def s_clear(self) -> float:
        """Arc length at which the ego has left the width of a vehicle in its old lane."""
        return self.s_start + 0.72 * (self.s_end - self.s_start)


def _cosine_ramp(start: float, shift: float, u: float, length: float) -> tuple[float, float, float]:
    w = math.pi / length
    angle = w * u
    return (
        start + 0.5 * shift * (1 - math.cos(angle)),
        0.5 * shift * w * math.sin(angle),
        0.5 * shift * w * w * math.cos(angle),
    )


def plan_change(side: str, cause: str, from_d: float, to_d: float, s: float, speed: float) -> LaneChange:
    return LaneChange(side, cause, from_d, to_d, s, s + max(LEAST_CHANGE_M, CHANGE_S * speed))


def plan_pass(obstacle: Obstacle, lane_d: float, edge_m: float, wanted_mps: float) -> PassPath | None:
    """The smaller way around an obstacle, within the road; None if it leaves room as it is, or there is no room."""
    half = 0.5 * obstacle.size.width_m
    need = half + PASS_CLEARANCE_M + 0.5 * WIDTH_M
    if abs(obstacle.d - lane_d) >= need:
        return None
    choices = [(obstacle.d + need, "left"), (obstacle.d - need, "right")]
    inside = [(d, side) for d, side in choices if abs(d) + 0.5 * WIDTH_M + 0.1 <= edge_m]
    if not inside:
        return None
    pass_d, side = min(inside, key=lambda choice: abs(choice[0] - lane_d))
    speed = min(wanted_mps, 7.5)
    ramp = max(LEAST_PASS_RAMP_M, PASS_RAMP_S * speed) * max(1.0, math.sqrt(abs(pass_d - lane_d) / 2.4))
    near = obstacle.s - 0.5 * obstacle.size.length_m - FRONT_FROM_AXLE_M - PASS_MARGIN_M[0]
    far = obstacle.s + 0.5 * obstacle.size.length_m + REAR_OVERHANG_M + PASS_MARGIN_M[1]
    return PassPath(obstacle, side, lane_d, pass_d, near - ramp, near, far, far + ramp, speed)
