"""The geometry of a pinhole camera on the vehicle: where points of the ego frame appear in its image.

Ego frame: rear axle, x forward, y left, z up, metres. Pixels: u to the right, v down, the centre of the top left pixel
is (0, 0). Draws nothing.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from specdrive_ros.errors import InputError
from specdrive_ros.shapes import PICTURE_SIZE

NEAR_M = 0.6


@dataclass(frozen=True)
class PinholeCamera:
    """Intrinsics in pixels; pose on the vehicle in metres; `pitch_rad` is positive downwards."""

    name: str
    width: int
    height: int
    fx: float
    fy: float
    cx: float
    cy: float
    x_m: float
    y_m: float
    z_m: float
    pitch_rad: float = 0.0

    @cached_property
    def intrinsics(self) -> np.ndarray:
        """[3, 3], as in sensor_msgs/CameraInfo.k."""
        return np.array([[self.fx, 0.0, self.cx], [0.0, self.fy, self.cy], [0.0, 0.0, 1.0]])

    @cached_property
    def position_in_ego(self) -> np.ndarray:
        return np.array([self.x_m, self.y_m, self.z_m])

    def rotation_from_ego(self, extra_pitch_rad: float = 0.0) -> np.ndarray:
        """[3, 3]: ego axes to camera axes (right, down, forward)."""
        c, s = math.cos(self.pitch_rad + extra_pitch_rad), math.sin(self.pitch_rad + extra_pitch_rad)
        return np.array([[0.0, -1.0, 0.0], [-s, 0.0, -c], [c, 0.0, -s]])


def project(camera: PinholeCamera, xyz_in_ego: np.ndarray) -> np.ndarray:
    """[N, 3] metres in the ego frame -> [N, 2] pixels (u, v); NaN if a point is not in front of the camera."""
    points = (
        np.asarray(xyz_in_ego, float).reshape(-1, 3) - camera.position_in_ego
    ) @ camera.rotation_from_ego().T
    depth = points[:, 2]
    safe = np.where(depth > NEAR_M, depth, np.nan)
    u = camera.fx * points[:, 0] / safe + camera.cx
    v = camera.fy * points[:, 1] / safe + camera.cy
    return np.stack([u, v], 1)


def front_camera(
    size: tuple[int, int] = PICTURE_SIZE, field_of_view_deg: float = 75.0, name: str = "rgb_front"
) -> PinholeCamera:
    """A camera behind the windscreen, pitched so that the sky takes 40 % of the image. size: rows, columns."""
    height, width = size
    focal = 0.5 * width / math.tan(math.radians(0.5 * field_of_view_deg))
    pitch = math.atan(0.1 * height / focal)
    centre = (0.5 * (width - 1), 0.5 * (height - 1))
    return PinholeCamera(name, width, height, focal, focal, *centre, 1.6, 0.0, 1.5, pitch)


FRONT_CAMERA = front_camera()  # mini's
TELE_CAMERA = front_camera(field_of_view_deg=30.0, name="rgb_front_tele")
CAMERAS = {camera.name: camera for camera in (FRONT_CAMERA, TELE_CAMERA)}


def check_cameras(names: Sequence[str]) -> None:
    """Raises InputError for a camera that the embedded world does not have."""
    if missing := [name for name in names if name not in CAMERAS]:
        raise InputError(f"camera {missing[0]!r}: the embedded world has {', '.join(CAMERAS)}")
