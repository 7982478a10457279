"""Draws solid bodies: houses, trees, vehicles with their lights, cones.

Each `*_in_view` yields (distance, draw, thing); the caller sorts and draws far to near.
"""

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import cv2
import numpy as np

from specdrive_ros.sim.appearance import Proportions
from specdrive_ros.sim.figures import draw_bystander
from specdrive_ros.sim.ground import VIEW_M
from specdrive_ros.sim.pinhole import NEAR_M
from specdrive_ros.sim.scenery import BOX_CORNERS
from specdrive_ros.sim.traffic import BLINK_HZ, Obstacle, Vehicle
from specdrive_ros.sim.view import FOG_M, ONE, SHIFT, Drawing, View

if TYPE_CHECKING:
    from specdrive_ros.sim.world import World

GLASS_RGB, TYRE_RGB = (44, 54, 66), (22, 22, 24)
BRAKE_ON_RGB, BRAKE_CORE_RGB, BRAKE_OFF_RGB = (255, 48, 36), (255, 170, 140), (92, 14, 16)
HEADLIGHT_RGB = (255, 250, 225)
CONE_RGB, CONE_BAND_RGB = (255, 106, 16), (240, 240, 236)
TRUNK_RGB = (70, 54, 40)
INDICATOR_RGB, INDICATOR_CORE_RGB = (255, 150, 10), (255, 214, 120)

# Faces of a box: axis, side (outward), corners in order (indices into BOX_CORNERS), brightness.
FACE_AXES = np.array([0, 0, 1, 1, 2])
FACE_SIDES = np.array([-1.0, 1.0, -1.0, 1.0, 1.0])
FACE_CORNERS = np.array([[0, 2, 3, 1], [4, 6, 7, 5], [0, 4, 5, 1], [2, 6, 7, 3], [1, 5, 7, 3]])
FACE_BRIGHTNESS = np.array([0.80, 0.80, 0.62, 0.92, 1.08])

FIELD = 0.85  # lateral per forward metre at the image's edge, with some margin
LEAST_BRAKE_PX = 2.6 * ONE  # lamps are never drawn lower than this on the canvas


# ---- houses and trees -------------------------------------------------------------------------------------


def houses_in_view(view: View, ego_s: float) -> Iterator[Drawing]:
    scenery = view.scenery
    first, last = np.searchsorted(scenery.box_s, (ego_s - 8.0, ego_s + VIEW_M))
    if first == last:
        return
    corners = view.to_camera(scenery.boxes[first:last])
    depth = corners[:, :, 2]
    seen = (depth.max(1) > 1.0) & (np.abs(corners[:, :, 0]) < FIELD * np.maximum(depth, 0) + 1.0).any(1)
    which = np.flatnonzero(seen)
    if not len(which):
        return
    corners, depth = corners[which], depth[which]
    pixels = view.pixels(corners)
    towards = view.position - scenery.box_centres[first + which]
    eyes = (scenery.box_frames[first + which] @ towards[:, :, None])[:, :, 0]
    visible = eyes[:, FACE_AXES] * FACE_SIDES > 0.5
    shade = 1.0 + (FACE_BRIGHTNESS - 1.0) * scenery.light.face_contrast
    clear = np.exp(-depth.mean(1) / FOG_M)[:, None]
    rgb = clear * scenery.box_rgb[first + which] + (1 - clear) * scenery.light.sky_horizon
    colours = np.minimum(rgb[:, None] * shade[:, None], 255.0).tolist()
    far, near = depth.max(1).tolist(), depth.min(1).tolist()
    face_pixels = np.take(pixels, FACE_CORNERS, axis=1)
    for i, faces in enumerate(visible.tolist()):
        yield far[i], _draw_faces, (corners[i], face_pixels[i], faces, colours[i], near[i] < NEAR_M)


def _draw_faces(view: View, thing) -> None:
    corners, face_pixels, visible, colours, cut = thing
    for face, seen in enumerate(visible):
        if not seen:
            continue
        if cut:
            view.fill(corners[FACE_CORNERS[face]], colours[face])
        else:
            view.fill_pixels(face_pixels[face], colours[face])


def trees_in_view(view: View, ego_s: float) -> Iterator[Drawing]:
    scenery = view.scenery
    first, last = np.searchsorted(scenery.tree_s, (ego_s + 2.0, ego_s + VIEW_M))
    if first == last:
        return
    trees = scenery.trees[first:last]
    feet = view.ground_to_camera(trees[:, :2])
    for i in np.flatnonzero((feet[:, 2] > 2.0) & (np.abs(feet[:, 0]) < FIELD * feet[:, 2] + 3.0)):
        yield (
            float(feet[i, 2]),
            _draw_tree,
            (feet[i], trees[i].tolist(), scenery.tree_rgb[first + i].tolist()),
        )


def _draw_tree(view: View, thing) -> None:
    foot, (_, _, trunk, crown), rgb = thing
    u, v, scale = view.upright(foot)
    depth = float(foot[2])
    half = 0.15 * scale
    view.rectangle(u - half, v - scale * (trunk + 0.3), u + half, v, view.surface(TRUNK_RGB, depth))
    view.disc(u, v - scale * (trunk + crown), crown * scale, view.fog(rgb, depth))


# ---- vehicles and obstacles -------------------------------------------------------------------------------


@dataclass(frozen=True)
class BodyShape:
    """points [P, 3] in the body's frame: 8 per box, then 4 per lamp or window, then the footprint's 4.

    centres, extents [boxes, 3]; `lamps` is the index where the quads begin: two brake lights, two headlights, rear
    window, third brake light.
    """

    points: np.ndarray
    centres: np.ndarray
    extents: np.ndarray

    @property
    def lamps(self) -> int:
        return 8 * len(self.centres)


@lru_cache(maxsize=32)
def _body_shape(kind: str, length: float, width: float, height: float, build: Proportions) -> BodyShape:
    height *= build.height
    shoulder = {"car": build.car_shoulder, "van": build.van_shoulder}.get(kind, 1.0) * height
    boxes = [_local_box(-0.5 * length, 0.5 * length, width, 0.0 if kind == "box" else 0.28, shoulder)]
    if kind == "car":
        boxes.append(_local_box(build.cabin_rear * length, build.cabin_front * length, 0.86 * width, shoulder, height))
    elif kind == "van":
        boxes.append(_local_box(-0.5 * length, build.van_front * length, 0.97 * width, shoulder, height))
    quads = _lamp_quads(kind, length, width, height, build)
    quads.append(BOX_CORNERS[[0, 4, 6, 2]] * [length, width, 0.0])
    lows, highs = (
        np.array([f(0) for f in (box.min if low else box.max for box in boxes)]) for low in (True, False)
    )
    return BodyShape(np.concatenate(boxes + quads), 0.5 * (lows + highs), highs - lows)


def _lamp_quads(
    kind: str, length: float, width: float, height: float, build: Proportions
) -> list[np.ndarray]:
    rear, front = -0.5 * length - 0.02, 0.5 * length + 0.02
    low = 0.42 * height if kind != "truck" else 0.9
    brake = [
        _quad_across(rear, y, y - side * 0.27 * width, low, low + 0.34) for side, y in _sides(0.5 * width)
    ]
    head = [_quad_across(front, y, y - side * 0.42, low, low + 0.24) for side, y in _sides(0.47 * width)]
    glass_x = build.cabin_rear * length - 0.02 if kind == "car" else rear
    glass_low, glass_high = (0.64, 0.95) if kind == "car" else (0.6, 0.9)
    window = _quad_across(glass_x, 0.38 * width, -0.38 * width, glass_low * height, glass_high * height)
    third = _quad_across(glass_x - 0.01, 0.3 * width, -0.3 * width, 0.9 * height, 0.98 * height)
    return [*brake, *head, window, third]


def _sides(y: float):
    return (1, y), (-1, -y)


def _local_box(x0: float, x1: float, width: float, z0: float, z1: float) -> np.ndarray:
    return BOX_CORNERS * [x1 - x0, width, z1 - z0] + [0.5 * (x0 + x1), 0.0, z0]


def _quad_across(x: float, y0: float, y1: float, z0: float, z1: float) -> np.ndarray:
    return np.array([[x, y0, z0], [x, y1, z0], [x, y1, z1], [x, y0, z1]])


def bodies_in_view(view: View, world: "World", without: Collection[int]) -> Iterator[Drawing]:
    r = view.rotation
    for thing in (*world.vehicles, *world.obstacles):
        if thing.id in without:
            continue
        x, y, yaw = thing.pose()
        reach = 0.5 * thing.size.length_m
        depth = float(r[2, 0] * x + r[2, 1] * y + view.offset[2])
        aside = float(r[0, 0] * x + r[0, 1] * y + view.offset[0])
        if -reach < depth < VIEW_M and abs(aside) < FIELD * max(depth, 0.0) + reach + 2.0:
            yield depth, _DRAW.get(thing.kind, _draw_body), (thing, x, y, yaw, depth)


def _draw_body(view: View, thing) -> None:
    item, x, y, yaw, depth = thing
    size, look = item.size, view.scenery.appearance
    shape = _body_shape(item.kind, size.length_m, size.width_m, size.height_m, look.proportions)
    c, s = math.cos(yaw), math.sin(yaw)
    turn = np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])
    place = np.array([x, y, 0.0])
    points = shape.points @ (view.rotation @ turn).T + (view.rotation @ place + view.offset)
    eye = (view.position - place) @ turn
    cut = float(points[:, 2].min()) < NEAR_M
    pixels = view.pixels(points)
    if item.kind != "box":
        _draw_shadow(view, points[-4:], pixels[-4:], cut)
    paint = view.surface(look.paint[item.colour], depth)
    visible = (((eye - shape.centres) / shape.extents)[:, FACE_AXES] * FACE_SIDES > 0.5).tolist()
    shade = (1.0 + (FACE_BRIGHTNESS - 1.0) * view.scenery.light.face_contrast).tolist()
    for i, faces in enumerate(visible):
        r, g, b = _mix(paint, GLASS_RGB, 0.45) if i == 1 and item.kind == "car" else paint
        colours = [(min(k * r, 255.0), min(k * g, 255.0), min(k * b, 255.0)) for k in shade]
        block = slice(8 * i, 8 * i + 8)
        _draw_faces(view, (points[block], np.take(pixels[block], FACE_CORNERS, axis=0), faces, colours, cut))
    if item.kind != "box" and not cut:
        quads = pixels[shape.lamps : -4].reshape(-1, 4, 2)
        _draw_lamps(view, item, quads, float(eye[0]))
        if any(item.indicates):
            _draw_indicators(view, item, quads, float(eye[0]))


def _draw_shadow(view: View, points: np.ndarray, pixels: np.ndarray, cut: bool) -> None:
    """The dark patch under a vehicle: wheels and shadow in one."""
    if cut:
        view.fill(points, view.surface(TYRE_RGB))
    else:
        view.fill_pixels(pixels, view.surface(TYRE_RGB))


def _draw_lamps(view: View, item, quads: np.ndarray, eye_forward: float) -> None:
    moving_kind = isinstance(item, Vehicle) and not item.parked
    if eye_forward > 0.5 * item.size.length_m:
        if moving_kind:
            cv2.fillPoly(view.canvas, list(quads[2:4]), HEADLIGHT_RGB, cv2.LINE_AA, SHIFT)
    elif eye_forward < -0.5 * item.size.length_m:
        view.fill_pixels(quads[4], view.surface(GLASS_RGB))
        if moving_kind and item.braking:
            for quad in (quads[0], quads[1], quads[5]):
                view.fill_pixels(_grown(quad, LEAST_BRAKE_PX), BRAKE_ON_RGB)
            for quad in (quads[0], quads[1]):
                view.fill_pixels(_grown(quad, 0.5 * LEAST_BRAKE_PX, 0.5), BRAKE_CORE_RGB)
        else:
            cv2.fillPoly(view.canvas, list(quads[:2]), view.surface(BRAKE_OFF_RGB), cv2.LINE_AA, SHIFT)


def _draw_indicators(view: View, item: Vehicle | Obstacle, quads: np.ndarray, eye_forward: float) -> None:
    """Amber and blinking, at the outer ends of the rear lamps, or of the front lamps if it comes towards us."""
    if (view.time_s * BLINK_HZ) % 1.0 > 0.6:
        return
    first = 0 if eye_forward < 0 else 2
    for quad, on in zip(quads[first : first + 2], item.indicates):
        if on:
            view.fill_pixels(_grown(quad, 1.5 * LEAST_BRAKE_PX, 1.2), INDICATOR_RGB)
            view.fill_pixels(_grown(quad, 0.75 * LEAST_BRAKE_PX, 0.6), INDICATOR_CORE_RGB)


def _grown(quad: np.ndarray, least_height: float, share: float = 1.0) -> np.ndarray:
    """A quad of pixels [4, 2] scaled about its centre by `share`, then up to at least this height."""
    height = share * max(float(quad[0, 1] - quad[2, 1]), 1.0)
    centre = quad.mean(0)
    return (centre + (quad - centre) * (share, share * max(1.0, least_height / height))).astype(np.int32)


def _mix(a, b, share: float) -> tuple[float, ...]:
    return tuple((1 - share) * p + share * q for p, q in zip(a, b))


CONE_PLACES = np.array([[0.6, 0.3], [-0.05, -0.35], [-0.65, 0.3]])


def _draw_cones(view: View, thing) -> None:
    _, x, y, yaw, _ = thing
    c, s = math.cos(yaw), math.sin(yaw)
    feet = view.ground_to_camera(CONE_PLACES @ np.array([[c, s], [-s, c]]) + (x, y))
    for foot in feet[feet[:, 2] > 1.0]:
        u, v, scale = view.upright(foot)
        _cone_part(view, u, v, scale, 0.0, 1.0, view.surface(CONE_RGB))
        _cone_part(view, u, v, scale, 0.4, 0.65, view.surface(CONE_BAND_RGB))


def _cone_part(view: View, u: float, v: float, scale: float, low: float, high: float, rgb) -> None:
    """The part of a 0.95 m high cone between two shares of its height."""
    height, half = 0.95 * scale, 0.27 * scale
    a, b = half * (1 - 0.85 * low), half * (1 - 0.85 * high)
    corners = [
        (u - a, v - low * height),
        (u + a, v - low * height),
        (u + b, v - high * height),
        (u - b, v - high * height),
    ]
    view.fill_pixels((np.array(corners) * ONE).astype(np.int32), rgb)


_DRAW = {"cones": _draw_cones, "pedestrian": draw_bystander}
