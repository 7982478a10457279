"""Draws signals with round lamps or arrows, and signs.

Each `*_in_view` yields (distance, draw, thing); the caller sorts and draws far to near.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import cv2
import numpy as np

from specdrive_ros.sim.ground import VIEW_M
from specdrive_ros.sim.traffic import SIGNAL_COLOURS
from specdrive_ros.sim.view import ONE, SHIFT, Drawing, View

if TYPE_CHECKING:
    from specdrive_ros.sim.world import World

LAMP_RGB = {"red": (255, 40, 32), "yellow": (255, 205, 30), "green": (40, 255, 120)}
LAMP_GLOW_RGB = {"red": (173, 33, 28), "yellow": (173, 141, 28), "green": (33, 173, 86)}
LAMP_OFF_RGB = {"red": (62, 20, 20), "yellow": (60, 52, 18), "green": (16, 52, 30)}
CASE_RGB, POLE_RGB = (20, 21, 24), (92, 96, 100)
HEAD_WIDTH_M, HEAD_HEIGHT_M, LAMP_RADIUS_M, LAMP_SPACING_M = 1.2, 2.8, 0.4, 0.9
LEAST_HEAD_PX = 14.0
LEAST_ARROW_HEAD_PX = 20.0
BORDER_RGB = (226, 222, 196)
ARROW_UP = np.array(
    [(0.0, -0.42), (0.44, 0.02), (0.17, 0.02), (0.17, 0.4), (-0.17, 0.4), (-0.17, 0.02), (-0.44, 0.02)]
)

SIGN_BEHIND_LINE_M = 2.6  # so that it is in the image of a car standing at the line
SIGN_HEIGHT_M, SIGN_RADIUS_M, LEAST_SIGN_RADIUS_PX = 2.6, 0.62, 6.5
SIGN_RED_RGB, SIGN_WHITE_RGB = (204, 16, 24), (244, 244, 240)
SIGN_YELLOW_RGB, BLACK_RGB = (250, 190, 10), (16, 16, 16)
DIAMOND = np.array([(0.0, -1.0), (1.0, 0.0), (0.0, 1.0), (-1.0, 0.0)])
LANE_END_LINES = (
    np.array([(-0.25, 0.5), (-0.25, -0.5)]),
    np.array([(0.35, 0.5), (0.35, 0.15), (0.05, -0.2), (0.05, -0.5)]),
)
_ANGLES = np.pi * (np.arange(8) + 0.5) / 4
OCTAGON = np.stack([np.cos(_ANGLES), np.sin(_ANGLES)], 1)


def signals_in_view(view: View, world: "World", override: str | None) -> Iterator[Drawing]:
    """Two heads show the same colour: beside the stop line and over the lane beyond the crossing."""
    crossing, road = world.signal_intersection, world.road
    colour = override or world.signal.colour(world.time_s)
    side = -(road.edge_m + 1.0)
    places = (crossing.s_stop_m + 0.8, side, 3.6), (crossing.s_end_m + 1.5, world.lane_d - 0.6, 5.4)
    for s, d, height in places:
        x, y, _ = road.line.pose(s, d)
        px, py, _ = road.line.pose(s, side)
        head = view.to_camera(np.array([x, y, height]))
        if 1.5 < head[2] < VIEW_M:
            pole = np.array([[px, py, 0.0], [px, py, height + 1.0], [x, y, height + 1.0]])
            thing = head, view.pixels(view.to_camera(pole)), colour
            yield float(head[2]), _draw_arrow_signal if world.signal.arrow else _draw_signal, thing


def _draw_signal(view: View, thing) -> None:
    head, pole, colour = thing
    u, v, scale = view.upright(head)
    _draw_pole(view, pole, scale)
    scale *= max(1.0, LEAST_HEAD_PX / (HEAD_HEIGHT_M * scale))
    half_w, half_h = 0.5 * HEAD_WIDTH_M * scale, 0.5 * HEAD_HEIGHT_M * scale
    view.rectangle(u - half_w, v - half_h, u + half_w, v + half_h, CASE_RGB)
    for i, name in enumerate(SIGNAL_COLOURS):
        lamp_v, radius = v + (i - 1) * LAMP_SPACING_M * scale, LAMP_RADIUS_M * scale
        if name == colour:
            view.disc(u, lamp_v, 1.35 * radius, LAMP_GLOW_RGB[name])
        view.disc(u, lamp_v, radius, LAMP_RGB[name] if name == colour else LAMP_OFF_RGB[name])


def _draw_arrow_signal(view: View, thing) -> None:
    """Lamps are arrows straight up; a pale border distinguishes such a head from a round-lamped one from afar."""
    head, pole, colour = thing
    u, v, scale = view.upright(head)
    _draw_pole(view, pole, scale)
    scale *= max(1.0, LEAST_ARROW_HEAD_PX / (HEAD_HEIGHT_M * scale))
    half_w, half_h = 0.5 * HEAD_WIDTH_M * scale, 0.5 * HEAD_HEIGHT_M * scale
    rim = max(0.16 * scale, 1.2)
    view.rectangle(u - half_w - rim, v - half_h - rim, u + half_w + rim, v + half_h + rim, BORDER_RGB)
    view.rectangle(u - half_w, v - half_h, u + half_w, v + half_h, CASE_RGB)
    for i, name in enumerate(SIGNAL_COLOURS):
        shape = ARROW_UP * scale + (u, v + (i - 1) * LAMP_SPACING_M * scale)
        rgb = LAMP_RGB[name] if name == colour else LAMP_OFF_RGB[name]
        cv2.fillPoly(view.canvas, [(shape * ONE).astype(np.int32)], rgb, cv2.LINE_AA, SHIFT)


def _draw_pole(view: View, pole: np.ndarray, scale: float) -> None:
    cv2.polylines(
        view.canvas, [pole], False, view.surface(POLE_RGB), max(1, int(0.2 * scale)), cv2.LINE_AA, SHIFT
    )


def stop_sign_in_view(view: View, world: "World") -> Iterator[Drawing]:
    """A red octagon with a white rim and white letters, to the right of the stop line."""
    road, s = world.road, world.stop_sign.crossing.s_stop_m + SIGN_BEHIND_LINE_M
    x, y, _ = road.line.pose(s, -(road.edge_m + 0.7))
    sign = view.to_camera(np.array([x, y, SIGN_HEIGHT_M]))
    if 1.0 < sign[2] < VIEW_M:
        pole = view.pixels(view.to_camera(np.array([[x, y, 0.0], [x, y, SIGN_HEIGHT_M]])))
        yield float(sign[2]), _draw_stop_sign, (sign, pole)


def _draw_stop_sign(view: View, thing) -> None:
    sign, pole = thing
    u, v, scale = view.upright(sign)
    _draw_pole(view, pole, 0.6 * scale)
    radius = max(SIGN_RADIUS_M * scale, LEAST_SIGN_RADIUS_PX)
    for share, rgb in ((1.0, SIGN_WHITE_RGB), (0.84, SIGN_RED_RGB)):
        shape = (OCTAGON * share * radius + (u, v)) * ONE
        view.fill_pixels(shape.astype(np.int32), view.surface(rgb))
    for x in (-0.54, -0.18, 0.18, 0.54):  # four letters, too small to be read
        half_w, half_h = 0.11 * radius, 0.24 * radius
        middle = u + x * radius
        view.rectangle(middle - half_w, v - half_h, middle + half_w, v + half_h, view.surface(SIGN_WHITE_RGB))


def lane_end_sign_in_view(view: View, world: "World") -> Iterator[Drawing]:
    """A yellow diamond where the outer lane begins to narrow: its right border moves in."""
    road, s = world.road, world.road.lane_end.s_taper_m
    x, y, _ = road.line.pose(s, -(road.edge_m + 0.8))
    sign = view.to_camera(np.array([x, y, SIGN_HEIGHT_M]))
    if 1.0 < sign[2] < VIEW_M:
        pole = view.pixels(view.to_camera(np.array([[x, y, 0.0], [x, y, SIGN_HEIGHT_M]])))
        yield float(sign[2]), _draw_lane_end_sign, (sign, pole)


def _draw_lane_end_sign(view: View, thing) -> None:
    sign, pole = thing
    u, v, scale = view.upright(sign)
    _draw_pole(view, pole, 0.6 * scale)
    radius = max(1.2 * SIGN_RADIUS_M * scale, 1.2 * LEAST_SIGN_RADIUS_PX)
    for share, rgb in ((1.0, BLACK_RGB), (0.88, SIGN_YELLOW_RGB)):
        view.fill_pixels(((DIAMOND * share * radius + (u, v)) * ONE).astype(np.int32), view.surface(rgb))
    for line in LANE_END_LINES:
        points = ((line * radius + (u, v)) * ONE).astype(np.int32)
        thick = max(1, int(0.13 * radius))
        cv2.polylines(view.canvas, [points], False, view.surface(BLACK_RGB), thick, cv2.LINE_AA, SHIFT)
