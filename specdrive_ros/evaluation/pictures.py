"""Camera images with the plan drawn into them. Knows the camera's projection, nothing about HTML."""

import base64

import cv2
import numpy as np

from specdrive_ros.plan import Plan
from specdrive_ros.sim.pinhole import PinholeCamera, project

PICTURE_WIDTH = 560  # pixels; smaller images are enlarged to about this, larger ones reduced
JPEG_QUALITY = 82
RIBBON_HALF_WIDTH_M = 0.85
NEAR_X_IN_EGO_M = 0.5
NEAR_RGB, FAR_RGB = (86, 180, 233), (240, 228, 66)  # sky blue and yellow of the Okabe-Ito palette
RIBBON_OPACITY = 0.45


def picture_of_plan(rgb: np.ndarray, camera: PinholeCamera | None, plan: Plan) -> np.ndarray:
    """rgb: uint8 [H, W, 3] as the camera saw it. Returns it resized, with the plan drawn as a ribbon on the road.

    Without a camera model, no plan is drawn.
    """
    scale = PICTURE_WIDTH / rgb.shape[1]
    way = cv2.INTER_CUBIC if scale > 1 else cv2.INTER_AREA
    picture = cv2.resize(rgb, None, fx=scale, fy=scale, interpolation=way)
    if camera is not None:
        _draw_ribbon(picture, camera, plan, np.array(picture.shape[1::-1]) / rgb.shape[1::-1])
    return picture


def data_uri(rgb: np.ndarray) -> str:
    """The image as JPEG in a `data:` URI."""
    _, encoded = cv2.imencode(".jpg", rgb[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])
    return "data:image/jpeg;base64," + base64.b64encode(encoded.tobytes()).decode("ascii")


def _draw_ribbon(picture: np.ndarray, camera: PinholeCamera, plan: Plan, scale: np.ndarray) -> None:
    left, right = (_side_of_plan(plan, side) for side in (RIBBON_HALF_WIDTH_M, -RIBBON_HALF_WIDTH_M))
    ahead = (left[:, 0] > NEAR_X_IN_EGO_M) & (right[:, 0] > NEAR_X_IN_EGO_M)
    left_px, right_px = ((project(camera, side) + 0.5) * scale - 0.5 for side in (left, right))
    usable = ahead & np.isfinite(left_px).all(1) & np.isfinite(right_px).all(1)
    usable &= (np.abs(left_px) < 4 * PICTURE_WIDTH).all(1) & (np.abs(right_px) < 4 * PICTURE_WIDTH).all(1)
    painted = picture.copy()
    quads = [k for k in range(len(left) - 1) if usable[k] and usable[k + 1]]
    for k in reversed(quads):
        share = k / (len(left) - 1)
        colour = tuple(int(a + share * (b - a)) for a, b in zip(NEAR_RGB, FAR_RGB, strict=True))
        corners = np.array([left_px[k], left_px[k + 1], right_px[k + 1], right_px[k]])
        cv2.fillConvexPoly(painted, _subpixel(corners), colour, cv2.LINE_AA, shift=4)
    cv2.addWeighted(painted, RIBBON_OPACITY, picture, 1 - RIBBON_OPACITY, 0, dst=picture)
    for edge in (left_px, right_px):
        for k in quads:
            ends = _subpixel(edge[[k, k + 1]])
            cv2.line(
                picture,
                tuple(map(int, ends[0])),
                tuple(map(int, ends[1])),
                (255, 255, 255),
                1,
                cv2.LINE_AA,
                shift=4,
            )


def _side_of_plan(plan: Plan, offset_m: float) -> np.ndarray:
    """The plan shifted to one side (m, left positive), four points per waypoint, the ego itself first: [n, 3]."""
    xyz = np.vstack([np.zeros((1, 3)), plan.xyz])
    yaw = np.concatenate([[0.0], plan.yaw])
    sideways = np.stack([-np.sin(yaw), np.cos(yaw), np.zeros_like(yaw)], 1)
    coarse = np.arange(len(xyz))
    fine = np.linspace(0, len(xyz) - 1, 4 * (len(xyz) - 1) + 1)
    shifted = xyz + offset_m * sideways
    return np.stack([np.interp(fine, coarse, shifted[:, axis]) for axis in range(3)], 1)


def _subpixel(points: np.ndarray) -> np.ndarray:
    return np.round(points * 16).astype(np.int32)
