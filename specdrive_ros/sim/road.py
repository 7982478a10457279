"""Roads: a reference line made of straights, clothoids and arcs, its lanes and its intersections.

The reference line is the centre of the road, where the two directions of travel meet. Arc length `s` grows in the
ego's direction of travel, the offset `d` is positive to the left. Right-hand traffic: the ego's lanes have negative
offsets. Knows nothing about vehicles, signals or images.
"""

import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from specdrive_ros.errors import InputError

SAMPLE_STEP_M = 0.5


@dataclass(frozen=True)
class Segment:
    """A piece of road whose curvature (1/m, left positive) changes linearly: straight, arc or clothoid."""

    length_m: float
    curvature_start: float = 0.0
    curvature_end: float = 0.0


class ReferenceLine:
    """Sampled at `SAMPLE_STEP_M`: xy [N, 2], heading [N], curvature [N], normal [N, 2] (to the left)."""

    def __init__(self, segments: list[Segment], x: float = 0.0, y: float = 0.0, heading: float = 0.0):
        if not segments:
            raise InputError("a reference line has no segments; give at least one")
        self.curvature = _sample_curvature(segments)
        middle = 0.5 * (self.curvature[1:] + self.curvature[:-1])
        self.heading = heading + np.concatenate([[0.0], np.cumsum(middle * SAMPLE_STEP_M)])
        between = 0.5 * (self.heading[1:] + self.heading[:-1])
        steps = SAMPLE_STEP_M * np.stack([np.cos(between), np.sin(between)], 1)
        self.xy = np.concatenate([[[x, y]], [[x, y]] + np.cumsum(steps, 0)])
        self.normal = np.stack([-np.sin(self.heading), np.cos(self.heading)], 1)
        self.length_m = (len(self.curvature) - 1) * SAMPLE_STEP_M

    def _index(self, s: float) -> tuple[int, float]:
        position = min(max(s / SAMPLE_STEP_M, 0.0), len(self.curvature) - 1.001)
        index = int(position)
        return index, position - index

    def pose(self, s: float, d: float = 0.0) -> tuple[float, float, float]:
        """x, y (m), heading (rad) at arc length s (clamped to the line) and offset d."""
        i, f = self._index(s)
        heading = self.heading[i] * (1 - f) + self.heading[i + 1] * f
        x = self.xy[i, 0] * (1 - f) + self.xy[i + 1, 0] * f - d * math.sin(heading)
        y = self.xy[i, 1] * (1 - f) + self.xy[i + 1, 1] * f + d * math.cos(heading)
        return float(x), float(y), float(heading)

    def curvature_at(self, s: float) -> float:
        i, f = self._index(s)
        return float(self.curvature[i] * (1 - f) + self.curvature[i + 1] * f)

    def heading_at(self, s: float) -> float:
        i, f = self._index(s)
        return float(self.heading[i] * (1 - f) + self.heading[i + 1] * f)

    def locate(self, x: float, y: float, s_near: float) -> tuple[float, float]:
        """Arc length and offset of a point, searched from `s_near` (an earlier value)."""
        s = s_near
        for _ in range(3):
            px, py, heading = self.pose(s)
            along = (x - px) * math.cos(heading) + (y - py) * math.sin(heading)
            s = min(max(s + along, 0.0), self.length_m)
            if abs(along) < 1e-3:
                break
        px, py, heading = self.pose(s)
        return s, -(x - px) * math.sin(heading) + (y - py) * math.cos(heading)

    def rows(self, s_first: float, s_last: float) -> slice:
        """Samples between two arc lengths, as a slice of the arrays."""
        first = max(int(s_first / SAMPLE_STEP_M), 0)
        last = min(int(s_last / SAMPLE_STEP_M) + 1, len(self.curvature))
        return slice(first, max(last, first + 1))


def _sample_curvature(segments: list[Segment]) -> np.ndarray:
    ends = np.concatenate([[0.0], np.cumsum([segment.length_m for segment in segments])])
    s = np.arange(int(ends[-1] / SAMPLE_STEP_M) + 1) * SAMPLE_STEP_M
    which = np.clip(np.searchsorted(ends, s, side="right") - 1, 0, len(segments) - 1)
    start = np.array([segment.curvature_start for segment in segments])[which]
    end = np.array([segment.curvature_end for segment in segments])[which]
    length = np.array([segment.length_m for segment in segments])[which]
    return start + (end - start) * (s - ends[which]) / length


@dataclass(frozen=True)
class RoadKind:
    """A kind of road as a driver sees it, and the speed driven there."""

    name: str
    usual_speed_mps: float
    lane_width_m: float
    shoulder_m: float


TOWN = RoadKind("town", 9.0, 3.3, 0.5)
COUNTRY = RoadKind("country", 13.0, 3.6, 0.9)


@dataclass(frozen=True)
class Intersection:
    """A cross road at right angles. `s_stop_m` is the ego's stop line; the crossing extends from begin to end."""

    s_stop_m: float
    half_width_m: float
    gap_m: float = 3.0
    cross: ReferenceLine | None = field(default=None, compare=False)

    @property
    def s_begin_m(self) -> float:
        return self.s_stop_m + self.gap_m

    @property
    def s_centre_m(self) -> float:
        return self.s_begin_m + self.half_width_m

    @property
    def s_end_m(self) -> float:
        return self.s_begin_m + 2 * self.half_width_m

    @property
    def s_oncoming_stop_m(self) -> float:
        return self.s_end_m + self.gap_m


CROSS_HALF_LENGTH_M = 70.0
ZEBRA_LENGTH_M = 3.2  # along the road


@dataclass(frozen=True)
class LaneEnd:
    """The outer lane of the ego's direction narrows to nothing between two arc lengths."""

    s_taper_m: float
    s_end_m: float
    width_m: float

    def lost_width(self, s):
        """Metres by which the right edge has moved in at arc length s (a number or an array)."""
        return self.width_m * np.clip((s - self.s_taper_m) / (self.s_end_m - self.s_taper_m), 0.0, 1.0)


@dataclass(frozen=True)
class Road:
    """A road with one or two lanes per direction. zebras: arc lengths of the middle of pedestrian crossings."""

    line: ReferenceLine
    kind: RoadKind
    lanes: int
    centre_solid: bool
    intersections: tuple[Intersection, ...] = ()
    zebras: tuple[float, ...] = ()
    lane_end: LaneEnd | None = None

    @cached_property
    def edge_m(self) -> float:
        """Distance of the pavement's edge from the reference line."""
        return self.lanes * self.kind.lane_width_m + self.kind.shoulder_m

    def right_edge_m(self, s: float) -> float:
        """Distance of the right edge of the pavement from the reference line."""
        return self.edge_m - float(self.lane_end.lost_width(s)) if self.lane_end else self.edge_m

    def beside(self, lane_d: float, side: str) -> float | None:
        """Offset of the next lane of the ego's direction on that side of a lane; None if there is none."""
        offset = lane_d + (self.kind.lane_width_m if side == "left" else -self.kind.lane_width_m)
        return offset if -self.lanes * self.kind.lane_width_m < offset < 0 else None

    def lane_offset(self, lane: int) -> float:
        """Offset of the centre of a lane of the ego's direction; lane 0 is next to the centre line."""
        return -(lane + 0.5) * self.kind.lane_width_m

    def in_intersection(self, s: float, margin_m: float = 0.0) -> bool:
        return any(i.s_stop_m - margin_m <= s <= i.s_oncoming_stop_m + margin_m for i in self.intersections)


def make_intersection(line: ReferenceLine, s_stop_m: float, half_width_m: float) -> Intersection:
    """An intersection on `line` whose cross road's own line runs from the right to the left."""
    centre = Intersection(s_stop_m, half_width_m).s_centre_m
    x, y, heading = line.pose(centre, -CROSS_HALF_LENGTH_M)
    cross = ReferenceLine([Segment(2 * CROSS_HALF_LENGTH_M)], x, y, heading + math.pi / 2)
    return Intersection(s_stop_m, half_width_m, cross=cross)
