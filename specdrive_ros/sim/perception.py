"""What a driver who sees the front camera's image knows about the world now, as plain facts.

Nothing beyond the `*_RANGE_M` below, nothing outside the image, nothing behind a parked vehicle. Decides nothing:
`expert` does. Gaps are from the ego's front bumper, in metres.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from specdrive_ros.sim.control import CURVE_BRAKE_MPS2, CURVE_LATERAL_MPS2
from specdrive_ros.sim.ego import FRONT_FROM_AXLE_M, LENGTH_M, WIDTH_M
from specdrive_ros.sim.paths import PassPath
from specdrive_ros.sim.road import SAMPLE_STEP_M, ZEBRA_LENGTH_M
from specdrive_ros.sim.traffic import Vehicle
from specdrive_ros.sim.walkers import Walker

if TYPE_CHECKING:
    from specdrive_ros.sim.world import World

LEAD_RANGE_M = 55.0
SIGNAL_RANGE_M = 55.0
OBSTACLE_RANGE_M = 55.0
ONCOMING_RANGE_M = 95.0
STOP_SIGN_RANGE_M = 50.0
WALKER_RANGE_M = 42.0
CUT_IN_RANGE_M = 40.0
LANE_END_RANGE_M = 50.0
NEIGHBOUR_RANGE_M = 45.0
LANE_END_WARNING_M = 45.0  # a vehicle this close to the end of its lane is going to merge

CAMERA_FROM_AXLE_M = 1.6
HALF_VIEW = math.tan(math.radians(36.0))  # slightly inside the image's edge
WALKER_CLEARANCE_M = 0.7
REMEMBERED_M = 5.0  # distance of a passed vehicle's centre behind our rear bumper


@dataclass(frozen=True)
class Seen:
    """Facts of one instant; None, "none" or an infinite gap if there is nothing.

    person:        who is at a crossing, or has stepped into the road, nearest first
    person_state:  "none", "waiting", "crossing", "away" or, stepping out from cover, "sudden"
    cut_in:        the vehicle that moves, or is about to move, into our lane ahead
    cut_in_merges: its own lane ends
    lane_end_gap_m: to where our lane begins to narrow
    curve_speed_mps: what the visible curves allow now, so that each is reached slowly enough
    cross_vehicle: a vehicle on its way through the crossing of a stop sign
    """

    lead: Vehicle | None
    lead_gap_m: float
    signal: str
    signal_gap_m: float
    passing: PassPath | None
    obstacle_gap_m: float
    oncoming_gap_m: float
    stop_sign_gap_m: float
    cross_vehicle: Vehicle | None
    zebra_gap_m: float
    person: Walker | None
    person_gap_m: float
    person_state: str
    cut_in: Vehicle | None
    cut_in_gap_m: float
    cut_in_merges: bool
    lane_end_gap_m: float
    curve_speed_mps: float


def look(world: "World") -> Seen:
    """All facts of this instant."""
    front = world.ego_s + FRONT_FROM_AXLE_M
    signal, signal_gap = _signal_ahead(world, front)
    lead, lead_gap = find_lead(world)
    passing, obstacle_gap = _obstacle_ahead(world, front)
    person, person_gap, state = _person_ahead(world, front)
    cut_in, cut_in_gap, merges = _cut_in(world, front)
    sign_gap = _stop_sign_gap(world, front)
    return Seen(
        lead=lead,
        lead_gap_m=lead_gap,
        signal=signal,
        signal_gap_m=signal_gap,
        passing=passing,
        obstacle_gap_m=obstacle_gap,
        oncoming_gap_m=_oncoming_gap(world, front),
        stop_sign_gap_m=sign_gap,
        cross_vehicle=_cross_vehicle(world) if sign_gap < STOP_SIGN_RANGE_M else None,
        zebra_gap_m=_zebra_gap(world, front),
        person=person,
        person_gap_m=person_gap,
        person_state=state,
        cut_in=cut_in,
        cut_in_gap_m=cut_in_gap,
        cut_in_merges=merges,
        lane_end_gap_m=_lane_end_gap(world, front),
        curve_speed_mps=_curve_speed(world.road, world.ego_s, world.ego.speed),
    )


# ---- our lane ---------------------------------------------------------------------------------------------


def find_lead(world: "World") -> tuple[Vehicle | None, float]:
    """The nearest vehicle in the ego's path and the gap to it, bumper to bumper; (None, inf) if none."""
    return nearest_in_lane(world, world.lane_d, LEAD_RANGE_M)


def nearest_in_lane(
    world: "World", lane_d: float, range_m: float, behind_m: float = FRONT_FROM_AXLE_M
) -> tuple[Vehicle | None, float]:
    """The nearest vehicle of our direction in a lane, its centre less than `behind_m` behind our front."""
    front = world.ego_s + FRONT_FROM_AXLE_M
    best, best_gap = None, math.inf
    for vehicle in world.vehicles:
        if vehicle.line is not world.road.line or vehicle.direction < 0 or vehicle.s < front - behind_m:
            continue
        if abs(vehicle.d - lane_d) > 0.5 * (vehicle.size.width_m + WIDTH_M) + 0.1:
            continue
        gap = vehicle.s - 0.5 * vehicle.size.length_m - front
        if gap < min(best_gap, range_m):
            best, best_gap = vehicle, gap
    return best, best_gap


def _signal_ahead(world: "World", front: float) -> tuple[str, float]:
    if world.signal is None:
        return "none", math.inf
    gap = world.signal_intersection.s_stop_m - front
    if gap < 0 or gap > SIGNAL_RANGE_M:
        return "none", math.inf
    return world.signal.colour(world.time_s), gap


def _obstacle_ahead(world: "World", front: float) -> tuple[PassPath | None, float]:
    """The pass path that matters now (seen and not yet completed) and the gap to its obstacle."""
    for passing in world.pass_paths:
        gap = passing.obstacle.s - 0.5 * passing.obstacle.size.length_m - front
        if gap < OBSTACLE_RANGE_M and world.ego_s < passing.s_out_end:
            return passing, gap
    return None, math.inf


def oncoming(world: "World") -> list[Vehicle]:
    """Vehicles that drive towards us on our road; parked ones do not count."""
    return [v for v in world.vehicles if v.direction < 0 and v.line is world.road.line and not v.parked]


def _oncoming_gap(world: "World", front: float) -> float:
    gaps = [v.s - 0.5 * v.size.length_m - front for v in oncoming(world) if v.s > front]
    return min(gaps, default=math.inf)


def _lane_end_gap(world: "World", front: float) -> float:
    """The gap to where our lane ends; it only ends if it is the outer one."""
    end = world.road.lane_end
    if end is None or world.lane_d > world.road.lane_offset(world.road.lanes - 1) + 0.5:
        return math.inf
    gap = end.s_taper_m - front
    return gap if -30.0 < gap < LANE_END_RANGE_M else math.inf


def _curve_speed(road, s: float, speed: float) -> float:
    rows = road.line.rows(s + 0.5, s + 55.0)
    curvature = np.abs(road.line.curvature[rows])
    ahead = np.maximum(np.arange(len(curvature)) * SAMPLE_STEP_M - 0.7 * speed, 0.0)
    return math.sqrt(
        float(np.min(CURVE_LATERAL_MPS2 / np.maximum(curvature, 1e-4) + 2 * CURVE_BRAKE_MPS2 * ahead))
    )


# ---- the lanes beside us ----------------------------------------------------------------------------------


def _cut_in(world: "World", front: float) -> tuple[Vehicle | None, float, bool]:
    """The nearest vehicle ahead that indicates into our lane, or whose own lane is about to end."""
    best, best_gap, merges = None, math.inf, False
    for vehicle in world.vehicles:
        if vehicle.shift is None or abs(vehicle.shift.to_d - world.lane_d) > 1.0:
            continue
        gap = vehicle.s - 0.5 * vehicle.size.length_m - front
        runs_out = vehicle.shift.end_s - vehicle.s < LANE_END_WARNING_M and vehicle.d != vehicle.shift.to_d
        if -2.0 < gap < min(best_gap, CUT_IN_RANGE_M) and (vehicle.moving_over or runs_out):
            best, best_gap, merges = vehicle, gap, vehicle.shift.end_s < math.inf
    return best, best_gap, merges


def neighbour(world: "World", side: str) -> tuple[Vehicle | None, float]:
    """The nearest vehicle ahead or beside us in the next lane of our direction; (None, inf) if free.

    One that we have just passed has left the image, but a driver remembers it.
    """
    lane_d = world.road.beside(world.lane_d, side)
    if lane_d is None:
        return None, math.inf
    return nearest_in_lane(world, lane_d, NEIGHBOUR_RANGE_M, behind_m=LENGTH_M + REMEMBERED_M)


# ---- crossings and people ---------------------------------------------------------------------------------


def _stop_sign_gap(world: "World", front: float) -> float:
    if world.stop_sign is None:
        return math.inf
    gap = world.stop_sign.crossing.s_stop_m - front
    return gap if 0 <= gap < STOP_SIGN_RANGE_M else math.inf


def _cross_vehicle(world: "World") -> Vehicle | None:
    """A vehicle in the image that is past its own stop line and has not yet cleared our lane."""
    cross = world.stop_sign.crossing.cross
    middle = 0.5 * cross.length_m
    for vehicle in world.vehicles:
        if vehicle.line is not cross:
            continue
        along = vehicle.direction * (vehicle.s - middle)  # 0 on our reference line, growing as it drives
        ours = vehicle.direction * -world.lane_d  # the cross line runs from our right to our left
        entered = along + 0.5 * vehicle.size.length_m > -world.road.edge_m - 2.5
        left = along - 0.5 * vehicle.size.length_m > -ours + 0.5 * WIDTH_M + 1.0
        if entered and not left and in_view(world, vehicle):
            return vehicle
    return None


def in_view(world: "World", thing: Vehicle | Walker) -> bool:
    """Whether some part of a vehicle or walker is between the edges of the image."""
    x, y, yaw = thing.pose()
    ego, half = world.ego, 0.5 * thing.size.length_m
    c, s = math.cos(ego.yaw), math.sin(ego.yaw)
    for share in (-1.0, 0.0, 1.0):
        dx = x + share * half * math.cos(yaw) - ego.x
        dy = y + share * half * math.sin(yaw) - ego.y
        forward, left = c * dx + s * dy - CAMERA_FROM_AXLE_M, -s * dx + c * dy
        if forward > 1.0 and abs(left) < HALF_VIEW * forward:
            return True
    return False


def _zebra_gap(world: "World", front: float) -> float:
    gaps = [s - 0.5 * ZEBRA_LENGTH_M - front for s in world.road.zebras]
    return min((gap for gap in gaps if -ZEBRA_LENGTH_M < gap < WALKER_RANGE_M), default=math.inf)


def _person_ahead(world: "World", front: float) -> tuple[Walker | None, float, str]:
    """The person who concerns us most: those in our way before those who walk away."""
    best, best_gap, best_state = None, math.inf, "none"
    for walker in world.walkers:
        gap = walker.s - 0.5 * walker.size.width_m - front
        if not -1.0 < gap < WALKER_RANGE_M or not in_view(world, walker) or _covered(world, walker):
            continue
        state = _state_of(walker, world.lane_d)
        if state == "none":
            continue
        if best is None or (state == "away", gap) < (best_state == "away", best_gap):
            best, best_gap, best_state = walker, gap, state
    return best, best_gap, best_state


def _state_of(walker: Walker, lane_d: float) -> str:
    reach = 0.5 * (WIDTH_M + walker.size.length_m) + WALKER_CLEARANCE_M
    if walker.past(lane_d, reach):
        return "none" if walker.sudden else "away"
    if walker.sudden:
        return "sudden" if walker.moving or walker.crosses(lane_d, reach) else "none"
    return "crossing" if walker.moving else "waiting"


def _covered(world: "World", walker: Walker) -> bool:
    """Whether the vehicle from behind which it came still hides it from the camera."""
    cover = walker.cover
    if cover is None:
        return False
    camera_s, far = world.ego_s + CAMERA_FROM_AXLE_M, cover.s + 0.5 * cover.size.length_m
    if camera_s >= far - 0.5:
        return False
    sight_d = world.ego_d + (walker.d - world.ego_d) * (far - camera_s) / (walker.s - camera_s)
    return abs(sight_d - cover.d) < 0.5 * cover.size.width_m
