"""Draws everything flat: pavement, road, lane markings, cross roads, stop lines, and the grain of the surface."""

from functools import lru_cache
from typing import TYPE_CHECKING

import cv2
import numpy as np

from specdrive_ros.sim.appearance import RGB
from specdrive_ros.sim.pinhole import NEAR_M
from specdrive_ros.sim.road import SAMPLE_STEP_M
from specdrive_ros.sim.scenery import MARK_WIDTH_M, PAVEMENT_M, SUPERSAMPLE
from specdrive_ros.sim.view import SHIFT, View

if TYPE_CHECKING:
    from specdrive_ros.sim.world import World

VIEW_M = 130.0
MARK_VIEW_M = 72.0
TEXTURE_PX_PER_M = 8.0
TEXTURE_SIZE = 256
TEXTURE_TILES = 4  # so large that hardly any pixel needs the slow wrap-around
SMOOTH_SHARE = 1 / 16  # of the image's rows, below the horizon
TEXTURE_TILE_M = TEXTURE_SIZE / TEXTURE_PX_PER_M

# Samples of the reference line (every 0.5 m) that are drawn, relative to the ego's own.
ROW_OFFSETS = np.concatenate(
    [
        np.arange(-24, 2, 8),
        np.arange(2, 12, 1),
        np.arange(12, 60, 4),
        np.arange(60, 144, 6),
        np.arange(144, 300, 16),
    ]
)
MARK_ROWS = int(np.searchsorted(ROW_OFFSETS, 2 * MARK_VIEW_M))


def draw_ground(view: View, world: "World") -> None:
    road, scenery, line = world.road, view.scenery, world.road.line
    rows = np.minimum(np.maximum(ROW_OFFSETS + int(2 * world.ego_s), 0), len(line.xy) - 1)
    centre = view.ground_to_camera(line.xy[rows])
    across = line.normal[rows] @ view.rotation[:, :2].T
    offsets = _strip_offsets(road)
    if road.lane_end is None:
        strips = centre + offsets[:, None, None] * across
    else:
        strips = centre + _narrowed(offsets, road, rows * SAMPLE_STEP_M)[:, :, None] * across
    ribbon = _Ribbon(view, strips)
    ribbon.draw(0, 1, scenery.pavement_rgb)
    near = [c for c in scenery.crossings if -40.0 < c.s_centre_m - world.ego_s < VIEW_M]
    for crossing in near:
        view.fill(view.ground_to_camera(crossing.pavement), scenery.pavement_rgb)
    ribbon.draw(2, 3, scenery.road_rgb)
    ribbon.draw(4, 5, scenery.white_rgb, MARK_ROWS)
    ribbon.draw(6, 7, scenery.white_rgb, MARK_ROWS)
    if road.centre_solid:
        ribbon.draw(8, 9, scenery.yellow_rgb, MARK_ROWS)
        ribbon.draw(10, 11, scenery.yellow_rgb, MARK_ROWS)
    for crossing in near:
        view.fill(view.ground_to_camera(crossing.road), scenery.road_rgb)
        view.fill(view.ground_to_camera(crossing.stop_line), scenery.white_rgb)
    _draw_dashes(view, world.ego_s)
    if len(scenery.zebra):
        _draw_zebra(view, world.ego_s)
    _roughen(view)


def _strip_offsets(road) -> np.ndarray:
    """Offsets of the left and right borders of pavement, road, two edge lines and the double centre line."""
    edge, half = road.edge_m, 0.5 * MARK_WIDTH_M
    border = edge - road.kind.shoulder_m
    inner, outer = 0.1, 0.1 + MARK_WIDTH_M
    return np.array(
        [
            edge + PAVEMENT_M,
            -edge - PAVEMENT_M,
            edge,
            -edge,
            border + half,
            border - half,
            -border + half,
            -border - half,
            outer,
            inner,
            -inner,
            -outer,
        ]
    )


def _narrowed(offsets: np.ndarray, road, s: np.ndarray) -> np.ndarray:
    """Offsets [borders, rows]; those at the right edge move in where a lane ends."""
    at_right_edge = offsets < -road.edge_m + road.kind.shoulder_m + 0.5 * road.kind.lane_width_m
    return offsets[:, None] + at_right_edge[:, None] * road.lane_end.lost_width(s)


class _Ribbon:
    """Long strips along the road, [borders, rows, 3] camera points, cut at the near plane."""

    def __init__(self, view: View, strips: np.ndarray):
        in_front = (strips[:, :, 2] > NEAR_M).all(0)
        first = int(np.argmax(in_front))
        self._view, self._strips = view, strips
        # When the car looks along the road, the first row in front of the camera is below the image.
        self._aligned = bool(in_front[first:].all()) and float(strips[:, first, 2].max()) < 2.5
        self._first = first
        self._pixels = view.pixels(strips[:, first:]) if self._aligned else None

    def draw(self, left: int, right: int, rgb: RGB, rows: int | None = None) -> None:
        if self._aligned:
            end = None if rows is None else rows - self._first
            outline = np.concatenate([self._pixels[left, :end], self._pixels[right, :end][::-1]])
            cv2.fillPoly(self._view.canvas, [outline], rgb, cv2.LINE_AA, SHIFT)
        else:
            self._view.fill(
                np.concatenate([self._strips[left, :rows], self._strips[right, :rows][::-1]]), rgb
            )


def _draw_dashes(view: View, ego_s: float) -> None:
    scenery = view.scenery
    first, last = np.searchsorted(scenery.dash_s, (ego_s - 4.0, ego_s + MARK_VIEW_M))
    quads = view.ground_to_camera(scenery.dashes[first:last])
    yellow = scenery.dash_yellow[first:last]
    view.fill_all(quads[yellow], scenery.yellow_rgb)
    view.fill_all(quads[~yellow], scenery.white_rgb)


def _draw_zebra(view: View, ego_s: float) -> None:
    scenery = view.scenery
    near = (scenery.zebra_s > ego_s) & (scenery.zebra_s < ego_s + MARK_VIEW_M)
    for quad in view.ground_to_camera(scenery.zebra[near]):
        view.fill(quad, scenery.white_rgb)


def _roughen(view: View) -> None:
    """Grain on the ground, fixed in the world: it moves past like a real surface."""
    camera = view.camera
    first = view.horizon_row // SUPERSAMPLE + round(SMOOTH_SHARE * camera.height)
    rows = camera.height - first
    if rows <= 0:
        return
    pixel_from_camera = np.array([[camera.fx, 0, camera.cx], [0, camera.fy, camera.cy - first], [0, 0, 1]])
    ground = np.column_stack([view.rotation[:, 0], view.rotation[:, 1], view.offset])
    tile = (np.floor(view.position[:2] / TEXTURE_TILE_M) - 1.0) * TEXTURE_TILE_M
    ground[:, 2] += view.rotation[:, :2] @ tile
    origin_x, origin_y = view.scenery.texture_origin
    texture_from_ground = TEXTURE_PX_PER_M * np.array(
        [[1, 0, origin_x], [0, 1, origin_y], [0, 0, 1 / TEXTURE_PX_PER_M]]
    )
    warp = texture_from_ground @ np.linalg.inv(pixel_from_camera @ ground)
    grain = cv2.warpPerspective(
        _ground_texture(),
        warp,
        (camera.width, rows),
        flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP,
        borderMode=cv2.BORDER_WRAP,
    )
    fade = view.scenery.texture_strength * _fade(rows, camera.height)
    grain = (128.0 + grain * fade - 128.0 * fade).astype(np.uint8)
    grain = cv2.resize(
        grain, (SUPERSAMPLE * camera.width, SUPERSAMPLE * rows), interpolation=cv2.INTER_NEAREST
    )
    part = view.canvas[SUPERSAMPLE * first :]
    cv2.addWeighted(part, 1.0, cv2.cvtColor(grain, cv2.COLOR_GRAY2RGB), 1.0, -128.0, dst=part)


@lru_cache(maxsize=128)
def _fade(rows: int, height: int) -> np.ndarray:
    """[rows, 1]: far ground is smooth."""
    return np.minimum(1.0, (np.arange(rows, dtype=np.float32) + height / 24) / (height * 30 / 96))[:, None]


@lru_cache(maxsize=1)
def _ground_texture() -> np.ndarray:
    rng = np.random.default_rng(20240607)
    texture = np.zeros((TEXTURE_SIZE, TEXTURE_SIZE), np.float32)
    for cells, strength in ((256, 9.0), (64, 7.0), (16, 6.0)):
        noise = np.pad(rng.standard_normal((cells, cells)).astype(np.float32), 1, mode="wrap")
        size = TEXTURE_SIZE // cells
        big = cv2.resize(noise, None, fx=size, fy=size, interpolation=cv2.INTER_LINEAR)
        texture += strength * big[size : size + TEXTURE_SIZE, size : size + TEXTURE_SIZE]
    return np.tile(np.clip(128 + texture, 0, 255).astype(np.uint8), (TEXTURE_TILES, TEXTURE_TILES))
