"""The expert driver: what a careful human would do now, and which constraint is the reason.

Laterally it follows the lane centre, a smooth path around an obstacle, or a change of lane, by feedback on offset and
heading. Longitudinally the most careful of several constraints wins (`constraints`). It acts only on what the camera
can show (`perception`). It knows the world's state, not its images; labels are made elsewhere from the `Intent` given
here.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from specdrive_ros.sim.constraints import CONSTRAINTS
from specdrive_ros.sim.control import EMERGENCY_BRAKE_MPS2, HARD_BRAKE_MPS2, STOP_GAP_M, comfortable
from specdrive_ros.sim.ego import WIDTH_M, Command, clip
from specdrive_ros.sim.paths import LaneChange, PassPath, plan_change, plan_pass
from specdrive_ros.sim.perception import ONCOMING_RANGE_M, Seen, look, neighbour, oncoming
from specdrive_ros.sim.traffic import STANDING_MPS

if TYPE_CHECKING:
    from specdrive_ros.sim.expert import Expert
    from specdrive_ros.sim.world import World

__all__ = ["EMERGENCY_BRAKE_MPS2", "STOP_GAP_M", "Expert", "Intent", "PassPath", "plan_pass"]

STEER_LATERAL_MPS2 = 2.5
YELLOW_STOP_MPS2 = 2.6
STOP_SIGN_STAND_S = 1.0
CROSS_CLEAR_S = 0.4
SLOW_LEAD_SHARE = 0.75  # of the wanted speed
SLOW_LEAD_RANGE_M = 40.0
CHANGE_BEFORE_LANE_END_M = 42.0


@dataclass(frozen=True)
class Intent(Seen):
    """What the expert does and the facts it acts on.

    active:  the constraint that holds now, a name in `CONSTRAINTS`.
    change:  the change of lane in progress.
    blocked_side: the side it would change to if that lane were free: "left", "right" or "".
    """

    command: Command
    active: str
    s: float
    d: float
    heading_error: float
    path_error_m: float
    cruise_acceleration: float
    stops_for_signal: bool
    yields: bool
    may_go: bool
    change: LaneChange | None
    blocked_side: str


class Expert:
    """Holds only what a driver must remember.

    lane_d: the lane it keeps; stops_for_signal: decided at yellow; yields: gives way to oncoming traffic;
    may_go: has stood at the stop sign; change: the change of lane in progress.
    """

    def __init__(self, lane_d: float) -> None:
        self.lane_d = lane_d
        self.stops_for_signal = False
        self.yields = False
        self.may_go = False
        self.change: LaneChange | None = None
        self.blocked_side = ""
        self._last_signal = "none"
        self._stood_from_s = math.inf
        self._clear_from_s = math.inf

    def consider(self, world: "World") -> Intent:
        """Looks at the world and decides. Call it once per step, in the order of time."""
        seen = look(world)
        self._decide_signal(seen.signal, seen.signal_gap_m, world.ego.speed)
        self._decide_yield(world, seen.passing, world.ego_s)
        if world.stop_sign is not None:
            self._decide_stop_sign(world, seen)
        if world.scene.free_lanes:
            self._decide_lane(world, seen)
        wishes = {name: constraint(world, seen, self) for name, constraint in CONSTRAINTS.items()}
        active = min(wishes, key=wishes.get)
        acceleration = comfortable(wishes[active], world.ego)
        if wishes[active] > wishes["cruise"] - 0.1:
            active = "cruise"
        curvature, path_error, heading_error = _steer(world, self.change or seen.passing)
        return Intent(
            **vars(seen),
            command=Command(acceleration, curvature),
            active=active,
            s=world.ego_s,
            d=world.ego_d,
            heading_error=heading_error,
            path_error_m=path_error,
            cruise_acceleration=wishes["cruise"],
            stops_for_signal=self.stops_for_signal,
            yields=self.yields,
            may_go=self.may_go,
            change=self.change,
            blocked_side=self.blocked_side,
        )

    def _decide_signal(self, signal: str, gap: float, speed: float) -> None:
        if signal in ("none", "green"):
            self.stops_for_signal = False
        elif signal == "yellow" and self._last_signal != "yellow":
            self.stops_for_signal = speed * speed / (2 * max(gap - 0.3, 0.1)) < YELLOW_STOP_MPS2
        elif signal == "red" and self._last_signal != "red":
            self.stops_for_signal = speed * speed / (2 * max(gap, 0.1)) < EMERGENCY_BRAKE_MPS2
        self._last_signal = signal

    def _decide_yield(self, world: "World", passing: PassPath | None, s: float) -> None:
        if passing is None or passing.side != "left" or passing.pass_d + 0.5 * WIDTH_M < 0.1:
            self.yields = False
            return
        room = passing.s_in_start + 2.0 - s
        committed = room < 0 or world.ego.speed**2 / (2 * max(room, 0.1)) > HARD_BRAKE_MPS2
        if committed and not self.yields:
            return
        self.yields = _oncoming_conflict(world, passing, s, margin_s=0.6 if self.yields else 0.3)

    def _decide_stop_sign(self, world: "World", seen: Seen) -> None:
        """Stands at the line for a second, longer while somebody crosses."""
        now = world.time_s
        at_line = world.ego.speed < STANDING_MPS and seen.stop_sign_gap_m < STOP_GAP_M + 2.0
        self._stood_from_s = min(self._stood_from_s, now) if at_line else math.inf
        self._clear_from_s = min(self._clear_from_s, now) if seen.cross_vehicle is None else math.inf
        if now - self._stood_from_s >= STOP_SIGN_STAND_S and now - self._clear_from_s >= CROSS_CLEAR_S:
            self.may_go = True

    def _decide_lane(self, world: "World", seen: Seen) -> None:
        """Ends a finished change, begins one if there is a reason and room; keeps the lane it is in."""
        if self.change is not None and world.ego_s >= self.change.s_end:
            self.change = None
        if self.change is None:
            self._consider_change(world, seen)
        lanes = [world.road.lane_offset(lane) for lane in range(world.road.lanes)]
        nearest = min(lanes, key=lambda d: abs(d - world.ego_d))
        if abs(world.ego_d - nearest) < abs(world.ego_d - self.lane_d) - 0.5:
            self.lane_d = nearest

    def _consider_change(self, world: "World", seen: Seen) -> None:
        self.blocked_side = ""
        cause, sides = _reason_to_change(world, seen)
        for side in sides:
            to_d = world.road.beside(self.lane_d, side)
            if to_d is None:
                continue
            if _room_beside(world, side):
                self.change = plan_change(
                    side, cause, self.lane_d, to_d, world.ego_s, world.ego.speed
                )
                self.blocked_side = ""
                return
            self.blocked_side = side


def _reason_to_change(world: "World", seen: Seen) -> tuple[str, tuple[str, ...]]:
    """(cause, sides that would do); empty if there is no reason."""
    if seen.lane_end_gap_m < CHANGE_BEFORE_LANE_END_M:
        return "lane_end", ("left",)
    lead = seen.lead
    slow = lead is not None and lead.hazard_lights and lead.speed < SLOW_LEAD_SHARE * world.wanted_mps
    if slow and 4.0 < seen.lead_gap_m < SLOW_LEAD_RANGE_M:
        return "slow_lead", ("left", "right")
    return "", ()


def _room_beside(world: "World", side: str) -> bool:
    vehicle, gap = neighbour(world, side)
    if vehicle is None:
        return True
    return gap > 7.0 + 0.4 * world.ego.speed + 1.6 * max(world.ego.speed - vehicle.speed, 0.0)


def _oncoming_conflict(world: "World", passing: PassPath, s: float, margin_s: float) -> bool:
    """Whether someone comes towards us in the stretch and time in which we need their lane."""
    speed = max(0.5 * (world.ego.speed + passing.speed_mps), 3.0)
    s_enter = 0.6 * passing.s_in_start + 0.4 * passing.s_in_end
    s_leave = 0.4 * passing.s_out_start + 0.6 * passing.s_out_end
    t_enter = max(0.0, s_enter - s) / speed - margin_s
    t_leave = (s_leave - s) / speed + margin_s
    for v in oncoming(world):
        side_by_side = v.d - passing.pass_d > 0.5 * (v.size.width_m + WIDTH_M) + 0.4
        if side_by_side or v.s - s > ONCOMING_RANGE_M:
            continue
        half = 0.5 * v.size.length_m + 3.0
        first, last = v.s - v.speed * t_leave - half, v.s - v.speed * max(t_enter, 0.0) + half
        if v.s > s and first < s_leave and last > s_enter:
            return True
    return False


def _steer(world: "World", path: PassPath | LaneChange | None) -> tuple[float, float, float]:
    """Curvature command (1/m), offset error to the path (m, left positive), heading error to the road (rad)."""
    ego, road = world.ego, world.road
    d_path, slope, bend = path.offset(world.ego_s) if path else (world.lane_d, 0.0, 0.0)
    heading_error = math.remainder(ego.yaw - road.line.heading_at(world.ego_s), 2 * math.pi)
    error = world.ego_d - d_path
    road_curvature = road.line.curvature_at(world.ego_s + 0.1 * ego.speed)
    feedforward = road_curvature / (1.0 - road_curvature * world.ego_d) + bend
    reach = max(5.0, 0.8 * ego.speed)
    feedback = -error / reach**2 - 2.0 * (heading_error - math.atan(slope)) / reach
    limit = STEER_LATERAL_MPS2 / max(ego.speed, 3.0) ** 2
    curvature = feedforward + clip(feedback, -limit, limit)
    return clip(curvature, -1.2 * limit, 1.2 * limit), error, heading_error
