"""The expert driver: what a careful human would do now, and which constraint makes it so.

Laterally it follows the lane centre, or a smooth path around an obstacle, by feedback on offset and
heading. Longitudinally the most careful of several constraints wins: wanted speed, curve, lead
vehicle, signal, passing speed, oncoming traffic. It acts only on what the camera can show: nothing
beyond the `*_RANGE_M` below. It knows the world's state, not its pictures; labels are made elsewhere
from the `Intent` given here.
"""

import math
from dataclasses import dataclass

import numpy as np

from specdrive_ros.sim.ego import FRONT_FROM_AXLE_M, REAR_OVERHANG_M, WIDTH_M, Command, clip
from specdrive_ros.sim.road import SAMPLE_STEP_M
from specdrive_ros.sim.traffic import STANDING_MPS, Obstacle, Vehicle, idm_acceleration

LEAD_RANGE_M = 55.0
SIGNAL_RANGE_M = 55.0
OBSTACLE_RANGE_M = 55.0
ONCOMING_RANGE_M = 95.0

A_MAX_MPS2 = 1.7
BRAKE_LIMIT_MPS2 = 3.5
HARD_BRAKE_MPS2 = 5.0
EMERGENCY_BRAKE_MPS2 = 7.0
COMFORT_JERK_MPS3 = 4.0
CURVE_LATERAL_MPS2 = 1.9
STEER_LATERAL_MPS2 = 2.5
CURVE_BRAKE_MPS2 = 1.3
YELLOW_STOP_MPS2 = 2.6
STOP_GAP_M = 1.2
PASS_CLEARANCE_M = 0.75


@dataclass(frozen=True)
class PassPath:
    """A way around an obstacle: the rear axle's offset is a function of arc length."""

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
        """Offset, and its first and second derivative by arc length."""
        shift = self.pass_d - self.lane_d
        if s <= self.s_in_start or s >= self.s_out_end:
            return self.lane_d, 0.0, 0.0
        if s < self.s_in_end:
            return _cosine_ramp(self.lane_d, shift, s - self.s_in_start, self.s_in_end - self.s_in_start)
        if s <= self.s_out_start:
            return self.pass_d, 0.0, 0.0
        return _cosine_ramp(self.pass_d, -shift, s - self.s_out_start, self.s_out_end - self.s_out_start)


def _cosine_ramp(start: float, shift: float, u: float, length: float) -> tuple[float, float, float]:
    w = math.pi / length
    angle = w * u
    return (
        start + 0.5 * shift * (1 - math.cos(angle)),
        0.5 * shift * w * math.sin(angle),
        0.5 * shift * w * w * math.cos(angle),
    )


def plan_pass(obstacle: Obstacle, lane_d: float, edge_m: float, wanted_mps: float) -> PassPath | None:
    """The smaller way around an obstacle, within the road; None where it leaves room as it is or has none."""
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
    ramp = max(18.0, 2.6 * speed) * max(1.0, math.sqrt(abs(pass_d - lane_d) / 2.4))
    near = obstacle.s - 0.5 * obstacle.size.length_m - FRONT_FROM_AXLE_M - 1.0
    far = obstacle.s + 0.5 * obstacle.size.length_m + REAR_OVERHANG_M + 1.5
    return PassPath(obstacle, side, lane_d, pass_d, near - ramp, near, far, far + ramp, speed)


@dataclass(frozen=True)
class Intent:
    """What the expert does and the facts it acts on. Gaps are from the ego's front bumper, metres.

    active: the constraint that holds now: cruise, curve, lead, signal, obstacle or yield.
    """

    command: Command
    active: str
    s: float
    d: float
    heading_error: float
    path_error_m: float
    cruise_acceleration: float
    curve_speed_mps: float
    lead: Vehicle | None
    lead_gap_m: float
    signal: str
    signal_gap_m: float
    stops_for_signal: bool
    passing: PassPath | None
    obstacle_gap_m: float
    yields: bool
    oncoming_gap_m: float


class Expert:
    """Holds only what a driver must remember: a decision taken at yellow, and whether it gives way."""

    def __init__(self) -> None:
        self._last_signal = "none"
        self._stops_for_signal = False
        self._yields = False

    def consider(self, world) -> Intent:
        """Looks at the world once per step. Call it in the order of time."""
        ego, road = world.ego, world.road
        s, d = world.ego_s, world.ego_d
        front = s + FRONT_FROM_AXLE_M
        lead, lead_gap = find_lead(world)
        signal, signal_gap = _signal_ahead(world, front)
        self._decide_signal(signal, signal_gap, ego.speed)
        passing, obstacle_gap = _obstacle_ahead(world, s, front)
        oncoming_gap = _oncoming_gap(world, front)
        self._decide_yield(world, passing, s)
        curve_speed = _curve_speed(road, s, ego.speed)

        cruise = _speed_control(ego.speed, world.wanted_mps)
        candidates = {"cruise": cruise, "curve": _approach(ego.speed, curve_speed)}
        if lead is not None:
            candidates["lead"] = _follow(ego.speed, world.wanted_mps, lead_gap, ego.speed - lead.speed)
        if self._stops_for_signal:
            candidates["signal"] = _stop_at(ego.speed, world.wanted_mps, signal_gap)
        if passing is not None and s < passing.s_out_start:
            candidates["obstacle"] = _approach(ego.speed, _speed_before(passing, s, ego.speed))
        if self._yields:
            candidates["yield"] = _stop_at(
                ego.speed, world.wanted_mps, passing.s_in_start + FRONT_FROM_AXLE_M - s
            )
        active = min(candidates, key=lambda name: candidates[name])
        if candidates[active] > cruise - 0.1 and active != "cruise":
            active = "cruise"
        acceleration = _comfortable(candidates[min(candidates, key=candidates.get)], ego)
        curvature, path_error, heading_error = _steer(world, passing)
        return Intent(
            Command(acceleration, curvature),
            active,
            s,
            d,
            heading_error,
            path_error,
            cruise,
            curve_speed,
            lead,
            lead_gap,
            signal,
            signal_gap,
            self._stops_for_signal,
            passing,
            obstacle_gap,
            self._yields,
            oncoming_gap,
        )

    def _decide_signal(self, signal: str, gap: float, speed: float) -> None:
        if signal in ("none", "green"):
            self._stops_for_signal = False
        elif signal == "yellow" and self._last_signal != "yellow":
            self._stops_for_signal = speed * speed / (2 * max(gap - 0.3, 0.1)) < YELLOW_STOP_MPS2
        elif signal == "red" and self._last_signal != "red":
            self._stops_for_signal = speed * speed / (2 * max(gap, 0.1)) < EMERGENCY_BRAKE_MPS2
        self._last_signal = signal

    def _decide_yield(self, world, passing: PassPath | None, s: float) -> None:
        if passing is None or passing.side != "left" or passing.pass_d + 0.5 * WIDTH_M < 0.1:
            self._yields = False
            return
        room = passing.s_in_start + 2.0 - s
        committed = room < 0 or world.ego.speed**2 / (2 * max(room, 0.1)) > HARD_BRAKE_MPS2
        if committed and not self._yields:
            return
        self._yields = _oncoming_conflict(world, passing, s, margin_s=0.6 if self._yields else 0.3)


def find_lead(world) -> tuple[Vehicle | None, float]:
    """The nearest vehicle in the ego's path and the gap to it, bumper to bumper; (None, inf) if none."""
    front = world.ego_s + FRONT_FROM_AXLE_M
    best, best_gap = None, math.inf
    for vehicle in world.vehicles:
        if vehicle.line is not world.road.line or vehicle.direction < 0 or vehicle.s < world.ego_s:
            continue
        if abs(vehicle.d - world.lane_d) > 0.5 * (vehicle.size.width_m + WIDTH_M) + 0.1:
            continue
        gap = vehicle.s - 0.5 * vehicle.size.length_m - front
        if gap < min(best_gap, LEAD_RANGE_M):
            best, best_gap = vehicle, gap
    return best, best_gap


def _signal_ahead(world, front: float) -> tuple[str, float]:
    if world.signal is None:
        return "none", math.inf
    gap = world.signal_intersection.s_stop_m - front
    if gap < 0 or gap > SIGNAL_RANGE_M:
        return "none", math.inf
    return world.signal.colour(world.time_s), gap


def _obstacle_ahead(world, s: float, front: float) -> tuple[PassPath | None, float]:
    """The pass path that matters now (seen and not yet left behind) and the gap to its obstacle."""
    for passing in world.pass_paths:
        gap = passing.obstacle.s - 0.5 * passing.obstacle.size.length_m - front
        if gap < OBSTACLE_RANGE_M and s < passing.s_out_end:
            return passing, gap
    return None, math.inf


def _oncoming_gap(world, front: float) -> float:
    gaps = [v.s - 0.5 * v.size.length_m - front for v in _oncoming(world) if v.s > front]
    return min(gaps, default=math.inf)


def _oncoming(world) -> list[Vehicle]:
    return [v for v in world.vehicles if v.direction < 0 and v.line is world.road.line and not v.parked]


def _oncoming_conflict(world, passing: PassPath, s: float, margin_s: float) -> bool:
    """Whether someone comes towards us in the stretch and time in which we need their lane."""
    speed = max(0.5 * (world.ego.speed + passing.speed_mps), 3.0)
    s_enter = 0.6 * passing.s_in_start + 0.4 * passing.s_in_end
    s_leave = 0.4 * passing.s_out_start + 0.6 * passing.s_out_end
    t_enter = max(0.0, s_enter - s) / speed - margin_s
    t_leave = (s_leave - s) / speed + margin_s
    for v in _oncoming(world):
        side_by_side = v.d - passing.pass_d > 0.5 * (v.size.width_m + WIDTH_M) + 0.4
        if side_by_side or v.s - s > ONCOMING_RANGE_M:
            continue
        half = 0.5 * v.size.length_m + 3.0
        first, last = v.s - v.speed * t_leave - half, v.s - v.speed * max(t_enter, 0.0) + half
        if v.s > s and first < s_leave and last > s_enter:
            return True
    return False


def _curve_speed(road, s: float, speed: float) -> float:
    """Speed that the road ahead allows now, so that every curve in sight is reached slowly enough."""
    rows = road.line.rows(s + 0.5, s + 55.0)
    curvature = np.abs(road.line.curvature[rows])
    ahead = np.maximum(np.arange(len(curvature)) * SAMPLE_STEP_M - 0.7 * speed, 0.0)
    return math.sqrt(
        float(np.min(CURVE_LATERAL_MPS2 / np.maximum(curvature, 1e-4) + 2 * CURVE_BRAKE_MPS2 * ahead))
    )


def _speed_before(passing: PassPath, s: float, speed: float) -> float:
    ahead = max(passing.s_in_start + 3.0 - s - 0.7 * speed, 0.0)
    return math.sqrt(passing.speed_mps**2 + 2 * CURVE_BRAKE_MPS2 * ahead)


def _speed_control(speed: float, wanted: float) -> float:
    if speed > wanted:
        return max(-1.2, 0.8 * (wanted - speed))
    return min(A_MAX_MPS2, 0.8 * (wanted - speed))


def _approach(speed: float, allowed: float) -> float:
    return clip(1.5 * (allowed - speed), -BRAKE_LIMIT_MPS2, A_MAX_MPS2)


def _follow(speed: float, wanted: float, gap: float, closing: float) -> float:
    if speed < STANDING_MPS and gap < 3.0:
        return -0.8
    return idm_acceleration(
        speed, wanted, gap, closing, a_max=A_MAX_MPS2, comfort=2.0, headway_s=1.4, gap_min=2.5
    )


def _stop_at(speed: float, wanted: float, gap: float) -> float:
    if gap < STOP_GAP_M + 0.6 and speed < 1.0:
        return -0.8
    return idm_acceleration(
        speed, wanted, gap, speed, a_max=A_MAX_MPS2, comfort=2.2, headway_s=0.5, gap_min=STOP_GAP_M
    )


def _comfortable(acceleration: float, ego) -> float:
    """Limits jerk, brakes harder than comfortable only when asked to; standing still asks for nothing."""
    if ego.speed == 0.0 and acceleration <= 0:
        return 0.0
    step = 0.05 * COMFORT_JERK_MPS3 * (2.5 if acceleration < -BRAKE_LIMIT_MPS2 else 1.0)
    return clip(
        clip(acceleration, -EMERGENCY_BRAKE_MPS2, A_MAX_MPS2),
        ego.acceleration - step,
        ego.acceleration + step,
    )


def _steer(world, passing: PassPath | None) -> tuple[float, float, float]:
    """Curvature command, offset error to the path (left positive), heading error to the road."""
    ego, road = world.ego, world.road
    d_path, slope, bend = passing.offset(world.ego_s) if passing else (world.lane_d, 0.0, 0.0)
    heading_error = math.remainder(ego.yaw - road.line.heading_at(world.ego_s), 2 * math.pi)
    error = world.ego_d - d_path
    road_curvature = road.line.curvature_at(world.ego_s + 0.1 * ego.speed)
    feedforward = road_curvature / (1.0 - road_curvature * world.ego_d) + bend
    reach = max(5.0, 0.8 * ego.speed)
    feedback = -error / reach**2 - 2.0 * (heading_error - math.atan(slope)) / reach
    limit = STEER_LATERAL_MPS2 / max(ego.speed, 3.0) ** 2
    curvature = feedforward + clip(feedback, -limit, limit)
    return clip(curvature, -1.2 * limit, 1.2 * limit), error, heading_error
