"""Families about lanes of one direction: a vehicle cuts in, a lane ends, a crawling vehicle is overtaken."""

import numpy as np

from specdrive_ros.sim.ego import FRONT_FROM_AXLE_M
from specdrive_ros.sim.families.draft import (
    ROAD_AHEAD_M,
    START_S,
    Draft,
    gentle_segments,
    make_road,
    road_kind,
    wanted_speed,
)
from specdrive_ros.sim.road import LaneEnd, Road, Segment
from specdrive_ros.sim.traffic import COLOURS, SIZES, LaneShift, Vehicle

OTHER_ID, SLOW_ID = 2, 1
TAPER_BEGINS_BEFORE_M = 6.0


def _vehicle(
    rng: np.random.Generator, number: int, road: Road, lane: int, gap: float, speed: float, phases=None
) -> Vehicle:
    """A vehicle whose rear is `gap` metres ahead of the ego's front at the start."""
    kind = str(rng.choice(("car", "car", "car", "van", "truck")))
    s = START_S + FRONT_FROM_AXLE_M + gap + 0.5 * SIZES[kind].length_m
    d = road.lane_offset(lane) + rng.uniform(-0.15, 0.15)
    colour = str(rng.choice(COLOURS))
    return Vehicle(number, kind, colour, road.line, s, d, speed, phases=phases or ((0.0, speed),))


def _two_lanes(rng: np.random.Generator, recovery: bool, driven_s: tuple[float, float]):
    """(road, wanted speed, length driven) of a road with two lanes per direction."""
    kind = road_kind(rng)
    wanted = wanted_speed(rng, kind, recovery)
    driven = wanted * rng.uniform(*driven_s)
    segments = [Segment(START_S + 40.0), *gentle_segments(rng, driven + ROAD_AHEAD_M)]
    return make_road(rng, kind, segments, 2), wanted, driven


def cut_in(rng: np.random.Generator, recovery: bool) -> Draft:
    """A slower vehicle in the next lane moves over into ours; sometimes it does not."""
    road, wanted, driven = _two_lanes(rng, recovery, (13, 17))
    lane = int(rng.integers(2))
    speed = wanted * rng.uniform(0.78, 0.92)
    later = wanted * (rng.uniform(0.45, 0.7) if rng.random() < 0.3 else rng.uniform(0.85, 1.0))
    phases = ((0.0, speed), (rng.uniform(8, 11), later))
    other = _vehicle(rng, OTHER_ID, road, 1 - lane, rng.uniform(10, 22), speed, phases)
    begin_gap, duration = rng.uniform(6.5, 14), rng.uniform(2.2, 3.6)
    if rng.random() < 0.82:
        other.shift = LaneShift(other.d, road.lane_offset(lane), duration, begin_gap)
    return Draft(road, lane, wanted, wanted, START_S + driven, vehicles=[other])


def merge(rng: np.random.Generator, recovery: bool) -> Draft:
    """The outer lane ends: either ours, and we merge, or the next one, and somebody merges ahead of us."""
    road, wanted, _ = _two_lanes(rng, recovery, (18, 18))
    s_taper = START_S + FRONT_FROM_AXLE_M + rng.uniform(55, 75) + 2.5 * wanted
    end = LaneEnd(s_taper, s_taper + rng.uniform(30, 42), road.kind.lane_width_m)
    road = Road(road.line, road.kind, 2, road.centre_solid, lane_end=end)
    ours_ends = rng.random() < 0.5
    draft = Draft(road, 1 if ours_ends else 0, wanted, wanted, end.s_end_m + 40.0, 50.0)
    draft.free_lanes = True
    if not ours_ends:
        draft.vehicles.append(_merging(rng, road, end, wanted))
    elif rng.random() < 0.6:
        gap = rng.uniform(-1.0, 8.0) + (10.0 if recovery else 0.0)  # a fast start must not pass it
        draft.vehicles.append(_vehicle(rng, OTHER_ID, road, 0, gap, wanted * rng.uniform(0.95, 1.02)))
    return draft


def _merging(rng: np.random.Generator, road: Road, end: LaneEnd, wanted: float) -> Vehicle:
    speed = wanted * rng.uniform(0.82, 0.95)
    other = _vehicle(rng, OTHER_ID, road, 1, rng.uniform(6.0, 18.0), speed)
    begin_s = end.s_taper_m - rng.uniform(8, 28)
    last_s = end.s_taper_m + TAPER_BEGINS_BEFORE_M
    other.shift = LaneShift(
        other.d, road.lane_offset(0), rng.uniform(2.2, 3.2), begin_s=begin_s, end_s=last_s
    )
    return other


def lane_change(rng: np.random.Generator, recovery: bool) -> Draft:
    """A vehicle with its hazard lights on crawls ahead; the next lane is free, at once or after a while."""
    road, wanted, _ = _two_lanes(rng, recovery, (28, 28))
    lane = int(rng.integers(2))
    gap, speed = rng.uniform(30, 50) + 1.5 * wanted, wanted * rng.uniform(0.28, 0.45)
    slow = _vehicle(rng, SLOW_ID, road, lane, gap, speed)
    slow.hazard_lights = True
    catch_up_s = gap / (wanted - speed)
    draft = Draft(road, lane, wanted, wanted, 0.0, vehicles=[slow])
    draft.free_lanes = True
    if rng.random() < 0.45:
        share = rng.uniform(0.55, 0.75)
        ahead = gap + speed * catch_up_s - share * wanted * catch_up_s + rng.uniform(-12.0, 2.0)
        draft.vehicles.append(_vehicle(rng, OTHER_ID, road, 1 - lane, max(ahead, 2.0), share * wanted))
    limit_s = catch_up_s + 26.0
    draft.goal_s = START_S + gap + speed * (limit_s + 3.0)  # behind the slow vehicle, it cannot be reached in time
    draft.time_limit_s = limit_s
    return draft
