"""From messages to observations, on the worker's thread: decodes, sorts in, counts what is refused.

Keeps what the cycle's statistics need of an observation: when its newest camera message came, how long
decoding took, what was overtaken. Opens no sockets.
"""

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from nav_msgs.msg import Odometry
from sensor_msgs.msg import CompressedImage, Image

from specdrive_ros.observation.images import BadImage, decode_compressed, decode_image
from specdrive_ros.observation.observation import Observation
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
KEPT_STAMPS = 1024  # of frames not yet served
WAITING = {Reason.NOTHING_NEW, Reason.NOT_YET, Reason.NOT_SYNCHRONISED}


def decode_message(message: Image | CompressedImage) -> np.ndarray:
    """uint8 [H, W, 3] RGB. Raises BadImage for a message that is no picture."""
    if isinstance(message, CompressedImage):
        return decode_compressed(message.format, message.data)
    big_endian = bool(message.is_bigendian)
    return decode_image(
        message.encoding, message.height, message.width, message.step, big_endian, message.data
    )


@dataclass
class Perceived:
    """An observation with what its statistics need.

    arrived_ns: steady time at which its newest camera message came.
    decode_ms:  time spent decoding since the last observation.
    newest_ns:  input name -> stamp of its newest message, in the inputs' order.
    """

    observation: Observation
    frame_id: str
    arrived_ns: int
    decode_ms: float
    newest_ns: dict[str, int] = field(default_factory=dict)


class Perception:
    """Turns batches of messages into at most one observation a cycle; `dropped` counts those overtaken."""

    def __init__(self, cameras: Sequence[str], cycle_hz: float, monitors: dict[str, InputMonitor]):
        self.cameras = tuple(cameras)
        self.dropped = 0
        self._builder = ObservationBuilder(cameras)
        self._monitors = monitors
        self._least_distance_ns = EARLY_SHARE / cycle_hz * NANOSECONDS
        self._frame_id = BASE_LINK
        self._forget_cycle()

    def _forget_cycle(self) -> None:
        self._newest_ns: dict[str, int] = {}
        self._last_t0_ns: int | None = None
        self._pending_ns: deque[int] = deque(maxlen=KEPT_STAMPS)
        self._arrivals: dict[int, int] = {}
        self._decode_ms = 0.0

    def reset(self) -> None:
        """The clock went back: all that is known belongs to another time."""
        self._builder = ObservationBuilder(self.cameras)
        self._forget_cycle()

    def absorb(self, batch: Batch) -> None:
        """Takes in what came: odometry first, so that frames find their history."""
        if batch.was_reset:
            self.reset()
        for arrival in batch.arrivals[ODOMETRY]:
            self._absorb_odometry(arrival.message)
        self._pending_ns.extend(batch.lost_ns[self.cameras[0]])
        for camera in self.cameras:
            for arrival in batch.arrivals[camera]:
                self._absorb_frame(camera, arrival)

    def _absorb_odometry(self, message: Odometry) -> None:
        stamp_ns, xyz, quaternion, speed_mps = odometry_arrays(message)
        reason = self._builder.add_odometry(stamp_ns, xyz, quaternion, speed_mps)
        self._note(ODOMETRY, reason, f"odometry at {stamp_ns / NANOSECONDS:.3f} s")
        if reason not in (Reason.NOT_FINITE, Reason.ZERO_QUATERNION):
            self._frame_id = message.child_frame_id or BASE_LINK
            self._newest_ns[ODOMETRY] = stamp_ns

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
        self._newest_ns[camera] = stamp_ns
        self._arrivals[stamp_ns] = arrival.steady_ns
        while len(self._arrivals) > KEPT_STAMPS:
            del self._arrivals[next(iter(self._arrivals))]
        if camera == self.cameras[0]:
            self._pending_ns.append(stamp_ns)

    def _note(self, name: str, reason: Reason | None, what: str) -> None:
        if reason is None:
            return
        self._monitors[name].note_refusal(str(reason), f"{what}: {str(reason).lower().replace('_', ' ')}")
        if reason is Reason.CLOCK_JUMP:
            self._forget_cycle()

    def observation(self) -> Perceived | Refusal | None:
        """The newest observation, why there is none, or None while the next cycle is not due."""
        if not self._is_due():
            return None
        answer = self._builder.newest()
        if isinstance(answer, Refusal):
            if answer.reason not in WAITING:
                self._pending_ns.clear()
            return answer
        return self._serve(answer)

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
            self._frame_id,
            arrived_ns or time.monotonic_ns(),
            self._decode_ms,
            {name: self._newest_ns[name] for name in (*self.cameras, ODOMETRY) if name in self._newest_ns},
        )
        self._last_t0_ns = t0_ns
        self._decode_ms = 0.0
        waiting = [stamp for stamp in self._pending_ns if stamp > t0_ns]
        self._pending_ns = deque(waiting, maxlen=KEPT_STAMPS)
        return perceived

    def _count_overtaken(self, t0_ns: int) -> None:
        last_ns = self._last_t0_ns
        if last_ns is None:
            return
        for stamp_ns in sorted(self._pending_ns):
            if stamp_ns < t0_ns and stamp_ns - last_ns >= self._least_distance_ns:
                self.dropped += 1
                last_ns = stamp_ns
