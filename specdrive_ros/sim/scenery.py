"""The surroundings of a road and the light: colours, sky, buildings, trees, lane markings as polygons.

Made once per world from its random generator, then only read. Nothing here affects the driving.
"""

import math
from dataclasses import dataclass, replace

import cv2
import numpy as np

from specdrive_ros.sim.appearance import PLAIN, RGB, TRAIN, Appearance
from specdrive_ros.sim.road import TOWN, ZEBRA_LENGTH_M, Intersection, ReferenceLine, Road

SUPERSAMPLE = 2
HORIZON_ROW = 200
HAZE_RAD = 0.029
PANORAMA_ROWS = 550
PANORAMA_MARGIN = 570  # wider than any image, supersampled

MARK_WIDTH_M = 0.18
PAVEMENT_M = 2.2
STOP_LINE_M = 0.6
DASH_M, DASH_PERIOD_M = 3.0, 9.0
ZEBRA_STRIPE_M = 0.55

BOX_CORNERS = np.array([[x, y, z] for x in (-0.5, 0.5) for y in (-0.5, 0.5) for z in (0.0, 1.0)])


@dataclass(frozen=True)
class Light:
    """Ambient colour multiplies surfaces; lamps are not affected."""

    name: str
    ambient: tuple[float, float, float]
    sky_top: tuple[int, int, int]
    sky_horizon: tuple[int, int, int]
    face_contrast: float
    noise_sigma: float


DAY = Light("day", (1.0, 1.0, 1.0), (92, 148, 222), (190, 215, 238), 1.0, 2.5)
OVERCAST = Light("overcast", (0.84, 0.86, 0.88), (168, 174, 182), (205, 208, 210), 0.55, 3.0)
DUSK = Light("dusk", (0.52, 0.47, 0.53), (52, 58, 105), (222, 150, 105), 0.7, 4.0)
LIGHTS = (DAY, OVERCAST, DUSK)


@dataclass(frozen=True, eq=False)
class CrossingShape:
    """An intersection as polygons on the ground, each [4, 2] in the map."""

    s_centre_m: float
    pavement: np.ndarray
    road: np.ndarray
    stop_line: np.ndarray


@dataclass(frozen=True, eq=False)
class Scenery:
    """road_rgb … : surface colours with light applied (except `ground_rgb_plain`).

    Boxes, trees and dashes are sorted by arc length.

    boxes [B, 8, 3], box_rgb [B, 3], box_s [B]; box_frames [B, 3, 3] turns the map into units of a box, about
    box_centres [B, 3]; trees [T, 4] (x, y, trunk height, crown radius), tree_rgb [T, 3], tree_s [T]; dashes [D, 4, 2],
    dash_s [D], dash_yellow [D]; zebra [Z, 4, 2], zebra_s [Z]: the stripes of pedestrian crossings;
    panorama [PANORAMA_ROWS, columns, 3]: sky, skyline and ground by direction of view.
    """

    light: Light
    appearance: Appearance
    ambient: np.ndarray
    ground_rgb_plain: RGB
    road_rgb: tuple[int, int, int]
    pavement_rgb: tuple[int, int, int]
    white_rgb: tuple[int, int, int]
    yellow_rgb: tuple[int, int, int]
    boxes: np.ndarray
    box_rgb: np.ndarray
    box_s: np.ndarray
    box_frames: np.ndarray
    box_centres: np.ndarray
    trees: np.ndarray
    tree_rgb: np.ndarray
    tree_s: np.ndarray
    dashes: np.ndarray
    dash_s: np.ndarray
    dash_yellow: np.ndarray
    zebra: np.ndarray
    zebra_s: np.ndarray
    crossings: tuple[CrossingShape, ...]
    panorama: np.ndarray
    columns_per_radian: float
    texture_origin: tuple[float, float]
    texture_strength: float
    shake: np.ndarray

    def __deepcopy__(self, memo) -> "Scenery":
        return self

    def pitch_shake(self, time_s: float) -> float:
        """Small swaying of the camera, radians. shake: [K, 3] amplitude, angular frequency, phase."""
        return float(np.sum(self.shake[:, 0] * np.sin(self.shake[:, 1] * time_s + self.shake[:, 2])))


def lit(ambient: np.ndarray | RGB, rgb: RGB) -> tuple[int, int, int]:
    """A surface's colour under ambient light, a factor per channel."""
    r, g, b = (int(min(255.0, c * a)) for c, a in zip(rgb, ambient))
    return r, g, b


def make_scenery(
    road: Road, rng: np.random.Generator, focal_px: float, look: Appearance = TRAIN
) -> Scenery:
    """Draws the same random choices for every appearance, so that only the look differs."""
    light = _tinted(LIGHTS[rng.choice(3, p=(0.5, 0.3, 0.2))], look.sky)
    ambient = np.array(light.ambient) * rng.uniform(0.9, 1.08)
    town = road.kind is TOWN
    grey = rng.uniform(88, 118)
    ground = rng.uniform(0.9, 1.1) * (
        np.array([134.0, 128.0, 114.0]) if town else np.array([92.0, 124.0, 58.0])
    )
    ground = ground * look.ground
    boxes, box_rgb, box_s = _boxes(road, rng, ambient * look.walls, look.houses)
    trees, tree_rgb, tree_s = _trees(road, rng, ambient * look.leaves)
    zebra, zebra_s = _zebra_stripes(road)
    dashes, dash_s, dash_yellow = _dashes(road)
    scale = SUPERSAMPLE * focal_px
    worn = rng.uniform(0.86, 1.0)
    return Scenery(
        light=light,
        appearance=look,
        ambient=ambient,
        ground_rgb_plain=(grey, grey, grey + 4),
        road_rgb=lit(ambient * look.road, (grey, grey, grey + 4)),
        pavement_rgb=lit(
            ambient, rng.uniform(150, 185) * np.array([1.0, 0.98, 0.95]) if town else ground * 0.82
        ),
        white_rgb=lit(ambient, (238 * worn,) * 3),
        yellow_rgb=lit(ambient, (240 * worn, 186 * worn, 32)),
        boxes=boxes,
        box_rgb=box_rgb,
        box_s=box_s,
        box_frames=_frames(boxes),
        box_centres=boxes.mean(1),
        trees=trees,
        tree_rgb=tree_rgb,
        tree_s=tree_s,
        dashes=dashes,
        dash_s=dash_s,
        dash_yellow=dash_yellow,
        zebra=zebra,
        zebra_s=zebra_s,
        crossings=tuple(_crossing_shape(road, crossing) for crossing in road.intersections),
        panorama=_panorama(light, lit(ambient, ground), rng, scale),
        columns_per_radian=scale,
        texture_origin=tuple(rng.uniform(0, 32, 2)),
        texture_strength=rng.uniform(0.5, 1.0),
        shake=np.stack([rng.uniform(0.0005, 0.0022, 3), rng.uniform(3, 14, 3), rng.uniform(0, 6.28, 3)], 1),
    )


def _inner_side(road: Road, s: float, side: int) -> bool:
    """Whether a thing on this side of a curve could hide the road ahead."""
    rows = road.line.rows(s - 45, s + 25)
    return bool(np.any(side * road.line.curvature[rows] > 0.003))


def _near_crossing(road: Road, s: float, reach_m: float) -> bool:
    return any(i.s_stop_m - reach_m < s < i.s_oncoming_stop_m + reach_m for i in road.intersections)


def _tinted(light: Light, tint: RGB) -> Light:
    if tint == PLAIN:
        return light
    return replace(light, sky_top=lit(tint, light.sky_top), sky_horizon=lit(tint, light.sky_horizon))


def _boxes(road: Road, rng: np.random.Generator, ambient: np.ndarray, stretch: RGB):
    corners, colours, places = [], [], []
    density = 0.85 if road.kind is TOWN else 0.08
    for side in (-1, 1):
        s = rng.uniform(0, 12)
        while s < road.line.length_m:
            length, width, height = rng.uniform((8, 7, 4.5), (17, 11, 13))
            d = side * (road.edge_m + rng.uniform(5.5, 9.0) + 0.5 * width)
            present = rng.random() < density
            colour = _plaster(rng)
            if present and not _inner_side(road, s, side) and not _near_crossing(road, s, 0.5 * length + 3):
                corners.append(_box_at(road, s, d, np.array((length, width, height)) * stretch))
                colours.append(colour * ambient)
                places.append(s)
            s += length + rng.uniform(2, 10)
    return _sorted(corners, (0, 8, 3), colours, places)


def _plaster(rng: np.random.Generator) -> np.ndarray:
    """A wall's colour: grey to sand to brick."""
    warmth = rng.uniform(0.0, 1.0)
    return rng.uniform(110, 205) * np.array([1.0, 1.0 - 0.2 * warmth, 1.0 - 0.38 * warmth])


def _box_at(road: Road, s: float, d: float, size: np.ndarray) -> np.ndarray:
    x, y, heading = road.line.pose(s, d)
    local = BOX_CORNERS * size
    c, n = math.cos(heading), math.sin(heading)
    return np.stack(
        [x + c * local[:, 0] - n * local[:, 1], y + n * local[:, 0] + c * local[:, 1], local[:, 2]], 1
    )


def _frames(boxes: np.ndarray) -> np.ndarray:
    """[B, 3, 3]: rows are a box's axes, each divided by its squared length."""
    axes = boxes[:, [4, 2, 1]] - boxes[:, :1]
    return axes / np.sum(axes * axes, 2, keepdims=True)


def _crossing_shape(road: Road, crossing: Intersection) -> CrossingShape:
    border = road.edge_m - road.kind.shoulder_m
    cross, half = crossing.cross, crossing.half_width_m
    wide = half + PAVEMENT_M
    return CrossingShape(
        crossing.s_centre_m,
        _patch(cross, 0.0, cross.length_m, wide, -wide),
        _patch(cross, 0.0, cross.length_m, half, -half),
        _patch(road.line, crossing.s_stop_m, crossing.s_stop_m + STOP_LINE_M, -0.2, -border),
    )


def _patch(line: ReferenceLine, s0: float, s1: float, d0: float, d1: float) -> np.ndarray:
    return np.array([line.pose(s, d)[:2] for s, d in ((s0, d0), (s1, d0), (s1, d1), (s0, d1))])


def _trees(road: Road, rng: np.random.Generator, ambient: np.ndarray):
    trees, colours, places = [], [], []
    spacing = 26.0 if road.kind is TOWN else 13.0
    for side in (-1, 1):
        s = rng.uniform(0, spacing)
        while s < road.line.length_m:
            distance = rng.uniform(3.0, 4.5) if road.kind is TOWN else rng.uniform(4.0, 14.0)
            trunk, crown = rng.uniform(1.6, 2.6), rng.uniform(1.2, 2.4)
            colour = rng.uniform((38, 78, 28), (84, 120, 52))
            if not _inner_side(road, s, side) and not _near_crossing(road, s, 4.0):
                x, y, _ = road.line.pose(s, side * (road.edge_m + distance + 0.4 * crown))
                trees.append((x, y, trunk, crown))
                colours.append(colour * ambient)
                places.append(s)
            s += rng.uniform(0.5, 1.6) * spacing
    return _sorted(trees, (0, 4), colours, places)


def _sorted(things: list, empty_shape: tuple[int, ...], colours: list, places: list):
    if not things:
        return np.zeros(empty_shape), np.zeros((0, 3)), np.zeros(0)
    order = np.argsort(places)
    return np.array(things)[order], np.array(colours)[order], np.array(places)[order]


def _dashes(road: Road):
    """White between lanes of one direction, yellow in the middle if the centre line is dashed."""
    width = road.kind.lane_width_m
    offsets = [] if road.centre_solid else [(0.0, True)]
    offsets += [(sign * lane * width, False) for lane in range(1, road.lanes) for sign in (-1, 1)]
    starts = np.arange(0.0, road.line.length_m - DASH_M, DASH_PERIOD_M)
    quads, places, yellow = [], [], []
    for s in starts:
        if _near_crossing(road, s, 0.0) or _near_crossing(road, s + DASH_M, 0.0):
            continue
        for d, is_yellow in offsets:
            if road.lane_end is not None and d < 0 and s > road.lane_end.s_taper_m:
                continue
            half = 0.5 * MARK_WIDTH_M
            ends = [(s, d + half), (s + DASH_M, d + half), (s + DASH_M, d - half), (s, d - half)]
            quads.append([road.line.pose(*end)[:2] for end in ends])
            places.append(s)
            yellow.append(is_yellow)
    if not quads:
        return np.zeros((0, 4, 2)), np.zeros(0), np.zeros(0, bool)
    return np.array(quads), np.array(places), np.array(yellow)


def _zebra_stripes(road: Road):
    """White stripes along the road, as wide as the gaps between them: quads [Z, 4, 2], arc lengths [Z]."""
    quads, places = [], []
    border, half = road.edge_m - 0.5 * road.kind.shoulder_m, 0.5 * ZEBRA_LENGTH_M
    for s in road.zebras:
        for d in np.arange(-border + 0.2, border - ZEBRA_STRIPE_M, 2 * ZEBRA_STRIPE_M):
            quads.append(_patch(road.line, s - half, s + half, d + ZEBRA_STRIPE_M, d))
            places.append(s)
    return (np.array(quads), np.array(places)) if quads else (np.zeros((0, 4, 2)), np.zeros(0))


def _panorama(
    light: Light, ground: tuple[int, int, int], rng: np.random.Generator, scale: float
) -> np.ndarray:
    columns = int(round(2 * math.pi * scale))
    rows = np.arange(PANORAMA_ROWS)
    top, horizon, floor = (np.array(c, float) for c in (light.sky_top, light.sky_horizon, ground))
    blend = np.clip((HORIZON_ROW - rows) / HORIZON_ROW, 0, 1)[:, None] ** 0.7
    sky = horizon + (top - horizon) * blend
    haze = np.exp(-np.clip(rows - HORIZON_ROW, 0, None) / (HAZE_RAD * scale))[:, None] * 0.6
    below = floor + (horizon - floor) * haze
    column = np.where((rows < HORIZON_ROW)[:, None], sky, below)
    image = np.ascontiguousarray(
        np.broadcast_to(column[:, None], (PANORAMA_ROWS, columns, 3)).astype(np.uint8)
    )
    _draw_skyline(image, 0.55 * floor + 0.45 * horizon, rng, scale)
    return np.ascontiguousarray(np.concatenate([image, image[:, :PANORAMA_MARGIN]], 1))


def _draw_skyline(
    image: np.ndarray, colour: np.ndarray, rng: np.random.Generator, scale: float
) -> None:
    columns = image.shape[1]
    x = np.arange(0, columns + 16, 16)
    angle = 2 * math.pi * x / columns
    height = sum(
        a * np.sin(k * angle + p)
        for k, a, p in zip((2, 5, 11, 23), (0.019, 0.014, 0.0096, 0.0072), rng.uniform(0, 2 * math.pi, 4))
    )
    y = HORIZON_ROW - scale * np.clip(0.034 + height, 0.005, 0.086)
    outline = np.concatenate([np.stack([x, y], 1), [[columns, HORIZON_ROW], [0, HORIZON_ROW]]])
    cv2.fillPoly(image, [np.round(outline).astype(np.int32)], tuple(float(c) for c in colour))
