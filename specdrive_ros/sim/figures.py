"""Draws pedestrians, children, cyclists, dogs and a ball: upright, facing the way they go."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from specdrive_ros.sim.appearance import RGB
from specdrive_ros.sim.ground import VIEW_M
from specdrive_ros.sim.view import ONE, Drawing, View
from specdrive_ros.sim.walkers import Walker

if TYPE_CHECKING:
    from specdrive_ros.sim.world import World

STRIDE_M = 0.7
FIGURE_SCALE = 1.12  # a little larger than life, like signals, so that they are visible where they matter
HAIR_RGB, WHEEL_RGB, DOG_RGB, DOG_DARK_RGB = (58, 42, 30), (26, 26, 28), (128, 84, 46), (76, 50, 30)
LEAST_BALL_PX = 3.2


def walkers_in_view(view: View, world: "World", without) -> Iterator[Drawing]:
    """(distance, draw, thing) of every walker that is near enough and not left out."""
    for walker in world.walkers:
        if walker.id in without:
            continue
        x, y, _ = walker.pose()
        foot = view.ground_to_camera(np.array([x, y]))
        if 1.0 < foot[2] < VIEW_M:
            yield float(foot[2]), _DRAW.get(walker.kind, _draw_walker), (walker, foot)


def draw_bystander(view: View, thing) -> None:
    """A person who stands beside the road and takes no part."""
    item, x, y, _, depth = thing
    if depth < 1.0:
        return
    look = view.scenery.appearance
    u, v, scale = view.upright(view.ground_to_camera(np.array([x, y])))
    legs = view.surface(look.trousers, depth)
    view.rectangle(u - 0.17 * scale, v - 0.85 * scale, u + 0.17 * scale, v, legs)
    coat = view.surface(look.clothing[item.colour], depth)
    view.rectangle(u - 0.24 * scale, v - 1.5 * scale, u + 0.24 * scale, v - 0.8 * scale, coat)
    view.disc(u, v - 1.62 * scale, 0.14 * scale, view.surface(look.skin, depth))


class _Pen:
    """Draws in metres about a foot point: right is the way the figure faces, up is up."""

    def __init__(self, view: View, walker: Walker, foot: np.ndarray, scale: float):
        self._view, self._depth = view, float(foot[2])
        self._u, self._v, pixels = view.upright(foot)
        self._scale = scale * pixels
        # Left of the road is left in the image, as long as we look along the road.
        self._facing = -walker.heading_left

    def bar(self, x0: float, y0: float, x1: float, y1: float, rgb: RGB) -> None:
        ends = sorted(self._u + self._facing * x * self._scale for x in (x0, x1))
        tops = self._v - y1 * self._scale, self._v - y0 * self._scale
        self._view.rectangle(ends[0], tops[0], ends[1], tops[1], self._view.surface(rgb, self._depth))

    def limb(self, x0: float, y0: float, x1: float, y1: float, half: float, rgb: RGB) -> None:
        """A slanted limb, `half` metres to each side of its middle."""
        points = [(x0 - half, y0), (x0 + half, y0), (x1 + half, y1), (x1 - half, y1)]
        pixels = [(self._u + self._facing * x * self._scale, self._v - y * self._scale) for x, y in points]
        self._view.fill_pixels(
            (np.array(pixels) * ONE).astype(np.int32), self._view.surface(rgb, self._depth)
        )

    def disc(self, x: float, y: float, radius: float, rgb: RGB, least_px: float = 0.0) -> None:
        radius = max(radius * self._scale, least_px)
        u, v = self._u + self._facing * x * self._scale, self._v - y * self._scale
        self._view.disc(u, min(v, self._v - radius), radius, self._view.surface(rgb, self._depth))


def _draw_walker(view: View, thing) -> None:
    """Legs swing while it walks and are together while it waits; from behind, nearly all of the head is hair."""
    walker, foot = thing
    look = view.scenery.appearance
    size = FIGURE_SCALE * (0.72 if walker.kind == "child" else 1.0)
    pen = _Pen(view, walker, foot, size)
    swing = 0.34 * math.sin(math.pi * walker.walked_m / (STRIDE_M * size)) if walker.moving else 0.0
    swing = math.copysign(max(abs(swing), 0.14), swing) if walker.moving else 0.09
    coat = look.clothing[walker.colour]
    for end in (swing, -swing):
        pen.limb(end, 0.0, 0.0, 0.85, 0.1, look.trousers)
    if walker.moving:
        pen.limb(-0.8 * swing, 0.85, 0.0, 1.4, 0.08, coat)
        pen.limb(0.8 * swing, 0.85, 0.0, 1.4, 0.08, coat)
    pen.bar(-0.21, 0.8, 0.21, 1.5, coat)
    pen.disc(0.0, 1.64, 0.16 if walker.kind != "child" else 0.21, look.skin)
    pen.disc(-0.05, 1.7, 0.12 if walker.kind != "child" else 0.16, HAIR_RGB)


def _draw_cyclist(view: View, thing) -> None:
    walker, foot = thing
    look = view.scenery.appearance
    pen = _Pen(view, walker, foot, FIGURE_SCALE)
    for x in (-0.55, 0.55):
        pen.disc(x, 0.36, 0.36, WHEEL_RGB)
        pen.disc(x, 0.36, 0.22, view.scenery.ground_rgb_plain)
    pen.bar(-0.5, 0.36, 0.5, 0.46, WHEEL_RGB)
    turn = math.sin(walker.walked_m * 2.0)
    pen.limb(0.12 * turn, 0.3, -0.12, 0.95, 0.11, look.trousers)
    pen.limb(0.1, 1.45, -0.15, 0.9, 0.2, look.clothing[walker.colour])
    pen.limb(0.5, 0.95, 0.1, 1.35, 0.07, look.clothing[walker.colour])
    pen.disc(0.2, 1.62, 0.16, look.skin)


def _draw_dog(view: View, thing) -> None:
    walker, foot = thing
    pen = _Pen(view, walker, foot, FIGURE_SCALE)
    swing = 0.15 * math.sin(walker.walked_m * 6.0)
    for x in (-0.32, 0.32):
        pen.limb(x + swing, 0.0, x, 0.4, 0.07, DOG_DARK_RGB)
        pen.limb(x - swing, 0.0, x, 0.4, 0.07, DOG_DARK_RGB)
    pen.bar(-0.45, 0.32, 0.45, 0.66, DOG_RGB)
    pen.limb(-0.6, 0.78, -0.42, 0.55, 0.05, DOG_RGB)
    pen.bar(0.36, 0.55, 0.66, 0.88, DOG_RGB)
    pen.bar(0.4, 0.8, 0.5, 0.98, DOG_DARK_RGB)


def _draw_ball(view: View, thing) -> None:
    walker, foot = thing
    pen = _Pen(view, walker, foot, FIGURE_SCALE)
    pen.disc(0.0, 0.3, 0.3, view.scenery.appearance.clothing[walker.colour], LEAST_BALL_PX)
    pen.disc(0.08 * math.sin(3 * walker.walked_m), 0.36, 0.12, (236, 120, 40), 0.4 * LEAST_BALL_PX)


_DRAW = {"cyclist": _draw_cyclist, "dog": _draw_dog, "ball": _draw_ball}
