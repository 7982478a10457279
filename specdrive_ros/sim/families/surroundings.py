"""Road users that a family did not place itself: oncoming, parked, bystanders; and how to place one."""

import numpy as np

from specdrive_ros.sim.families.draft import START_S, Draft
from specdrive_ros.sim.road import TOWN, Road
from specdrive_ros.sim.traffic import COLOURS, SIZES, Obstacle, Vehicle


def lead_of(
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


def stand(
    road: Road, number: int, kind: str, colour: str, s: float, d: float, turn: float = 0.0
) -> Obstacle:
    x, y, heading = road.line.pose(s, d)
    return Obstacle(number, kind, colour, s, d, x, y, heading + turn)


def oncoming(rng: np.random.Generator, draft: Draft) -> list[Vehicle]:
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


def parked_aside(rng: np.random.Generator, road: Road) -> list[Vehicle]:
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


def bystanders(rng: np.random.Generator, road: Road) -> list[Obstacle]:
    people = []
    for number in range(int(rng.integers(0, 4)) if road.kind is TOWN else 0):
        s, side = rng.uniform(START_S + 10, START_S + 200), int(rng.choice((-1, 1)))
        if not road.in_intersection(s, 6.0):
            d = side * (road.edge_m + rng.uniform(2.6, 4.5))
            people.append(stand(road, 80 + number, "pedestrian", str(rng.choice(COLOURS)), s, d))
    return people
