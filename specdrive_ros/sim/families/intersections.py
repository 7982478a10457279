"""Families with a cross road: a traffic light, and an all-way stop."""

import numpy as np

from specdrive_ros.sim.control import STOP_GAP_M
from specdrive_ros.sim.ego import FRONT_FROM_AXLE_M
from specdrive_ros.sim.families.draft import ROAD_AHEAD_M, START_S, Draft, gentle_segments, make_road, wanted_speed
from specdrive_ros.sim.families.surroundings import lead_of
from specdrive_ros.sim.road import COUNTRY, TOWN, Intersection, Road, Segment, make_intersection
from specdrive_ros.sim.traffic import COLOURS, Signal, StopSign, Vehicle

SIGNAL_ID = 900
STOP_SIGN_ID = 901


def traffic_light(rng: np.random.Generator, recovery: bool) -> Draft:
    kind = TOWN if rng.random() < 0.7 else COUNTRY
    wanted = wanted_speed(rng, kind, recovery)
    lanes = 1 if rng.random() < 0.6 else 2
    standing = not recovery and rng.random() < 0.12
    reach = STOP_GAP_M + rng.uniform(0.0, 0.6) if standing else rng.uniform(25, 50) + 3.0 * wanted
    s_stop = START_S + FRONT_FROM_AXLE_M + reach
    half_width = rng.uniform(3.6, 5.5)
    goal = s_stop + 2 * half_width + 30.0
    straight = [Segment(s_stop + 70)]
    segments = (
        straight + [Segment(ROAD_AHEAD_M)] if rng.random() < 0.5 else straight + gentle_segments(rng, ROAD_AHEAD_M)
    )
    road = make_road(rng, kind, segments, lanes)
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
            draft.vehicles.append(lead_of(rng, road, lane, back, wanted, ((0.0, wanted),), kinds=("car",)))
    draft.vehicles += cross_traffic(rng, crossing)
    return draft


def _signal(rng: np.random.Generator, variant: str | None, arrival_s: float) -> Signal:
    """A signal whose cycle is placed so that the approach meets red, green, a change to yellow or a change to
    green."""
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


def cross_traffic(rng: np.random.Generator, crossing: Intersection) -> list[Vehicle]:
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


def stop_sign(rng: np.random.Generator, recovery: bool) -> Draft:
    """An all-way stop; sometimes a vehicle that was there first crosses while we stand."""
    kind = TOWN if rng.random() < 0.7 else COUNTRY
    wanted = wanted_speed(rng, kind, recovery)
    lanes = 1 if rng.random() < 0.75 else 2
    reach = rng.uniform(25, 50) + 2.5 * wanted
    s_stop = START_S + FRONT_FROM_AXLE_M + reach
    half_width = rng.uniform(3.6, 5.0)
    segments = [Segment(s_stop + 60), *gentle_segments(rng, ROAD_AHEAD_M)]
    road = make_road(rng, kind, segments, lanes)
    crossing = make_intersection(road.line, s_stop, half_width)
    road = Road(road.line, kind, lanes, road.centre_solid, (crossing,))
    draft = Draft(road, lanes - 1, wanted, wanted, s_stop + 2 * half_width + 30.0, 50.0)
    draft.stop_sign = StopSign(STOP_SIGN_ID, crossing)
    draft.oncoming_most = 0
    arrival_s = reach / wanted + 3.0
    for number, direction in enumerate((1, -1)):
        if rng.random() < 0.45:
            draft.vehicles.append(_crossing_at(rng, crossing, number, direction, arrival_s))
    return draft


def _crossing_at(
    rng: np.random.Generator, crossing: Intersection, number: int, direction: int, arrival_s: float
) -> Vehicle:
    """A vehicle that starts so as to reach the crossing at about the same time as the ego."""
    way, speed = rng.uniform(25, 55), rng.uniform(5.5, 8.0)
    begin = max(0.0, arrival_s + rng.uniform(-2.5, 2.5) - way / speed - 2.0)
    return Vehicle(
        20 + number,
        str(rng.choice(("car", "car", "van"))),
        str(rng.choice(COLOURS)),
        crossing.cross,
        0.5 * crossing.cross.length_m - direction * way,
        -direction * 0.5 * crossing.half_width_m,
        0.0,
        direction,
        ((0.0, 0.0), (begin, speed)),
    )
