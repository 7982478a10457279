"""Families on open road: cruise, and a lead vehicle that brakes, stops or drives away."""

import numpy as np

from specdrive_ros.sim.ego import FRONT_FROM_AXLE_M
from specdrive_ros.sim.families.draft import (
    ROAD_AHEAD_M,
    START_S,
    Draft,
    curvy_segments,
    gentle_segments,
    make_road,
    road_kind,
    wanted_speed,
)
from specdrive_ros.sim.families.surroundings import lead_of


def cruise(rng: np.random.Generator, recovery: bool) -> Draft:
    kind = road_kind(rng)
    wanted = wanted_speed(rng, kind, recovery)
    driven = wanted * rng.uniform(13, 18)
    total = START_S + driven + ROAD_AHEAD_M
    lanes = 1 if rng.random() < 0.7 else 2
    curvy = rng.random() < 0.75
    segments = curvy_segments(rng, kind, total, START_S + rng.uniform(8, 45)) if curvy else gentle_segments(rng, total)
    road = make_road(rng, kind, segments, lanes)
    start = wanted * (rng.uniform(0.5, 0.85) if rng.random() < 0.15 else rng.uniform(0.97, 1.03))
    return Draft(road, int(rng.integers(lanes)), wanted, start, START_S + driven)


def lead_vehicle(rng: np.random.Generator, recovery: bool) -> Draft:
    kind = road_kind(rng)
    wanted = wanted_speed(rng, kind, recovery)
    total = START_S + 20 * wanted + ROAD_AHEAD_M
    lanes = 1 if rng.random() < 0.7 else 2
    segments = gentle_segments(rng, total) if rng.random() < 0.7 else curvy_segments(rng, kind, total, START_S + 60)
    road = make_road(rng, kind, segments, lanes)
    lane = int(rng.integers(lanes))
    standing = not recovery and rng.random() < 0.12
    behaviour = rng.choice(("steady", "brake", "stop_and_go", "drive_away"), p=(0.2, 0.3, 0.35, 0.15))
    speed = 0.0 if standing else wanted * rng.uniform(0.75, 1.0)
    phases = _lead_phases(rng, "stop_and_go" if standing else behaviour, speed, wanted, standing)
    gap = 3.0 + rng.uniform(-0.5, 1.0) if standing else rng.uniform(10, 24) + 0.9 * speed
    lead = lead_of(rng, road, lane, START_S + FRONT_FROM_AXLE_M + gap, speed, phases)
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
