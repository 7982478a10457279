"""Frames of several cameras and odometry -> one observation at t0, or the reason why there is none.

t0 is the stamp of the newest camera set in which every camera is present and the frames are within a tolerance of each
other. Knows nothing about ROS, image encodings or "now": the caller decides whether an observation is too old to plan
on. One thread at a time.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence

import numpy as np

from specdrive_ros.observation.history import OdometryHistory
from specdrive_ros.observation.observation import EgoHistory, Observation
from specdrive_ros.observation.refusal import Reason, Refusal
from specdrive_ros.shapes import FRAME_STEP_S, FRAMES_PER_CAMERA, NANOSECONDS


class FrameRing:
    """One camera's newest frames, sorted by stamp, bounded in time."""

    def __init__(self, window_ns: int):
        self._window_ns = window_ns
        self.stamps: list[int] = []
        self.frames: list[np.ndarray] = []

    def __len__(self) -> int:
        return len(self.stamps)

    def clear(self) -> None:
        self.stamps.clear()
        self.frames.clear()

    def add(self, stamp_ns: int, rgb: np.ndarray) -> Reason | None:
        """Sorts in one frame. A new size voids the older frames; of two frames with one stamp, the first is kept."""
        changed = bool(self.frames) and self.frames[-1].shape != rgb.shape
        if changed:
            self.clear()
        index = bisect_left(self.stamps, stamp_ns)
        if index < len(self.stamps) and self.stamps[index] == stamp_ns:
            return Reason.DUPLICATE_FRAME
        if self.stamps and stamp_ns < self.stamps[-1] - self._window_ns:
            return Reason.TOO_OLD
        self.stamps.insert(index, stamp_ns)
        self.frames.insert(index, rgb)
        expired = bisect_left(self.stamps, self.stamps[-1] - self._window_ns)
        del self.stamps[:expired], self.frames[:expired]
        return Reason.SIZE_CHANGED if changed else None

    def nearest(self, stamp_ns: int) -> int:
        """Index of the frame nearest in time, of two equally near the newer; the ring must not be empty."""
        index = bisect_left(self.stamps, stamp_ns)
        if index == len(self.stamps):
            return index - 1
        if index > 0 and stamp_ns - self.stamps[index - 1] < self.stamps[index] - stamp_ns:
            return index - 1
        return index


class ObservationBuilder:
    """Collects decoded frames and odometry and makes at most one observation per camera set.

    cameras:            names in prompt order.
    frames_per_camera:  how many frames an observation has, the last at t0.
    frame_step_s:       time between them.
    tolerance_s:        how far apart in time the frames of one camera set may be.
    repeat_missing:     True replaces a missing frame by the nearest one, and counts it; False refuses the observation.
    clock_jump_s:       a frame older than its camera's newest by more than this means that the clock went back: frames
                        and history start anew. (A camera may lag behind another by any time.)
    history:            None makes one with its default limits.

    `rejected` counts refused, replaced or reset inputs by reason.
    """

    def __init__(
        self,
        cameras: Sequence[str],
        frames_per_camera: int = FRAMES_PER_CAMERA,
        frame_step_s: float = FRAME_STEP_S,
        tolerance_s: float = 0.05,
        *,
        repeat_missing: bool = True,
        clock_jump_s: float = 1.0,
        history: OdometryHistory | None = None,
    ):
        if not cameras:
            raise ValueError("an observation needs at least one camera")
        self.cameras = tuple(cameras)
        self.history = history or OdometryHistory()
        self.frames_received = 0
        self.odometry_received = 0
        self._step_ns = round(frame_step_s * NANOSECONDS)
        self._offsets_ns = [(k - frames_per_camera + 1) * self._step_ns for k in range(frames_per_camera)]
        self._tolerance_ns = round(tolerance_s * NANOSECONDS)
        self._clock_jump_ns = round(clock_jump_s * NANOSECONDS)
        self._repeat_missing = repeat_missing
        window_ns = -self._offsets_ns[0] + self._step_ns + self._tolerance_ns
        self._rings = {camera: FrameRing(window_ns) for camera in self.cameras}
        self._served_ns: int | None = None
        self._rejected: Counter[str] = Counter()

    @property
    def rejected(self) -> dict[str, int]:
        """Reason -> number of inputs, frames and odometry together."""
        total = self._rejected + Counter({str(reason): n for reason, n in self.history.rejected.items()})
        return dict(sorted(total.items()))

    def reject_frame(self, reason: str) -> None:
        """Counts an image that arrived and could not be decoded."""
        self.frames_received += 1
        self._rejected[str(reason)] += 1

    def add_odometry(
        self, stamp_ns: int, xyz: np.ndarray, quaternion: np.ndarray, speed_mps: float | None = None
    ) -> Reason | None:
        """As `OdometryHistory.add`; if the clock went back, the frames are voided too."""
        self.odometry_received += 1
        reason = self.history.add(stamp_ns, xyz, quaternion, speed_mps)
        if reason is Reason.CLOCK_JUMP:
            self._forget_frames()
        return reason

    def add_frame(self, camera: str, stamp_ns: int, rgb: np.ndarray) -> Reason | None:
        """Takes one frame, uint8 [H, W, 3]; returns why it was not simply added, or None.

        Raises KeyError for a camera that is not one of `cameras`.
        """
        ring = self._rings[camera]
        self.frames_received += 1
        stamp_ns = int(stamp_ns)
        jumped = bool(ring) and stamp_ns < ring.stamps[-1] - self._clock_jump_ns
        if jumped:
            self._forget_frames()
            self.history.clear()
        reason = ring.add(stamp_ns, rgb)
        reason = Reason.CLOCK_JUMP if jumped else reason
        if reason is not None:
            self._rejected[str(reason)] += 1
        return reason

    def newest(self) -> Observation | Refusal:
        """The newest unused camera set that has its frames and its history.

        If the newest set has to wait for its odometry, an older unused one is taken. The refusal is that of the newest
        set.
        """
        missing = [camera for camera in self.cameras if not self._rings[camera]]
        if len(missing) == len(self.cameras):
            return Refusal(Reason.NO_FRAMES, "no frame has come yet")
        if missing:
            return Refusal(Reason.CAMERA_MISSING, f"no frame yet of {', '.join(missing)}")
        refusal = None
        for t0_ns in self._candidates():
            if self._served_ns is not None and t0_ns <= self._served_ns:
                return refusal or Refusal(Reason.NOTHING_NEW, "the newest camera set has been served")
            answer = self._observe(t0_ns)
            if isinstance(answer, Observation):
                self._served_ns = t0_ns
                return answer
            refusal = refusal or answer
        return refusal or self._not_synchronised()

    def held_at(self, t0_ns: int, max_frame_age_s: float) -> Observation | Refusal:
        """An observation at an instant without a new frame: the last images are held.

        Every frame that stands for another instant counts as repeated. Refused if a camera's newest frame is older
        than `max_frame_age_s`.
        """
        for camera in self.cameras:
            ring = self._rings[camera]
            if not ring:
                return Refusal(Reason.CAMERA_MISSING, f"no frame yet of {camera}")
            age_s = (t0_ns - ring.stamps[-1]) / NANOSECONDS
            if age_s > max_frame_age_s:
                return Refusal(Reason.STALE_FRAMES, f"the newest frame of {camera} is {age_s:.2f} s old; "
                                                    f"at most {max_frame_age_s:g} s is allowed")
        answer = self._observe(t0_ns)
        if isinstance(answer, Observation):
            self._served_ns = t0_ns
        return answer

    def _candidates(self) -> list[int]:
        """Stamps at which every camera has a frame within the tolerance, newest first."""
        stamps = sorted({stamp for ring in self._rings.values() for stamp in ring.stamps}, reverse=True)
        return [stamp for stamp in stamps if all(
            abs(ring.stamps[ring.nearest(stamp)] - stamp) <= self._tolerance_ns
            for ring in self._rings.values())]

    def _not_synchronised(self) -> Refusal:
        newest = {camera: ring.stamps[-1] for camera, ring in self._rings.items()}
        late = min(newest, key=newest.__getitem__)
        behind_s = (max(newest.values()) - newest[late]) / NANOSECONDS
        return Refusal(Reason.NOT_SYNCHRONISED, f"{late} is {behind_s:.3f} s behind the newest frame; "
                                                f"at most {self._tolerance_ns / NANOSECONDS:g} s is one set")

    def _observe(self, t0_ns: int) -> Observation | Refusal:
        history = self.history.at(t0_ns)
        if isinstance(history, Refusal):
            return history
        chosen = {camera: self._choose(ring, t0_ns) for camera, ring in self._rings.items()}
        repeated = sum(count for _, count in chosen.values())
        if repeated and not self._repeat_missing:
            lacking = ", ".join(camera for camera, (_, count) in chosen.items() if count)
            return Refusal(Reason.MISSING_FRAMES, f"not every frame before t0 is there for {lacking}")
        indices = {camera: indices for camera, (indices, _) in chosen.items()}
        return self._assemble(t0_ns, history, indices, repeated)

    def _choose(self, ring: FrameRing, t0_ns: int) -> tuple[list[int], int]:
        """Indices of the frames for t0-0.3 … t0, and how many of them stand in for missing ones."""
        wanted = [t0_ns + offset for offset in self._offsets_ns]
        indices = [ring.nearest(stamp) for stamp in wanted]
        repeated = sum(abs(ring.stamps[i] - stamp) > self._step_ns // 2 for i, stamp in zip(indices, wanted))
        return indices, repeated

    def _assemble(
        self, t0_ns: int, history: EgoHistory, indices: dict[str, list[int]], repeated: int
    ) -> Observation:
        frames, stamps = {}, {}
        for camera, chosen in indices.items():
            ring = self._rings[camera]
            frames[camera] = np.stack([ring.frames[i] for i in chosen])
            stamps[camera] = np.array([ring.stamps[i] for i in chosen], np.int64)
        return Observation(t0_ns, frames, stamps, history, repeated)

    def _forget_frames(self) -> None:
        for ring in self._rings.values():
            ring.clear()
        self._served_ns = None
