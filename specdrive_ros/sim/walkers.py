"""People and things that cross the road off the lanes: pedestrians, children, cyclists, dogs, a ball.

A walker stands until it has a reason to go, then crosses the road at constant speed. Knows the ego only as a gap and a
speed, which make it go. Knows nothing about images or labels.
"""

import math
from dataclasses import dataclass

from specdrive_ros.sim.road import ReferenceLine
from specdrive_ros.sim.traffic import SIZES, BodySize, Obstacle, Vehicle

HAZARD_KINDS = ("pedestrian", "child", "cyclist", "dog", "ball")
CLOTHED_KINDS = ("pedestrian", "child", "cyclist")
SLOW_EGO_MPS = 2.5
SLOW_EGO_GAP_M = 14.0


@dataclass
class Walker:
    """On the road's line at arc length s, going from offset d to `to_d`.

    begin_gap_m: goes when the ego's front is nearer than this; -inf only waits for a slow ego.
    sudden:      steps out from behind `cover` without looking; startled, it stands at `freeze_d` for `freeze_s`.
    """

    id: int
    kind: str
    colour: str
    line: ReferenceLine
    s: float
    d: float
    to_d: float
    speed: float
    begin_gap_m: float = math.inf
    sudden: bool = False
    cover: Vehicle | Obstacle | None = None
    freeze_d: float = 0.0
    freeze_s: float = 0.0
    moving: bool = False
    walked_m: float = 0.0

    @property
    def size(self) -> BodySize:
        return SIZES[self.kind]

    @property
    def heading_left(self) -> float:
        """+1 if it goes to the left of the road, -1 to the right."""
        return 1.0 if self.to_d > self.d else -1.0

    @property
    def arrived(self) -> bool:
        return abs(self.to_d - self.d) < 1e-6

    def pose(self) -> tuple[float, float, float]:
        """x, y (m), yaw (rad) of the body's centre in the map; it faces the way it goes."""
        x, y, heading = self.line.pose(self.s, self.d)
        return x, y, heading + self.heading_left * 0.5 * math.pi

    def advance(self, ego_gap_m: float, ego_speed_mps: float, dt: float) -> None:
        """Advances by dt seconds. ego_gap_m: from the ego's front to the walker, along the road."""
        slow = ego_speed_mps < SLOW_EGO_MPS and ego_gap_m < SLOW_EGO_GAP_M and not self.sudden
        begins = self.walked_m > 0.0 or ego_gap_m < self.begin_gap_m or slow
        target = self.freeze_d if self.freeze_s > 0.0 else self.to_d
        self.moving = begins and abs(target - self.d) > 1e-6
        if self.moving:
            step = min(self.speed * dt, abs(target - self.d))
            self.d += self.heading_left * step
            self.walked_m += step
        elif begins:
            self.freeze_s = max(0.0, self.freeze_s - dt)

    def past(self, lane_d: float, reach_m: float) -> bool:
        """Whether it is beside the strip `lane_d` ± `reach_m` and will not enter it."""
        low, high = sorted((self.d, self.to_d))
        return high < lane_d - reach_m or low > lane_d + reach_m

    def crosses(self, lane_d: float, reach_m: float) -> bool:
        """Whether it is inside the strip now."""
        return abs(self.d - lane_d) <= reach_m
