"""How far plans are from what was then driven: ADE and FDE in metres, in the ground plane.

The future is the recording's own odometry, resampled in time into the ego frame at t0. Constant velocity is the
baseline that any planner must beat; constant turn rate and velocity is the one that a planner must beat that sees the
curve. Knows nothing about bags and models.
"""

from array import array

import numpy as np

from specdrive_ros.geometry import (
    arc_end,
    in_frame,
    interpolate_poses,
    matrix_from_quaternion,
    wrap_angle,
    yaw_from_matrix,
)
from specdrive_ros.observation.history import POSITION_SLACK_M
from specdrive_ros.observation.observation import EgoHistory
from specdrive_ros.shapes import HISTORY_STEP_S, NANOSECONDS, WAYPOINT_TIMES_S

HORIZONS = {"1s": 10, "3s": 30, "6.4s": 64}  # name in summary.json -> number of waypoints up to that horizon
DIRECTION_STEPS = 2  # the last 0.2 s of history give the direction of the velocity
TURN_STEPS = 5  # the last 0.5 s give the turn rate: over less, heading noise dominates
STANDING_M = 0.01  # less movement than this in 0.2 s has no direction
WAYPOINTS_NS = np.round(WAYPOINT_TIMES_S * NANOSECONDS).astype(np.int64)


class OdometryTrace:
    """All odometry of a recording, with ascending stamps; 64 bytes per sample.

    max_gap_s:     a future is unknown from the first longer silence on.
    max_speed_mps: and from the first faster move between two samples on.
    """

    def __init__(self, max_gap_s: float = 0.5, max_speed_mps: float = 100.0):
        self._max_gap_ns = round(max_gap_s * NANOSECONDS)
        self._max_speed_mps = max_speed_mps
        self._stamps = array("q")
        self._poses = array("d")

    def __len__(self) -> int:
        return len(self._stamps)

    def add(self, stamp_ns: int, xyz: np.ndarray, quaternion: np.ndarray) -> None:
        """Adds a sample newer than all before, or another one with the newest stamp, which replaces it."""
        if self._stamps and stamp_ns == self._stamps[-1]:
            del self._stamps[-1:], self._poses[-7:]
        self._stamps.append(stamp_ns)
        self._poses.extend([*xyz, *quaternion])

    def pose_at(self, t0_ns: int) -> tuple[np.ndarray, np.ndarray]:
        """Position [3] (m) and unit quaternion [4] (x, y, z, w) at t0; needs two samples."""
        xyz, quaternion = interpolate_poses(*self._around(t0_ns, t0_ns), np.array([t0_ns], np.int64))
        return xyz[0], quaternion[0]

    def future(self, t0_ns: int) -> np.ndarray:
        """[n, 3] metres in the ego frame at t0, at t0 + 0.1 s …, as far as the odometry is known; n <= 64."""
        stamps, xyz, quaternions = self._around(t0_ns, t0_ns + int(WAYPOINTS_NS[-1]))
        at_ns = t0_ns + WAYPOINTS_NS
        at_ns = at_ns[at_ns <= self._known_until(stamps, xyz)]
        origin, turn = interpolate_poses(stamps, xyz, quaternions, np.array([t0_ns], np.int64))
        points, _ = interpolate_poses(stamps, xyz, quaternions, at_ns)
        return in_frame(points, origin[0], matrix_from_quaternion(turn[0]))

    def _around(self, first_ns: int, last_ns: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The samples that enclose this interval, at least two."""
        stamps = np.array(self._stamps, np.int64)
        start = max(min(int(np.searchsorted(stamps, first_ns, "right")) - 1, len(stamps) - 2), 0)
        end = max(int(np.searchsorted(stamps, last_ns, "left")) + 1, start + 2)
        poses = np.array(self._poses[7 * start:7 * end]).reshape(-1, 7)
        return stamps[start:end], poses[:, :3], poses[:, 3:]

    def _known_until(self, stamps: np.ndarray, xyz: np.ndarray) -> int:
        """The last stamp before a gap or a jump."""
        apart_ns = np.diff(stamps)
        moved_m = np.linalg.norm(np.diff(xyz, axis=0), axis=1)
        leap = moved_m > self._max_speed_mps * apart_ns / NANOSECONDS + POSITION_SLACK_M
        broken = leap | (apart_ns > self._max_gap_ns)
        return int(stamps[np.argmax(broken)] if broken.any() else stamps[-1])


def constant_velocity(history: EgoHistory) -> np.ndarray:
    """[64, 3] metres in the ego frame at t0: the odometry's speed continues in the direction the ego was moving."""
    moved = history.xyz[-1] - history.xyz[-1 - DIRECTION_STEPS]
    distance_m = np.linalg.norm(moved)
    forward = np.array([np.copysign(1.0, history.speed_mps), 0.0, 0.0])
    direction = moved / distance_m if distance_m > STANDING_M else forward
    return abs(history.speed_mps) * WAYPOINT_TIMES_S[:, None] * direction


def constant_turn_rate_and_velocity(history: EgoHistory) -> np.ndarray:
    """[64, 3] metres in the ego frame at t0: an arc from the present heading, at the odometry's speed and the mean
    turn rate of the last 0.5 s."""
    yaw = yaw_from_matrix(history.rotation[[-1 - TURN_STEPS, -1]])
    turn_rate = wrap_angle(yaw[1] - yaw[0]) / (TURN_STEPS * HISTORY_STEP_S)  # rad/s, left positive
    turned = turn_rate * WAYPOINT_TIMES_S
    return arc_end(history.speed_mps * WAYPOINT_TIMES_S, turned)


def displacements(xyz: np.ndarray, future: np.ndarray) -> np.ndarray:
    """[n] metres in the ground plane between waypoints [64, 3] and a future [n, 3], n <= 64."""
    return np.linalg.norm(xyz[:len(future), :2] - future[:, :2], axis=1)


def displacement_summary(errors: list[np.ndarray], baseline: list[np.ndarray]) -> dict:
    """The contract's `trajectory` part.

    errors, baseline: per plan, [n] metres of the plan and of constant velocity, as far as the future is known. A
    horizon counts the plans whose future reaches it and is null if there are none; `evaluated` counts those of the
    shortest horizon, `evaluated_at` those of each.
    """
    at = {name: [k for k, row in enumerate(errors) if len(row) >= n] for name, n in HORIZONS.items()}

    def mean(rows: list[np.ndarray], measure) -> dict:
        return {name: _rounded([measure(rows[k][:n]) for k in at[name]]) for name, n in HORIZONS.items()}

    counts = {name: len(plans) for name, plans in at.items()}
    return {
        "ade_m": mean(errors, np.mean),
        "fde_m": mean(errors, lambda row: row[-1]),
        "constant_velocity_ade_m": mean(baseline, np.mean),
        "constant_velocity_fde_m": mean(baseline, lambda row: row[-1]),
        "evaluated": counts["1s"],
        "evaluated_at": counts,
    }


def _rounded(values: list[float]) -> float | None:
    return round(float(np.mean(values)), 4) if values else None
