"""Families of scenes and how chance fills them in. The same family and seed give the same world.

`python -m specdrive_ros.sim.scenario` drives every family with the expert and prints how it ends.
"""

import argparse
import math
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from specdrive_ros.errors import InputError
from specdrive_ros.sim.ego import FRONT_FROM_AXLE_M
from specdrive_ros.sim.expert import STOP_GAP_M, plan_pass
from specdrive_ros.sim.pinhole import FRONT_CAMERA
from specdrive_ros.sim.road import (
    COUNTRY,
    TOWN,
    Intersection,
    ReferenceLine,
    Road,
    RoadKind,
    Segment,
    make_intersection,
)
from specdrive_ros.sim.scenery import make_scenery
from specdrive_ros.sim.traffic import COLOURS, SIZES, Obstacle, Signal, Vehicle
from specdrive_ros.sim.world import Scene, World

START_S = 30.0
ROAD_AHEAD_M = 260.0
SIGNAL_ID = 900


def make_world(family: str, seed: int, *, recovery: bool = False) -> World:
    """A world of one family. recovery: starts off centre, off heading and off speed, for training.

    Raises InputError for a family that does not exist or a negative seed.
    """
    if family not in BUILDERS:
        raise InputError(f"no scenario family {family!r}: it must be one of {', '.join(FAMILIES)}")
    if seed < 0:
        raise InputError(f"seed {seed} is negative: it must be 0 or more")
    rng = np.random.default_rng(np.random.SeedSequence([seed, zlib.crc32(family.encode()), int(recovery)]))
    draft = BUILDERS[family](rng, recovery)
    return World(_finish(draft, family, seed, rng, recovery))


@dataclass
class Draft:
    """A scene in the making: what a family decides. Distances are along the reference line, metres."""

    road: Road
    lane: int
    wanted_mps: float
    speed_mps: float
    goal_s: float
    time_limit_s: float = 45.0
    standing: bool = False
    oncoming_from_m: float = 90.0
    oncoming_most: int = 3
    vehicles: list[Vehicle] = field(default_factory=list)
    obstacles: list[Obstacle] = field(default_factory=list)
    signal: Signal | None = None
    crossing: Intersection | None = None

    @property
    def lane_d(self) -> float:
        return self.road.lane_offset(self.lane)


# ---- roads ------------------------------------------------------------------------------------------------


def _road_kind(rng: np.random.Generator) -> RoadKind:
    return TOWN if rng.random() < 0.5 else COUNTRY


def _speeds(rng: np.random.Generator, kind: RoadKind, recovery: bool) -> float:
    """The wanted speed: usual for the road, give or take 5 %; exactly usual after a recovery start."""
    return kind.usual_speed_mps * (1.0 if recovery else rng.uniform(0.95, 1.05))


def _curvy(
    rng: np.random.Generator, kind: RoadKind, total_m: float, straight_first_m: float
) -> list[Segment]:
    least, most = (18.0, 80.0) if kind is TOWN else (45.0, 220.0)
    segments, length, sign = [Segment(straight_first_m)], straight_first_m, rng.choice((-1, 1))
    while length < total_m:
        radius = math.exp(rng.uniform(math.log(least), math.log(most)))
        k = sign / radius
        ease = rng.uniform(0.35, 0.6) * radius if radius < 50 else rng.uniform(18, 30)
        arc = radius * rng.uniform(0.2, 0.9)
        bend = [
            Segment(ease, 0.0, k),
            Segment(arc, k, k),
            Segment(ease, k, 0.0),
            Segment(rng.uniform(12, 55)),
        ]
        segments += bend
        length += sum(s.length_m for s in bend)
        sign = -sign if rng.random() < 0.75 else sign
    return segments


def _gentle(rng: np.random.Generator, total_m: float) -> list[Segment]:
    """Straight, or one long slight bend."""
    if rng.random() < 0.5:
        return [Segment(total_m)]
    k = rng.uniform(-1, 1) / 130.0
    first = rng.uniform(30, 80)
    return [
        Segment(first),
        Segment(30, 0, k),
        Segment(rng.uniform(20, 90), k, k),
        Segment(30, k, 0),
        Segment(total_m),
    ]


def _road(rng: np.random.Generator, kind: RoadKind, segments: list[Segment], lanes: int) -> Road:
    line = ReferenceLine(segments, heading=rng.uniform(-math.pi, math.pi))
    return Road(line, kind, lanes, centre_solid=bool(lanes > 1 or rng.random() < 0.4))


# ---- families ---------------------------------------------------------------------------------------------


def _cruise(rng: np.random.Generator, recovery: bool) -> Draft:
    kind = _road_kind(rng)
    wanted = _speeds(rng, kind, recovery)
    driven = wanted * rng.uniform(13, 18)
    total = START_S + driven + ROAD_AHEAD_M
    lanes = 1 if rng.random() < 0.7 else 2
    curvy = rng.random() < 0.75
    segments = _curvy(rng, kind, total, START_S + rng.uniform(8, 45)) if curvy else _gentle(rng, total)
    road = _road(rng, kind, segments, lanes)
    start = wanted * (rng.uniform(0.5, 0.85) if rng.random() < 0.15 else rng.uniform(0.97, 1.03))
    return Draft(road, int(rng.integers(lanes)), wanted, start, START_S + driven)


def _lead_vehicle(rng: np.random.Generator, recovery: bool) -> Draft:
    kind = _road_kind(rng)
    wanted = _speeds(rng, kind, recovery)
    total = START_S + 20 * wanted + ROAD_AHEAD_M
    lanes = 1 if rng.random() < 0.7 else 2
    segments = _gentle(rng, total) if rng.random() < 0.7 else _curvy(rng, kind, total, START_S + 60)
    road = _road(rng, kind, segments, lanes)
    lane = int(rng.integers(lanes))
    standing = not recovery and rng.random() < 0.12
    behaviour = rng.choice(("steady", "brake", "stop_and_go", "drive_away"), p=(0.2, 0.3, 0.35, 0.15))
    speed = 0.0 if standing else wanted * rng.uniform(0.75, 1.0)
    phases = _lead_phases(rng, "stop_and_go" if standing else behaviour, speed, wanted, standing)
    gap = 3.0 + rng.uniform(-0.5, 1.0) if standing else rng.uniform(10, 24) + 0.9 * speed
    lead = _lead(rng, road, lane, START_S + FRONT_FROM_AXLE_M + gap, speed, phases)
    travelled = _distance(phases, 22.0)
    driven = max(30.0, min(wanted * rng.uniform(14, 18), travelled + gap - 15.0))
    start = 0.0 if standing else min(wanted, speed * rng.uniform(1.0, 1.1))
    return Draft(road, lane, wanted, start, START_S + driven, standing=standing, vehicles=[lead])


def _lead_phases(rng: np.random.Generator, behaviour: str, speed: float, wanted: float, standing: bool):
    begin = rng.uniform(2.0, 5.0)
    if standing:
        return ((0.0, 0.0), (begin, wanted * rng.uniform(0.8, 1.1)))
    if behaviour == "steady":
        return ((0.0, speed),)
    if behaviour == "brake":
        return ((0.0, speed), (begin, speed * rng.uniform(0.3, 0.6)), (begin + rng.uniform(4, 7), speed))
    if behaviour == "stop_and_go":
        return ((0.0, speed), (begin, 0.0), (begin + rng.uniform(6, 9), wanted * rng.uniform(0.7, 1.0)))
    return ((0.0, speed * 0.9), (begin, wanted * rng.uniform(1.2, 1.4)))


def _distance(phases, duration_s: float) -> float:
    ends = [start for start, _ in phases[1:]] + [duration_s]
    return sum(0.8 * speed * (end - start) for (start, speed), end in zip(phases, ends))


def _lead(
    rng: np.random.Generator, road: Road, lane: int, s_back: float, speed: float, phases, kinds=None
) -> Vehicle:
    kind = str(rng.choice(kinds or ("car", "car", "car", "van", "truck")))
    s = s_back + 0.5 * SIZES[kind].length_m
    d = road.lane_offset(lane) + rng.uniform(-0.15, 0.15)
    return Vehicle(
        1,
        kind,
        str(rng.choice(COLOURS)),
        road.line,
        s,
        d,
        speed,
        phases=phases,
        deceleration_mps2=rng.uniform(1.5, 3.2),
        braking=speed == 0.0,
    )


def _traffic_light(rng: np.random.Generator, recovery: bool) -> Draft:
    kind = TOWN if rng.random() < 0.7 else COUNTRY
    wanted = _speeds(rng, kind, recovery)
    lanes = 1 if rng.random() < 0.6 else 2
    standing = not recovery and rng.random() < 0.12
    reach = STOP_GAP_M + rng.uniform(0.0, 0.6) if standing else rng.uniform(25, 50) + 3.0 * wanted
    s_stop = START_S + FRONT_FROM_AXLE_M + reach
    half_width = rng.uniform(3.6, 5.5)
    goal = s_stop + 2 * half_width + 30.0
    straight = [Segment(s_stop + 70)]
    segments = (
        straight + [Segment(ROAD_AHEAD_M)] if rng.random() < 0.5 else straight + _gentle(rng, ROAD_AHEAD_M)
    )
    road = _road(rng, kind, segments, lanes)
    crossing = make_intersection(road.line, s_stop, half_width)
    road = Road(road.line, kind, lanes, road.centre_solid, (crossing,))
    lane = int(rng.integers(lanes))
    draft = Draft(road, lane, wanted, 0.0 if standing else wanted, goal, 50.0, standing, oncoming_from_m=60.0)
    draft.crossing = crossing
    draft.signal = _signal(rng, "red" if standing else None, reach / wanted)
    if not standing and rng.random() < 0.25:
        gap = rng.uniform(12, 22)
        if gap + 12 < reach:
            back = START_S + FRONT_FROM_AXLE_M + gap
            draft.vehicles.append(_lead(rng, road, lane, back, wanted, ((0.0, wanted),), kinds=("car",)))
    draft.vehicles += _cross_traffic(rng, crossing)
    return draft


def _signal(rng: np.random.Generator, variant: str | None, arrival_s: float) -> Signal:
    """A cycle placed so that the approach meets red, green, a change to yellow or a change to green."""
    green, yellow, red = rng.uniform(8, 12), 3.0, rng.uniform(8, 11)
    variant = variant or str(rng.choice(("red", "green", "to_yellow", "to_green"), p=(0.35, 0.2, 0.3, 0.15)))
    cycle = green + yellow + red
    if variant == "to_yellow":
        offset = green - arrival_s * rng.uniform(0.3, 1.0)
    elif variant == "green":
        offset = green - arrival_s - rng.uniform(3.0, 6.0)
    elif variant == "to_green":
        offset = cycle - arrival_s * rng.uniform(0.4, 0.9)
    else:
        offset = cycle - arrival_s - rng.uniform(2.0, 5.5)
    return Signal(SIGNAL_ID, green, yellow, red, offset % cycle)


def _cross_traffic(rng: np.random.Generator, crossing: Intersection) -> list[Vehicle]:
    vehicles, middle = [], 0.5 * crossing.cross.length_m
    for number, direction in enumerate((1, -1)):
        if rng.random() < 0.55:
            s = middle - direction * rng.uniform(14, 60)
            d = -direction * 0.5 * crossing.half_width_m
            kind = str(rng.choice(("car", "car", "van")))
            vehicles.append(
                Vehicle(
                    20 + number,
                    kind,
                    str(rng.choice(COLOURS)),
                    crossing.cross,
                    s,
                    d,
                    7.0,
                    direction,
                    ((0.0, 8.0),),
                )
            )
    return vehicles


def _obstacle(rng: np.random.Generator, recovery: bool) -> Draft:
    kind = _road_kind(rng)
    wanted = _speeds(rng, kind, recovery)
    lanes = 1 if rng.random() < 0.6 else 2
    lane = int(rng.integers(lanes))
    s_obstacle = START_S + FRONT_FROM_AXLE_M + rng.uniform(48, 62) + 2.0 * wanted
    total = s_obstacle + ROAD_AHEAD_M + 60
    segments = [Segment(total)] if rng.random() < 0.5 else _gentle(rng, total)
    road = _road(rng, kind, segments, lanes)
    obstacle = _obstacle_in_lane(rng, road, lane, s_obstacle)
    path = plan_pass(obstacle, road.lane_offset(lane), road.edge_m, wanted)
    draft = Draft(road, lane, wanted, wanted * rng.uniform(0.97, 1.03), path.s_out_end + 15.0, 50.0)
    draft.obstacles.append(obstacle)
    draft.oncoming_most = 2
    if lanes == 1 and path.side == "left":
        draft.oncoming_most = int(rng.random() < 0.3)
        if draft.oncoming_most == 0 and rng.random() < 0.45:
            draft.vehicles.append(_contender(rng, road, s_obstacle, (path.s_in_start - START_S) / wanted))
    return draft


def _contender(rng: np.random.Generator, road: Road, s_obstacle: float, arrival_s: float) -> Vehicle:
    """An oncoming vehicle that reaches the obstacle when we do: it has the way."""
    speed = road.kind.usual_speed_mps * rng.uniform(0.75, 0.95)
    s = s_obstacle + rng.uniform(10, 45) + speed * arrival_s
    kind = str(rng.choice(("car", "van", "truck")))
    return Vehicle(
        30, kind, str(rng.choice(COLOURS)), road.line, s, -road.lane_offset(0), speed, -1, ((0.0, speed),)
    )


def _obstacle_in_lane(rng: np.random.Generator, road: Road, lane: int, s: float) -> Obstacle:
    """A thing that needs room made for it and that can be passed; drawn again until it is so."""
    lane_d = road.lane_offset(lane)
    while True:
        kind = str(rng.choice(("car", "car", "van", "cones", "box")))
        spread = 0.9 if kind in ("car", "van") else 1.1
        d = lane_d + rng.uniform(-spread, spread if road.lanes == 2 or kind in ("cones", "box") else 0.0)
        obstacle = _stand(road, 10, kind, str(rng.choice(COLOURS)), s, d, rng.uniform(-0.06, 0.06))
        path = plan_pass(obstacle, lane_d, road.edge_m, road.kind.usual_speed_mps)
        if path is not None and 0.7 < abs(path.pass_d - lane_d) < 3.6:
            return obstacle


def _stand(
    road: Road, number: int, kind: str, colour: str, s: float, d: float, turn: float = 0.0
) -> Obstacle:
    x, y, heading = road.line.pose(s, d)
    return Obstacle(number, kind, colour, s, d, x, y, heading + turn)


BUILDERS: dict[str, Callable[[np.random.Generator, bool], Draft]] = {
    "cruise": _cruise,
    "lead_vehicle": _lead_vehicle,
    "traffic_light": _traffic_light,
    "obstacle": _obstacle,
}
FAMILIES: tuple[str, ...] = tuple(BUILDERS)


# ---- what all families share ------------------------------------------------------------------------------


def _finish(draft: Draft, family: str, seed: int, rng: np.random.Generator, recovery: bool) -> Scene:
    draft.vehicles += _oncoming(rng, draft)
    draft.vehicles += _parked_aside(rng, draft.road)
    draft.obstacles += _pedestrians(rng, draft.road)
    offset, turn, speed = rng.uniform(-0.12, 0.12), rng.uniform(-0.008, 0.008), draft.speed_mps
    if recovery:
        offset, turn, speed = _recovery_start(rng, draft.speed_mps)
    return Scene(
        family=family,
        seed=seed,
        road=draft.road,
        lane_d=draft.lane_d,
        wanted_mps=draft.wanted_mps,
        start_s=START_S,
        start_d=draft.lane_d + offset,
        start_heading_error=turn,
        start_speed_mps=speed,
        goal_s=draft.goal_s,
        time_limit_s=draft.time_limit_s,
        vehicles=draft.vehicles,
        obstacles=draft.obstacles,
        signal=draft.signal,
        signal_intersection=draft.crossing,
        scenery=make_scenery(draft.road, rng, FRONT_CAMERA.fx),
    )


def _recovery_start(rng: np.random.Generator, speed: float) -> tuple[float, float, float]:
    """Offset (m), heading error (rad), speed (m/s) that a good driver can recover from within the road."""
    while True:
        offset, turn = rng.uniform(-1.2, 1.2), math.radians(rng.uniform(-8.0, 8.0))
        start = speed * rng.uniform(0.6, 1.4)
        drift = math.copysign(0.5 * turn * turn * max(start, 3.0) ** 2 / 2.2, turn)
        if abs(offset + drift) < 1.15:
            return offset, turn, start


def _oncoming(rng: np.random.Generator, draft: Draft) -> list[Vehicle]:
    road, vehicles = draft.road, []
    s = START_S + draft.oncoming_from_m + rng.uniform(0, 60)
    for number in range(int(rng.integers(0, draft.oncoming_most + 1))):
        speed = road.kind.usual_speed_mps * rng.uniform(0.8, 1.05)
        d = -road.lane_offset(int(rng.integers(road.lanes)))
        kind = str(rng.choice(("car", "car", "van", "truck")))
        vehicles.append(
            Vehicle(40 + number, kind, str(rng.choice(COLOURS)), road.line, s, d, speed, -1, ((0.0, speed),))
        )
        s += rng.uniform(35, 90)
    return vehicles


def _parked_aside(rng: np.random.Generator, road: Road) -> list[Vehicle]:
    if road.kind is not TOWN:
        return []
    vehicles = []
    for number in range(int(rng.integers(0, 5))):
        s, side = rng.uniform(START_S + 15, START_S + 220), int(rng.choice((-1, 1)))
        if road.in_intersection(s, 12.0) or any(abs(v.s - s) < 7 and v.d * side > 0 for v in vehicles):
            continue
        vehicles.append(
            Vehicle(
                60 + number,
                "car",
                str(rng.choice(COLOURS)),
                road.line,
                s,
                side * (road.edge_m + 1.3),
                0.0,
                -side if side > 0 else 1,
                ((0.0, 0.0),),
                parked=True,
            )
        )
    return vehicles


def _pedestrians(rng: np.random.Generator, road: Road) -> list[Obstacle]:
    people = []
    for number in range(int(rng.integers(0, 4)) if road.kind is TOWN else 0):
        s, side = rng.uniform(START_S + 10, START_S + 200), int(rng.choice((-1, 1)))
        if not road.in_intersection(s, 6.0):
            d = side * (road.edge_m + rng.uniform(2.6, 4.5))
            people.append(_stand(road, 80 + number, "pedestrian", str(rng.choice(COLOURS)), s, d))
    return people


def main() -> None:
    """Lets the expert drive and prints outcomes per family."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--recovery", action="store_true")
    options = parser.parse_args()
    for family in FAMILIES:
        endings, seconds = Counter(), []
        for seed in range(options.seeds):
            world = make_world(family, seed, recovery=options.recovery)
            while world.outcome() is None:
                world.step(0.05, world.expert_command())
            endings[world.outcome().name] += 1
            seconds.append(world.time_s)
            if world.outcome().name != "success":
                print(f"  {family} seed {seed}: {world.outcome().name}, {world.outcome().why}")
        print(
            f"{family:14} {dict(endings)}  {np.mean(seconds):.1f} s on average, longest {max(seconds):.1f} s"
        )


if __name__ == "__main__":
    main()
