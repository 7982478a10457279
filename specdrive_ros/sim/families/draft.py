"""A scene being built, and the roads that families of scenes are laid out on."""

import math
from dataclasses import dataclass, field

import numpy as np

from specdrive_ros.sim.road import COUNTRY, TOWN, Intersection, ReferenceLine, Road, RoadKind, Segment
from specdrive_ros.sim.traffic import Obstacle, Signal, StopSign, Vehicle
from specdrive_ros.sim.walkers import Walker

START_S = 30.0
ROAD_AHEAD_M = 260.0


@dataclass
class Draft:
    """A scene being built: what a family decides. Distances are along the reference line, metres."""

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
    walkers: list[Walker] = field(default_factory=list)
    stop_sign: StopSign | None = None
    free_lanes: bool = False
    kept_clear: tuple[tuple[float, float], ...] = ()  # stretches without parked cars and bystanders

    def is_clear_of(self, s: float) -> bool:
        return any(first < s < last for first, last in self.kept_clear)

    @property
    def lane_d(self) -> float:
        return self.road.lane_offset(self.lane)


def road_kind(rng: np.random.Generator) -> RoadKind:
    return TOWN if rng.random() < 0.5 else COUNTRY


def wanted_speed(rng: np.random.Generator, kind: RoadKind, recovery: bool) -> float:
    """The wanted speed: usual for the road, give or take 5 %; exactly usual after a recovery start."""
    return kind.usual_speed_mps * (1.0 if recovery else rng.uniform(0.95, 1.05))


def curvy_segments(
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


def gentle_segments(rng: np.random.Generator, total_m: float) -> list[Segment]:
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


def make_road(rng: np.random.Generator, kind: RoadKind, segments: list[Segment], lanes: int, **parts) -> Road:
    """A road on these segments. parts: further arguments of `Road`, such as zebras."""
    line = ReferenceLine(segments, heading=rng.uniform(-math.pi, math.pi))
    return Road(line, kind, lanes, centre_solid=bool(lanes > 1 or rng.random() < 0.4), **parts)
