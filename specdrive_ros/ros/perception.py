"""From messages to observations, on the worker's thread: decodes, sorts, counts what is refused.

Keeps what the cycle's statistics need about an observation: when its newest camera message arrived, how long decoding
took, what was overtaken. Opens no sockets.
"""

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from sensor_msgs.msg import CompressedImage, Image

from specdrive_ros.observation.frozen import FrozenPicture
from specdrive_ros.observation.images import BadImage, decode_message
from specdrive_ros.observation.observation import EgoHistory, Observation
from specdrive_ros.observation.refusal import Reason, Refusal
from specdrive_ros.observation.synchronisation import ObservationBuilder
from specdrive_ros.ros.conversions import odometry_arrays
from specdrive_ros.ros.diagnostics import InputMonitor
from specdrive_ros.ros.inbox import Arrival, Batch
from specdrive_ros.shapes import NANOSECONDS

ODOMETRY = "odometry"
BASE_LINK = "base_link"
MESSAGE_OF_TRANSPORT = {"raw": Image, "compressed": CompressedImage}
EARLY_SHARE = 0.9  # a frame this share of a cycle after the last is the next cycle's: cameras jitter
KEPT_STAMPS = 1024  # of frames not yet used
WAITING = {Reason.NOTHING_NEW, Reason.NOT_YET, Reason.NOT_SYNCHRONISED}
INCOMPLETE = {Reason.NOT_SYNCHRONISED, Reason.CAMERA_MISSING, Reason.NOTHING_NEW}  # a camera is missing from the set
WRONG_FRAME, FROZEN, UNCERTAIN = "WRONG_FRAME", "FROZEN", "UNCERTAIN"
POSITION_VARIANCES = (0, 7)  # indices of x and y in a pose's row-major covariance


@dataclass
class Perceived:
    """An observation with what its statistics need.

    arrived_ns: steady time at which its newest camera message arrived.
    decode_ms:  time spent decoding since the last observation.
    newest_ns:  input name -> stamp of its newest message, in the inputs' order.
    """

    observation: Observation
    frame_id: str
    arrived_ns: int
    decode_ms: float
    newest_ns: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class InputPolicy:
    """How inputs that are late, missing or odd are handled.

    cameras:         wait for a complete set, use the last image of a late camera, or drop the cycle.
    wait_s:          how long to wait for a set before `last` or `drop`.
    max_age_s:       oldest image that `last` uses.
    odometry_frames: child frames that odometry may have; empty: any.
    max_std_m:       positions with a larger standard deviation cause a warning; 0: never.
    """

    cameras: str = "wait"
    wait_s: float = 0.03
    max_age_s: float = 0.5
    odometry_frames: tuple[str, ...] = ()
    max_std_m: float = 0.0


@dataclass(frozen=True)
class DroppedCycle(Refusal):
    """The set stays incomplete and the cycle is given up: a substitute is needed now."""


@dataclass(frozen=True)
class Present:
    """The newest instant that is known without an image.

    history, speed_mps: None if odometry does not give them.
    """

    t0_ns: int
    history: EgoHistory | None
    speed_mps: float | None


class Perception:
    """Turns batches of messages into at most one observation per cycle; `dropped` counts those overtaken or given up.

    `resets` counts how often all data became void because the clock went back.
    """

    def __init__(
        self,
        cameras: Sequence[str],
        cycle_hz: float,
        monitors: dict[str, InputMonitor],
        policy: InputPolicy = InputPolicy(),
    ):
        self.cameras, self.policy = tuple(cameras), policy
        self.dropped = self.resets = 0
        self._builder = ObservationBuilder(cameras)
        self._monitors = monitors
        self._least_distance_ns = EARLY_SHARE / cycle_hz * NANOSECONDS
        self.frame_id = BASE_LINK
        self._forget_cycle()

    def _forget_cycle(self) -> None:
        self._newest_ns: dict[str, int] = {}
        self._last_t0_ns: int | None = None
        self._pending_ns: deque[int] = deque(maxlen=KEPT_STAMPS)
        self._arrivals: dict[int, int] = {}
        self._decode_ms = 0.0
        self._speed_mps: float | None = None
        self._odometry_arrived_ns: int | None = None
        self._clock_ns: int | None = None  # the node's clock when the newest message was taken in
        self._frozen = {camera: FrozenPicture() for camera in self.cameras}

    def reset(self) -> None:
        """Forgets everything, because the clock went back and the data belong to another time."""
        self._builder = ObservationBuilder(self.cameras)
        self.resets += 1
        self._forget_cycle()

    def absorb(self, batch: Batch, clock_ns: int | None = None) -> None:
        """Takes in a batch: odometry first, so that frames find their history. clock_ns: the node's clock, now."""
        if batch.was_reset:
            self.reset()
        for arrival in batch.arrivals[ODOMETRY]:
            self._absorb_odometry(arrival)
        self._pending_ns.extend(batch.lost_ns[self.cameras[0]])
        for camera in self.cameras:
            for arrival in batch.arrivals[camera]:
                self._absorb_frame(camera, arrival)
        if clock_ns is not None and any(batch.arrivals.values()):
            self._clock_ns = clock_ns

    def _absorb_odometry(self, arrival: Arrival) -> None:
        message, monitor = arrival.message, self._monitors[ODOMETRY]
        if self.policy.odometry_frames and message.child_frame_id not in self.policy.odometry_frames:
            wanted = ", ".join(self.policy.odometry_frames)
            monitor.note_refusal(WRONG_FRAME, f"frame {message.child_frame_id!r}; must be one of {wanted}")
            return
        stamp_ns, xyz, quaternion, speed_mps = odometry_arrays(message)
        reason = self._builder.add_odometry(stamp_ns, xyz, quaternion, speed_mps)
        self._note(ODOMETRY, reason, f"odometry at {stamp_ns / NANOSECONDS:.3f} s")
        self._note_covariance(message.pose.covariance)
        if reason in (Reason.NOT_FINITE, Reason.ZERO_QUATERNION, Reason.TOO_OLD):
            return
        self.frame_id = message.child_frame_id or BASE_LINK
        self._newest_ns[ODOMETRY] = stamp_ns
        self._odometry_arrived_ns = arrival.steady_ns
        self._speed_mps = self._builder.history.known_speed(speed_mps)

    def _note_covariance(self, covariance: Sequence[float]) -> None:
        """Warns of an uncertain position; it is used all the same, since there is no better one."""
        variances = np.array([covariance[index] for index in POSITION_VARIANCES])
        if not (np.isfinite(variances).all() and (variances >= 0).all()):
            text = f"position covariance {variances.tolist()} is no covariance"
            self._monitors[ODOMETRY].note_warning(UNCERTAIN, text)
        elif self.policy.max_std_m and np.sqrt(variances.max()) > self.policy.max_std_m:
            text = f"position is certain to {np.sqrt(variances.max()):.1f} m; limit {self.policy.max_std_m:g} m"
            self._monitors[ODOMETRY].note_warning(UNCERTAIN, text)

    def _absorb_frame(self, camera: str, arrival: Arrival) -> None:
        begun = time.perf_counter()
        try:
            rgb = decode_message(arrival.message)
        except BadImage as error:
            self._builder.reject_frame(str(error.fault))
            self._monitors[camera].note_refusal(str(error.fault), str(error))
            return
        self._decode_ms += 1000 * (time.perf_counter() - begun)
        stamp_ns = arrival.stamp_ns
        reason = self._builder.add_frame(camera, stamp_ns, rgb)
        self._note(camera, reason, f"frame at {stamp_ns / NANOSECONDS:.3f} s")
        if reason is Reason.DUPLICATE_FRAME:  # neither a new cycle nor a frozen camera
            return
        if self._frozen[camera].note(rgb, self._speed_mps or 0.0):
            same = self._frozen[camera].same + 1
            self._monitors[camera].note_warning(FROZEN, f"the same picture {same} times while the car moves")
        self._newest_ns[camera] = stamp_ns
        self._arrivals[stamp_ns] = arrival.steady_ns
        while len(self._arrivals) > KEPT_STAMPS:
            del self._arrivals[next(iter(self._arrivals))]
        if camera == self.cameras[0]:
            self._pending_ns.append(stamp_ns)

    def _note(self, name: str, reason: Reason | None, what: str) -> None:
        if reason is None:
            return
        self._monitors[name].note_refusal(str(reason), f"{what}: {reason.words}")
        if reason is Reason.CLOCK_JUMP:
            self.resets += 1
            self._forget_cycle()

    def observation(self) -> Perceived | Refusal | None:
        """The newest observation, or why there is none, or None while the next cycle is not due."""
        if not self._is_due():
            return None
        answer = self._builder.newest()
        if isinstance(answer, Refusal) and answer.reason in INCOMPLETE:
            answer = self._incomplete(answer)
        if isinstance(answer, Refusal):
            if answer.reason not in WAITING:
                self._pending_ns.clear()
            return answer
        return self._serve(answer)

    def _incomplete(self, refusal: Refusal) -> Observation | Refusal:
        """What the policy makes of a set with a camera missing, after the wait."""
        newest_ns = max((self._newest_ns[camera] for camera in self.cameras if camera in self._newest_ns), default=None)
        if self.policy.cameras == "wait" or newest_ns is None or newest_ns <= (self._last_t0_ns or 0):
            return refusal
        waited_s = (time.monotonic_ns() - self._arrivals.get(newest_ns, 0)) / NANOSECONDS
        if waited_s < self.policy.wait_s:
            return refusal
        if self.policy.cameras == "last":
            return self._builder.held_at(newest_ns, self.policy.max_age_s)
        self.dropped += 1
        self._last_t0_ns = newest_ns
        return DroppedCycle(refusal.reason, f"cycle dropped: {refusal.text}")

    def _is_due(self) -> bool:
        newest = [self._newest_ns[camera] for camera in self.cameras if camera in self._newest_ns]
        if self._last_t0_ns is None or len(newest) < len(self.cameras):
            return True
        return max(newest) - self._last_t0_ns >= self._least_distance_ns

    def _serve(self, observation: Observation) -> Perceived:
        t0_ns = observation.t0_ns
        self._count_overtaken(t0_ns)
        stamps = [int(stamps_ns[-1]) for stamps_ns in observation.frame_stamps_ns.values()]
        arrived_ns = max(self._arrivals.get(stamp, 0) for stamp in stamps)
        perceived = Perceived(
            observation,
            self.frame_id,
            arrived_ns or time.monotonic_ns(),
            self._decode_ms,
            self.newest_stamps(),
        )
        self._last_t0_ns = t0_ns
        self._decode_ms = 0.0
        waiting = [stamp for stamp in self._pending_ns if stamp > t0_ns]
        self._pending_ns = deque(waiting, maxlen=KEPT_STAMPS)
        return perceived

    def newest_stamps(self) -> dict[str, int]:
        """Input name -> stamp of its newest message, in the inputs' order, for inputs that have one."""
        return {name: self._newest_ns[name] for name in (*self.cameras, ODOMETRY) if name in self._newest_ns}

    def newest_ns(self, clock_ns: int) -> int:
        """The newest stamp received, or the node's clock if there is none."""
        return max(self._newest_ns.values(), default=clock_ns)

    def present(self, clock_ns: int, odometry_stale_s: float) -> Present:
        """Where the car is when a plan is wanted and there is no observation. clock_ns: the node's clock, now.

        While odometry arrives: at its newest stamp. Otherwise at the newest stamp received plus the time since then by
        the node's clock, which stops when a simulation does.
        """
        arrived_ns = self._odometry_arrived_ns
        silent_s = np.inf if arrived_ns is None else (time.monotonic_ns() - arrived_ns) / NANOSECONDS
        if silent_s <= odometry_stale_s:
            newest_ns = self._newest_ns[ODOMETRY]
            t0_ns = max(newest_ns, self._last_t0_ns or newest_ns)
            history = self._builder.history.at(t0_ns)
            return Present(t0_ns, None if isinstance(history, Refusal) else history, self._speed_mps)
        if not self._newest_ns or self._clock_ns is None:
            return Present(clock_ns, None, None)
        return Present(max(self._newest_ns.values()) + max(0, clock_ns - self._clock_ns), None, None)

    def _count_overtaken(self, t0_ns: int) -> None:
        last_ns = self._last_t0_ns
        if last_ns is None:
            return
        for stamp_ns in sorted(self._pending_ns):
            if stamp_ns < t0_ns and stamp_ns - last_ns >= self._least_distance_ns:
                self.dropped += 1
                last_ns = stamp_ns
