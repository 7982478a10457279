"""Odometry at any rate -> 16 poses at 10 Hz ending at t0, or the reason why not.

Resampled by *time*, never by count, so the history is the same at 5 Hz and 200 Hz, with jitter, and with lost, late or
repeated messages. Knows nothing of ROS or of camera frames; one thread at a time.
"""

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass

import numpy as np

from specdrive_ros.geometry import (
    in_frame,
    interpolate_poses,
    matrix_from_quaternion,
    normalise_quaternion,
    slerp,
)
from specdrive_ros.observation.observation import EgoHistory
from specdrive_ros.observation.refusal import Reason, Refusal
from specdrive_ros.shapes import HISTORY_STEP_S, HISTORY_TIMES_S, NANOSECONDS

HISTORY_OFFSETS_NS = np.round(HISTORY_TIMES_S * NANOSECONDS).astype(np.int64)
SMALLEST_QUATERNION = 1e-3  # shorter ones are an unset message, not a badly scaled rotation
LARGEST_VALUE = 1e9  # no place on Earth is further off (metres), no quaternion is longer
RATE_SPAN_NS = 100_000_000  # extrapolation takes its rates over at least this long
POSITION_SLACK_M = 0.5  # noise of a position that is no teleport


@dataclass(frozen=True)
class Pose:
    """Of base_link in odometry's fixed frame: xyz [3] m, quaternion [4] (x, y, z, w), forward speed m/s."""

    xyz: np.ndarray
    quaternion: np.ndarray
    speed_mps: float

    @property
    def rotation(self) -> np.ndarray:
        """[3, 3], body to fixed frame."""
        return matrix_from_quaternion(self.quaternion)


class OdometryHistory:
    """A ring of odometry samples, sorted by stamp, bounded in time.

    window_s:          how far back from the newest sample it keeps.
    max_gap_s:         longest silence between two samples that is still interpolated.
    extrapolation_s:   t0 may be this much newer than the newest sample (images and odometry arrive
                       in any order); the last rates of motion and turn go on.
    clock_jump_s:      a sample older than the newest by more than this means that the clock went back:
                       the ring starts again.
    max_speed_mps:     anything faster between two samples is a teleport.

    `rejected` counts refused or replaced samples by reason, `out_of_order` those sorted in late.
    """

    def __init__(
        self,
        *,
        window_s: float = 3.0,
        max_gap_s: float = 0.5,
        extrapolation_s: float = 0.1,
        clock_jump_s: float = 1.0,
        max_speed_mps: float = 100.0,
    ):
        self._window_ns = round(window_s * NANOSECONDS)
        self._max_gap_ns = round(max_gap_s * NANOSECONDS)
        self._extrapolation_ns = round(extrapolation_s * NANOSECONDS)
        self._clock_jump_ns = round(clock_jump_s * NANOSECONDS)
        self._max_speed_mps = max_speed_mps
        self._stamps: list[int] = []
        self._samples: list[tuple[float, ...]] = []  # x y z, qx qy qz qw, speed or NaN
        self._restarted = False
        self.rejected: Counter[Reason] = Counter()
        self.out_of_order = 0

    def __len__(self) -> int:
        return len(self._stamps)

    @property
    def newest_ns(self) -> int | None:
        return self._stamps[-1] if self._stamps else None

    def clear(self) -> None:
        """Forget all samples, as after a jump of the clock; the counts stay."""
        self._stamps.clear()
        self._samples.clear()
        self._restarted = True

    def known_speed(self, speed_mps: float | None) -> float | None:
        """The speed that a message gives; None if it gives none, or one that no car has."""
        believed = speed_mps is not None and abs(speed_mps) <= self._max_speed_mps  # False for NaN
        return float(speed_mps) if believed else None

    def add(
        self, stamp_ns: int, xyz: np.ndarray, quaternion: np.ndarray, speed_mps: float | None = None
    ) -> Reason | None:
        """Takes one sample; returns why it was not simply added, or None.

        xyz: [3] metres and quaternion: [4] (x, y, z, w) of base_link in a fixed frame; speed_mps: forward speed of its
        twist; unknown if it is not finite or above `max_speed_mps`. NOT_FINITE and ZERO_QUATERNION leave the history
        as it was, CLOCK_JUMP restarts it with this sample, DUPLICATE_ODOMETRY replaces the sample with that stamp,
        TOO_OLD drops it.
        """
        reason = self._insert(int(stamp_ns), xyz, quaternion, speed_mps)
        if reason is not None:
            self.rejected[reason] += 1
        return reason

    def _insert(self, stamp_ns: int, xyz, quaternion, speed_mps: float | None) -> Reason | None:
        xyz, quaternion = np.asarray(xyz, np.float64), np.asarray(quaternion, np.float64)
        if not (np.abs(np.concatenate([xyz, quaternion])) < LARGEST_VALUE).all():
            return Reason.NOT_FINITE
        if np.linalg.norm(quaternion) < SMALLEST_QUATERNION:
            return Reason.ZERO_QUATERNION
        known = self.known_speed(speed_mps)
        speed = np.nan if known is None else known
        sample = (*xyz.tolist(), *normalise_quaternion(quaternion).tolist(), speed)
        if self._stamps and stamp_ns < self._stamps[-1] - self._clock_jump_ns:
            self.clear()
            self._place(stamp_ns, sample)
            return Reason.CLOCK_JUMP
        return self._place(stamp_ns, sample)

    def _place(self, stamp_ns: int, sample: tuple[float, ...]) -> Reason | None:
        index = bisect_left(self._stamps, stamp_ns)
        if index < len(self._stamps) and self._stamps[index] == stamp_ns:
            self._samples[index] = sample
            return Reason.DUPLICATE_ODOMETRY
        if self._stamps and stamp_ns < self._stamps[-1] - self._window_ns:
            return Reason.TOO_OLD
        self.out_of_order += index < len(self._stamps)
        self._stamps.insert(index, stamp_ns)
        self._samples.insert(index, sample)
        expired = bisect_left(self._stamps, self._stamps[-1] - self._window_ns)
        del self._stamps[:expired], self._samples[:expired]
        if self._stamps[-1] - self._stamps[0] >= -int(HISTORY_OFFSETS_NS[0]):
            self._restarted = False
        return None

    def pose_at(self, at_ns: int) -> Pose | None:
        """The pose at a time, extrapolated after the newest sample; None without any sample.

        Before the oldest sample, that sample's pose. The caller judges how far extrapolation may go.
        """
        if not self._stamps:
            return None
        stamps, samples = np.array(self._stamps, np.int64), np.array(self._samples, np.float64)
        at_ns = max(int(at_ns), self._stamps[0])
        if len(stamps) == 1:
            return Pose(samples[0, :3], samples[0, 3:7], float(np.nan_to_num(samples[0, 7])))
        stamps, samples = _extrapolated(stamps, samples, at_ns)
        xyz, quaternions = interpolate_poses(stamps, samples[:, :3], samples[:, 3:7], np.array([at_ns]))
        after = int(np.clip(np.searchsorted(stamps, at_ns), 1, len(stamps) - 1))
        return Pose(xyz[0], quaternions[0], _speed_at(stamps, samples, after, at_ns))

    def at(self, t0_ns: int) -> EgoHistory | Refusal:
        """The history that ends at t0, in the ego frame at t0, or why there is none."""
        refusal = self._coverage_refusal(t0_ns)
        if refusal is not None:
            return refusal
        first = max(bisect_left(self._stamps, t0_ns + int(HISTORY_OFFSETS_NS[0]) + 1) - 1, 0)
        last = min(bisect_left(self._stamps, t0_ns) + 1, len(self._stamps))
        stamps = np.array(self._stamps[first:last], np.int64)
        samples = np.array(self._samples[first:last], np.float64)
        refusal = self._gap_refusal(stamps, t0_ns) or self._teleport_refusal(stamps, samples[:, :3])
        return refusal or resample_history(stamps, samples, t0_ns)

    def _coverage_refusal(self, t0_ns: int) -> Refusal | None:
        if not self._stamps:
            if self._restarted:
                return Refusal(Reason.CLOCK_JUMP, "the clock went back and no odometry came since")
            return Refusal(Reason.NO_ODOMETRY, "no odometry has come yet")
        late_ns = t0_ns - self._stamps[-1]
        if late_ns > self._extrapolation_ns:
            return Refusal(Reason.NOT_YET, f"the newest odometry is {_s(late_ns)} older than t0; "
                                           f"at most {_s(self._extrapolation_ns)} is extrapolated")
        missing_ns = self._stamps[0] - (t0_ns + int(HISTORY_OFFSETS_NS[0]))
        if missing_ns <= 0 and len(self._stamps) > 1:
            return None
        reach = (f"odometry reaches {_s(t0_ns - self._stamps[0])} back from t0; "
                 f"{-HISTORY_TIMES_S[0]:.1f} s are needed")
        if self._restarted:
            return Refusal(Reason.CLOCK_JUMP, f"the clock went back; since then {reach}")
        return Refusal(Reason.TOO_SHORT, reach)

    def _gap_refusal(self, stamps: np.ndarray, t0_ns: int) -> Refusal | None:
        gap_ns = int(np.diff(stamps).max())
        if gap_ns <= self._max_gap_ns:
            return None
        return Refusal(Reason.GAP, f"no odometry for {_s(gap_ns)} within the last "
                                   f"{_s(t0_ns - int(stamps[0]))}; "
                                   f"at most {_s(self._max_gap_ns)} is interpolated")

    def _teleport_refusal(self, stamps: np.ndarray, xyz: np.ndarray) -> Refusal | None:
        moved_m = np.linalg.norm(np.diff(xyz, axis=0), axis=1)
        allowed_m = self._max_speed_mps * np.diff(stamps) / NANOSECONDS + POSITION_SLACK_M
        if (moved_m <= allowed_m).all():
            return None
        worst = int(np.argmax(moved_m - allowed_m))
        return Refusal(Reason.TELEPORT, f"odometry jumps {moved_m[worst]:.1f} m within "
                                        f"{_s(int(stamps[worst + 1] - stamps[worst]))}")


def resample_history(stamps: np.ndarray, samples: np.ndarray, t0_ns: int) -> EgoHistory:
    """[16] poses ending at t0, from samples that cover them.

    stamps: [N] int64 ns; samples: [N, 8] position (m), unit quaternion (x, y, z, w), speed (m/s) or NaN.
    """
    stamps, samples = _extrapolated(stamps, samples, t0_ns)
    xyz, quaternions = interpolate_poses(stamps, samples[:, :3], samples[:, 3:7], t0_ns + HISTORY_OFFSETS_NS)
    world_from_body = matrix_from_quaternion(quaternions)
    ego = world_from_body[-1]
    history_xyz = in_frame(xyz, xyz[-1], ego)
    rotation = ego.T @ world_from_body
    rotation[-1] = np.eye(3)
    speed = float(np.interp(t0_ns - stamps[0], stamps - stamps[0], samples[:, 7]))
    if not np.isfinite(speed):
        speed = float(-history_xyz[-2, 0] / HISTORY_STEP_S)
    return EgoHistory(history_xyz, rotation, speed)


def _extrapolated(stamps: np.ndarray, samples: np.ndarray, t0_ns: int) -> tuple[np.ndarray, np.ndarray]:
    """The samples, plus one at t0 if t0 is newer than all: the last motion and turn rate continue."""
    if t0_ns <= stamps[-1]:
        return stamps, samples
    base = int(np.searchsorted(stamps, stamps[-1] - RATE_SPAN_NS, side="right")) - 1
    base = min(max(base, 0), len(stamps) - 2)
    ahead = (t0_ns - stamps[-1]) / (stamps[-1] - stamps[base])
    fractions = np.array([0.5, 1 + ahead / 2, 1 + ahead])  # middle of the known arc, middle and end of the next
    turned = slerp(samples[[base] * 3, 3:7], samples[[-1] * 3, 3:7], fractions)
    known_mid, next_mid = matrix_from_quaternion(turned[:2])
    moved = ahead * next_mid @ known_mid.T @ (samples[-1, :3] - samples[base, :3])
    newest = np.concatenate([samples[-1, :3] + moved, turned[2], samples[-1, 7:]])
    return np.append(stamps, t0_ns), np.vstack([samples, newest])


def _speed_at(stamps: np.ndarray, samples: np.ndarray, after: int, at_ns: int) -> float:
    """Forward speed in the segment that ends at sample `after`: from the twist, else from the positions."""
    segment = slice(after - 1, after + 1)
    speed = float(np.interp(at_ns - stamps[0], stamps[segment] - stamps[0], samples[segment, 7]))
    if np.isfinite(speed):
        return speed
    moved = in_frame(samples[after, :3], samples[after - 1, :3], matrix_from_quaternion(samples[after - 1, 3:7]))
    return float(moved[0] / ((stamps[after] - stamps[after - 1]) / NANOSECONDS))


def _s(nanoseconds: int) -> str:
    return f"{nanoseconds / NANOSECONDS:.2f} s"
