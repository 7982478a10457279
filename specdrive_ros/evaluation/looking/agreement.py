"""Whether a plan does what its sentence says.

What a sentence decides is read from the phrase it is made of; what a plan does, from its path alone. One table has the
rule for each decision. A decision without a rule (what a car does behind another is decided by the other) is not
judged, and the figures say how many those are. The expert's own sentences and futures are judged by the same rules:
where those disagree, the rule is wrong, not the driver.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from specdrive_ros.evaluation.looking.sentences import Reading
from specdrive_ros.shapes import WAYPOINT_STEP_S, WAYPOINT_TIMES_S

STANDING_MPS = 1.0  # nearly standing
MUCH_SLOWER_SHARE = 0.5  # of the speed at t0
SLOWER_MPS = 0.3  # less than this below the speed at t0 still counts as the same speed
SETTLED_S = 1.0  # what happens earlier is what the car was doing anyway
END_S = 0.5  # the final speed is the mean over this time
ASIDE_M = 0.4  # from the centre of the lane, or from where the car is at t0
BACK_M = 0.2  # nearer to the centre of the lane than at t0; the error to correct may be small
SIDEWAYS_WITHIN_S = 4.0  # later the way back may have begun
TOWARDS, AWAY = ("side", "back"), ("off",)  # slots that name the side to move to, and the side to leave


@dataclass(frozen=True, eq=False)
class Motion:
    """What a car does from t0 on.

    speeds_mps: [64] over ground, of the step to each waypoint; v0_mps at t0.
    offset_m:   [64] of the waypoints from the centre of the ego's lane, left positive; offset0_m at t0.
    """

    v0_mps: float
    speeds_mps: np.ndarray
    offset0_m: float
    offset_m: np.ndarray

    @classmethod
    def along(cls, path: np.ndarray, v0_mps: float, lane: np.ndarray) -> "Motion":
        """path: [64, 2+] x, y and lane: [N, 3] x, y, yaw (m, m, rad) in the ego frame at t0."""
        points = np.vstack([np.zeros((1, 2)), path[:, :2]])
        speeds = np.linalg.norm(np.diff(points, axis=0), axis=1) / WAYPOINT_STEP_S
        offsets = offset_from(lane, points)
        return cls(v0_mps, speeds, float(offsets[0]), offsets[1:])


def offset_from(lane: np.ndarray, points: np.ndarray) -> np.ndarray:
    """[n] metres, left positive, of points [n, 2] from a line of poses [N, 3] x, y, yaw, seen from the nearest
    pose."""
    apart = points[:, None] - lane[None, :, :2]
    nearest = np.linalg.norm(apart, axis=2).argmin(axis=1)
    dx, dy = apart[np.arange(len(points)), nearest].T
    return -np.sin(lane[nearest, 2]) * dx + np.cos(lane[nearest, 2]) * dy


def agrees(reading: Reading, motion: Motion) -> bool | None:
    """Whether the motion does what the sentence says; None if its decision has no rule, or needs a side and names
    none."""
    rule, side = RULES.get(reading.decision), side_of(reading)
    if rule is None or (rule in SIDEWAYS and side == 0):
        return None
    return bool(rule(motion, side))


def side_of(reading: Reading) -> int:
    """The side to move to that the sentence names: 1 left, -1 right, 0 none."""
    for slots, sign in ((TOWARDS, 1), (AWAY, -1)):
        for slot in slots:
            if reading.slots.get(slot) in ("left", "right"):
                return sign if reading.slots[slot] == "left" else -sign
    return 0


def stops(motion: Motion, side: int) -> bool:
    """Whether it nearly stands, or has half its speed or less, at some time after the first second."""
    slowest = motion.speeds_mps[WAYPOINT_TIMES_S > SETTLED_S].min()
    return slowest <= max(STANDING_MPS, MUCH_SLOWER_SHARE * motion.v0_mps)


def slows(motion: Motion, side: int) -> bool:
    """Whether it is clearly slower than at t0 at some time, or nearly stands."""
    return motion.speeds_mps.min() <= max(STANDING_MPS, motion.v0_mps - SLOWER_MPS)


def goes_on(motion: Motion, side: int) -> bool:
    """Whether it does not end standing."""
    return motion.speeds_mps[WAYPOINT_TIMES_S > WAYPOINT_TIMES_S[-1] - END_S].mean() > STANDING_MPS


def goes_aside(motion: Motion, side: int) -> bool:
    """Whether it is or comes to the named side of the lane's centre, or moves to that side from where it is."""
    beside, moved = _sideways(motion, side)
    return max(beside, moved) >= ASIDE_M


def goes_back(motion: Motion, side: int) -> bool:
    """Whether it moves to the named side across the lane."""
    return _sideways(motion, side)[1] >= BACK_M


def _sideways(motion: Motion, side: int) -> tuple[float, float]:
    """The farthest to the named side: from the lane's centre, and from the offset at t0; metres."""
    furthest = (side * motion.offset_m[WAYPOINT_TIMES_S <= SIDEWAYS_WITHIN_S]).max()
    return furthest, furthest - side * motion.offset0_m


SIDEWAYS = (goes_aside, goes_back)
RULES: dict[str, Callable[[Motion, int], bool]] = {
    "stop": stops,
    "yield": stops,
    "emergency_stop": stops,
    "stay_stopped": stops,
    "slow": slows,
    "ease_off": slows,
    "keep_lane": goes_on,
    "speed_up": goes_on,
    "proceed": goes_on,
    "start": goes_on,
    "pass": goes_on,
    "nudge": goes_aside,
    "change_lane": goes_aside,
    "merge": goes_aside,
    "give_way": slows,
    "return": goes_back,
}
