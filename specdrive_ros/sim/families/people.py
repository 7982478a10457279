"""Families with somebody on the road: a pedestrian at a crossing, or something that steps out from behind a
vehicle."""

import math

import numpy as np

from specdrive_ros.sim.ego import FRONT_FROM_AXLE_M
from specdrive_ros.sim.families.draft import (
    ROAD_AHEAD_M,
    START_S,
    Draft,
    gentle_segments,
    make_road,
    wanted_speed,
)
from specdrive_ros.sim.road import COUNTRY, TOWN, Road, Segment
from specdrive_ros.sim.traffic import COLOURS, SIZES, Vehicle
from specdrive_ros.sim.walkers import HAZARD_KINDS, Walker

PERSON_ID, HAZARD_ID, COVER_ID = 100, 110, 115
WALKING_MPS = (1.1, 1.8)
HAZARD_MPS = {
    "pedestrian": (2.2, 3.0),
    "child": (2.5, 3.5),
    "cyclist": (3.2, 4.2),
    "dog": (3.8, 4.8),
    "ball": (3.8, 5.0),
}
COVERS = {"pedestrian": ("van", "truck"), "cyclist": ("van", "truck")}  # the others fit behind a car


def pedestrian(rng: np.random.Generator, recovery: bool) -> Draft:
    """A crossing where somebody waits, walks or walks away, or nobody is there."""
    kind = TOWN if rng.random() < 0.75 else COUNTRY
    wanted = wanted_speed(rng, kind, recovery)
    lanes = 1 if rng.random() < 0.75 else 2
    s_zebra = START_S + FRONT_FROM_AXLE_M + rng.uniform(38, 62) + 2.0 * wanted
    segments = [Segment(s_zebra + 20.0), *gentle_segments(rng, ROAD_AHEAD_M)]
    road = make_road(rng, kind, segments, lanes, zebras=(s_zebra,))
    draft = Draft(road, int(rng.integers(lanes)), wanted, wanted * rng.uniform(0.97, 1.03), s_zebra + 35.0, 50.0)
    draft.kept_clear = ((s_zebra - 12.0, s_zebra + 8.0),)
    draft.oncoming_most = 1
    variant = rng.choice(("waiting", "crossing", "away", "empty"), p=(0.4, 0.32, 0.16, 0.12))
    if variant != "empty":
        draft.walkers = _people(rng, road, s_zebra, str(variant), wanted)
    return draft


def _people(
    rng: np.random.Generator, road: Road, s_zebra: float, variant: str, wanted: float
) -> list[Walker]:
    side = int(rng.choice((-1, 1)))
    kerb = road.edge_m + rng.uniform(0.5, 0.9)
    begin = {
        "waiting": -math.inf if rng.random() < 0.5 else wanted**2 / 4.4 + 8.0,
        "crossing": rng.uniform(28, 40),
        "away": rng.uniform(40, 55),
    }[variant]
    end = side * (kerb + rng.uniform(4, 7)) if variant == "away" else -side * (kerb + rng.uniform(2, 4))
    people = []
    for number in range(1 if rng.random() < 0.8 else 2):
        s = s_zebra + (rng.uniform(-0.9, 0.9) if number == 0 else 1.4 - 2.8 * rng.random())
        speed = rng.uniform(*WALKING_MPS)
        colour = str(rng.choice(COLOURS))
        people.append(
            Walker(PERSON_ID + number, "pedestrian", colour, road.line, s, side * kerb, end, speed, begin)
        )
    return people


def emergency_stop(rng: np.random.Generator, recovery: bool) -> Draft:
    """A vehicle parked beside the road; mostly, something runs out from behind it."""
    wanted = wanted_speed(rng, TOWN, recovery)
    lanes = 1 if rng.random() < 0.8 else 2
    s_hazard = START_S + FRONT_FROM_AXLE_M + rng.uniform(40, 70) + 2.0 * wanted
    segments = [Segment(s_hazard + 40.0), *gentle_segments(rng, ROAD_AHEAD_M)]
    road = make_road(rng, TOWN, segments, lanes)
    draft = Draft(road, lanes - 1, wanted, wanted * rng.uniform(0.97, 1.03), s_hazard + 40.0, 50.0)
    side = 1 if lanes == 1 and rng.random() < 0.3 else -1
    kind = str(rng.choice(HAZARD_KINDS))
    cover = _parked_cover(rng, road, s_hazard, side, COVERS.get(kind, ("car", "van")))
    draft.vehicles.append(cover)
    draft.kept_clear = ((cover.s - 16.0, s_hazard + 14.0),)
    draft.oncoming_most = 1
    if rng.random() < 0.86:
        draft.walkers.append(_hazard(rng, draft, kind, s_hazard, side, cover))
    return draft


def _parked_cover(
    rng: np.random.Generator, road: Road, s_hazard: float, side: int, kinds: tuple[str, ...]
) -> Vehicle:
    kind = str(rng.choice(kinds))
    size = SIZES[kind]
    s = s_hazard - rng.uniform(0.7, 1.2) - 0.5 * size.length_m
    d = side * (road.edge_m + 0.15 + 0.5 * size.width_m)
    direction = 1 if side < 0 else -1
    colour = str(rng.choice(COLOURS))
    return Vehicle(COVER_ID, kind, colour, road.line, s, d, 0.0, direction, ((0.0, 0.0),), parked=True)


def _hazard(
    rng: np.random.Generator, draft: Draft, kind: str, s: float, side: int, cover: Vehicle
) -> Walker:
    """It stands startled in our lane for a while, so that whoever does not brake hits it."""
    road = draft.road
    return Walker(
        HAZARD_ID,
        kind,
        str(rng.choice(COLOURS)),
        road.line,
        s,
        cover.d,
        to_d=-side * (road.edge_m + rng.uniform(2.5, 4.0)),
        speed=rng.uniform(*HAZARD_MPS[kind]),
        begin_gap_m=rng.uniform(15.0, 20.0) if side < 0 else rng.uniform(19.0, 25.0),
        sudden=True,
        cover=cover,
        freeze_d=draft.lane_d + rng.uniform(-0.4, 0.4),
        freeze_s=rng.uniform(2.0, 3.5),
    )
