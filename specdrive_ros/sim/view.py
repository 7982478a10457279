"""One camera at one instant: maps points of the map into the image and draws shapes on a canvas.

The canvas is `SUPERSAMPLE` times the image's size. Knows colours and shapes, not what they mean.
"""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import cv2
import numpy as np

from specdrive_ros.sim.appearance import RGB
from specdrive_ros.sim.pinhole import NEAR_M, PinholeCamera
from specdrive_ros.sim.scenery import HORIZON_ROW, PANORAMA_MARGIN, SUPERSAMPLE

if TYPE_CHECKING:
    from specdrive_ros.sim.world import World

SHIFT = 4
ONE = 1 << SHIFT
FOG_M = 300.0
DIVE_RAD_PER_MPS2 = 0.004
FARTHEST_PX = 20_000 * ONE

Drawing = tuple[float, Callable[["View", tuple], None], tuple]  # distance in m, draw function, its argument


class View:
    """canvas: [SUPERSAMPLE H, SUPERSAMPLE W, 3] uint8. Camera axes: right, down, forward."""

    def __init__(self, world: "World", camera: PinholeCamera):
        ego = world.ego
        self.camera = camera
        self.scenery = world.scene.scenery
        self.extra_pitch = self.scenery.pitch_shake(world.time_s) - DIVE_RAD_PER_MPS2 * ego.acceleration
        c, s = math.cos(ego.yaw), math.sin(ego.yaw)
        ego_from_map = np.array([[c, s, 0.0], [-s, c, 0.0], [0.0, 0.0, 1.0]])
        self.rotation = camera.rotation_from_ego(self.extra_pitch) @ ego_from_map
        self.position = ego_from_map.T @ camera.position_in_ego + (ego.x, ego.y, 0.0)
        self.offset = -self.rotation @ self.position
        self.yaw = ego.yaw
        self.time_s = world.time_s
        self.focal = SUPERSAMPLE * camera.fx
        self.centre_u = SUPERSAMPLE * camera.cx + 0.5 * (SUPERSAMPLE - 1)
        self.centre_v = SUPERSAMPLE * camera.cy + 0.5 * (SUPERSAMPLE - 1)
        self._fixed_centre = ONE * np.array([self.centre_u, self.centre_v])
        self.canvas = self._background()

    def _background(self) -> np.ndarray:
        """Sky, skyline and open ground, cut from the panorama by the direction of view."""
        panorama = self.scenery.panorama
        height, width = SUPERSAMPLE * self.camera.height, SUPERSAMPLE * self.camera.width
        horizon = self.centre_v - self.focal * math.tan(self.camera.pitch_rad + self.extra_pitch)
        top = min(max(int(round(HORIZON_ROW - horizon)), 0), panorama.shape[0] - height)
        around = panorama.shape[1] - PANORAMA_MARGIN
        left = int((-self.yaw * self.scenery.columns_per_radian - 0.5 * width) % around)
        self.horizon_row = HORIZON_ROW - top
        return panorama[top : top + height, left : left + width].copy()

    def to_camera(self, points: np.ndarray) -> np.ndarray:
        """[..., 3] map -> [..., 3] camera."""
        return points @ self.rotation.T + self.offset

    def ground_to_camera(self, xy: np.ndarray) -> np.ndarray:
        """[..., 2] on the ground -> [..., 3] camera."""
        return xy @ self.rotation[:, :2].T + self.offset

    def pixels(self, points: np.ndarray) -> np.ndarray:
        """[..., 3] camera -> [..., 2] fixed-point canvas pixels; depth is held at the near plane."""
        uv = points[..., :2] * (ONE * self.focal / np.maximum(points[..., 2:], NEAR_M))
        uv += self._fixed_centre
        return uv.astype(np.int32)

    def fill(self, points: np.ndarray, rgb: RGB) -> None:
        """Fills a planar polygon [N, 3] of camera points, cut at the near plane."""
        if points[:, 2].min() < NEAR_M:
            points = cut_at_near_plane(points)
            if len(points) < 3:
                return
        pixels = np.clip(self.pixels(points), -FARTHEST_PX, FARTHEST_PX)
        cv2.fillPoly(self.canvas, [pixels], rgb, cv2.LINE_AA, SHIFT)

    def fill_pixels(self, pixels: np.ndarray, rgb: RGB) -> None:
        """Fills a convex polygon [N, 2] of fixed-point pixels."""
        cv2.fillConvexPoly(self.canvas, pixels, rgb, cv2.LINE_AA, SHIFT)

    def fill_all(self, quads: np.ndarray, rgb: RGB) -> None:
        """Fills small quads [N, 4, 3] of camera points; those that reach the near plane are left out."""
        quads = quads[quads[:, :, 2].min(1) > NEAR_M] if len(quads) else quads
        if len(quads):
            cv2.fillPoly(self.canvas, list(self.pixels(quads)), rgb, cv2.LINE_AA, SHIFT)

    def rectangle(self, u0: float, v0: float, u1: float, v1: float, rgb: RGB) -> None:
        """Fills an upright rectangle between two corners in canvas pixels."""
        corners = (int(u0 * ONE), int(v0 * ONE)), (int(u1 * ONE), int(v1 * ONE))
        cv2.rectangle(self.canvas, *corners, rgb, -1, cv2.LINE_AA, SHIFT)

    def disc(self, u: float, v: float, radius: float, rgb: RGB) -> None:
        centre = (int(u * ONE), int(v * ONE))
        cv2.circle(self.canvas, centre, max(int(radius * ONE), ONE // 2), rgb, -1, cv2.LINE_AA, SHIFT)

    def upright(self, foot: np.ndarray) -> tuple[float, float, float]:
        """For a camera point: canvas pixel u, v and pixels per metre at its depth."""
        scale = self.focal / float(foot[2])
        return float(foot[0]) * scale + self.centre_u, float(foot[1]) * scale + self.centre_v, scale

    def fog(self, rgb: RGB, distance_m: float) -> tuple[float, float, float]:
        """A colour as seen from a distance: it fades into the horizon."""
        clear = math.exp(-distance_m / FOG_M)
        r, g, b = rgb
        hr, hg, hb = self.scenery.light.sky_horizon
        haze = 1.0 - clear
        return clear * r + haze * hr, clear * g + haze * hg, clear * b + haze * hb

    def surface(self, rgb: RGB, distance_m: float = 0.0) -> tuple[float, float, float]:
        """A surface colour under this world's light, seen from a distance."""
        r, g, b = self.scenery.ambient
        return self.fog((min(rgb[0] * r, 255.0), min(rgb[1] * g, 255.0), min(rgb[2] * b, 255.0)), distance_m)


def cut_at_near_plane(points: np.ndarray) -> np.ndarray:
    """The part of a polygon [N, 3] in front of the near plane, [M, 3]."""
    inside = points[:, 2] >= NEAR_M
    following = np.roll(points, -1, 0)
    crosses = inside != np.roll(inside, -1)
    step = np.where(crosses, following[:, 2] - points[:, 2], 1.0)
    cut = points + ((NEAR_M - points[:, 2]) / step)[:, None] * (following - points)
    both = np.empty((2 * len(points), 3))
    both[0::2], both[1::2] = points, cut
    return both[np.stack([inside, crosses], 1).ravel()]
