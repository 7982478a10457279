"""What each thing ahead allows the expert: one function per constraint, acceleration in m/s² (inf: no limit).

The most careful constraint wins, and its name says why the car brakes. Each gets the world, the facts seen and what
the expert remembers; none changes anything.
"""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from specdrive_ros.sim.control import (
    HARD_BRAKE_MPS2,
    approach,
    brake_at_once,
    braking_needed,
    follow,
    keep_speed,
    speed_before,
    stop_at,
)
from specdrive_ros.sim.ego import FRONT_FROM_AXLE_M
from specdrive_ros.sim.paths import LaneChange
from specdrive_ros.sim.perception import LEAD_RANGE_M, Seen, nearest_in_lane, neighbour

if TYPE_CHECKING:
    from specdrive_ros.sim.expert import Expert
    from specdrive_ros.sim.world import World

MAKE_ROOM_MPS2 = -3.0
OPEN_GAP_MPS2 = -2.0
BEFORE_ZEBRA_M = 0.4
BEFORE_LANE_END_M = 10.0


def cruise(world: "World", seen: Seen, memory: "Expert") -> float:
    return keep_speed(world.ego.speed, world.wanted_mps)


def curve(world: "World", seen: Seen, memory: "Expert") -> float:
    return approach(world.ego.speed, seen.curve_speed_mps)


def lead(world: "World", seen: Seen, memory: "Expert") -> float:
    if memory.change is not None:
        return min(_leaving(world, memory.change), _joining(world, memory.change))
    if seen.lead is None:
        return math.inf
    return _behind(world, seen.lead, seen.lead_gap_m)


def _behind(world: "World", vehicle, gap: float) -> float:
    return follow(world.ego.speed, world.wanted_mps, gap, world.ego.speed - vehicle.speed)


def _leaving(world: "World", change: LaneChange) -> float:
    """The vehicle in the old lane matters as long as we would reach it before we are out of its way."""
    vehicle, gap = nearest_in_lane(world, change.from_d, LEAD_RANGE_M)
    room = change.s_clear() - world.ego_s
    if vehicle is None or room <= 0:
        return math.inf
    closing = max(world.ego.speed - vehicle.speed, 0.0)
    gap_then = gap - closing * room / max(world.ego.speed, 2.0)
    return math.inf if gap_then > 1.5 else _behind(world, vehicle, gap)


def _joining(world: "World", change: LaneChange) -> float:
    vehicle, gap = nearest_in_lane(world, change.to_d, LEAD_RANGE_M)
    return math.inf if vehicle is None else _behind(world, vehicle, gap)


def signal(world: "World", seen: Seen, memory: "Expert") -> float:
    if not memory.stops_for_signal:
        return math.inf
    return stop_at(world.ego.speed, world.wanted_mps, seen.signal_gap_m)


def obstacle(world: "World", seen: Seen, memory: "Expert") -> float:
    passing, s, speed = seen.passing, world.ego_s, world.ego.speed
    if passing is None or s >= passing.s_out_start:
        return math.inf
    return approach(speed, speed_before(passing.speed_mps, passing.s_in_start + 3.0 - s - 0.7 * speed))


def give_way(world: "World", seen: Seen, memory: "Expert") -> float:
    if not memory.yields:
        return math.inf
    room = seen.passing.s_in_start + FRONT_FROM_AXLE_M - world.ego_s
    return stop_at(world.ego.speed, world.wanted_mps, room)


def stop_sign(world: "World", seen: Seen, memory: "Expert") -> float:
    if memory.may_go or seen.stop_sign_gap_m == math.inf:
        return math.inf
    return stop_at(world.ego.speed, world.wanted_mps, seen.stop_sign_gap_m)


def person(world: "World", seen: Seen, memory: "Expert") -> float:
    """Stops before the crossing for people who wait or walk; brakes at once for those who step out."""
    speed, gap = world.ego.speed, seen.person_gap_m
    if seen.person_state in ("none", "away"):
        return math.inf
    if seen.person_state == "sudden":
        return brake_at_once(speed, world.wanted_mps, gap)
    room = min(seen.zebra_gap_m - BEFORE_ZEBRA_M + 1.0, gap)
    too_late = room < 0.3 or braking_needed(speed, room + 1.0) > HARD_BRAKE_MPS2
    if seen.person_state == "waiting" and too_late and speed > 1.0:
        return math.inf
    return brake_at_once(speed, world.wanted_mps, gap) if too_late else stop_at(speed, world.wanted_mps, room)


def cut_in(world: "World", seen: Seen, memory: "Expert") -> float:
    vehicle = seen.cut_in
    if vehicle is None or vehicle is seen.lead:
        return math.inf
    return max(_behind(world, vehicle, max(seen.cut_in_gap_m, 3.0)), MAKE_ROOM_MPS2)


def lane_end(world: "World", seen: Seen, memory: "Expert") -> float:
    """Falls behind a vehicle beside us; does not drive on where the lane ends."""
    if memory.change is not None or seen.lane_end_gap_m == math.inf:
        return math.inf
    stop = stop_at(world.ego.speed, world.wanted_mps, max(seen.lane_end_gap_m - BEFORE_LANE_END_M, 0.1))
    vehicle, gap = neighbour(world, "left")
    return stop if vehicle is None else min(stop, max(_behind(world, vehicle, max(gap, 0.5)), OPEN_GAP_MPS2))


CONSTRAINTS: dict[str, Callable[..., float]] = {
    "cruise": cruise,
    "curve": curve,
    "lead": lead,
    "signal": signal,
    "obstacle": obstacle,
    "yield": give_way,
    "stop_sign": stop_sign,
    "person": person,
    "cut_in": cut_in,
    "lane_end": lane_end,
}
