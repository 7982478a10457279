"""A car's cameras and odometry, faulty on request: what a planner has to survive.

The car drives a recorded drive over and over in real time, or straight on at constant speed with noise as images.
`faults` is a set of names from FAULTS and can be changed at any time. Used by the fault tests and by `specdrive bench
node`.
"""

import math
import time
from array import array
from collections.abc import Sequence

import numpy as np
from nav_msgs.msg import Odometry
from rclpy.clock import Clock, ClockType
from rclpy.node import Node
from sensor_msgs.msg import Image

from specdrive_ros.ros import qos
from specdrive_ros.ros.conversions import header
from specdrive_ros.shapes import NANOSECONDS, PICTURE_SIZE
from specdrive_ros.sim.recorded_drive import Motion, RecordedDrive

ODOMETRY_S = 0.05
SAMPLES_PER_FRAME = 2
SPEED_MPS = 8.0
BURST = 1000
CLOCK_BACK_S = 60.0
FAULTS = {
    "camera_silent": "no picture",
    "camera_slow": "a picture a second",
    "camera_frozen": "the same picture with new stamps",
    "camera_corrupt": "a picture whose size is not what it says",
    "camera_encoding": "an encoding nobody knows",
    "camera_size": "another size every picture",
    "camera_old": "stamps half a second old",
    "camera_duplicate": "every picture twice",
    "camera_burst": "a thousand old pictures at once",
    "odometry_silent": "no odometry",
    "odometry_nan": "positions that are no numbers",
    "odometry_zero_quaternion": "an orientation nobody set",
    "odometry_duplicate": "every sample twice",
    "odometry_disorder": "every second sample late",
    "odometry_jump": "the car is elsewhere",
    "clock_back": "all stamps a minute back, from when it begins",
}


class FaultSource(Node):
    """Publishes `image` per camera topic and odometry on `odometry`.

    images:  topics of the cameras; size: rows and columns of the images.
    drive:   what the cameras show, all the same, and how the car moves; None: noise, straight on at constant speed.
    sent_ns: stamp -> steady time at which the first camera's image with that stamp was sent, for the last minute.
    slow_motion: a message that is sent late is stamped as if it were on time, so that a machine too busy for real time
                 sees a slower car, and not one whose messages have gaps.
    """

    def __init__(
        self,
        images: Sequence[str],
        odometry: str,
        *,
        size: tuple[int, int] = PICTURE_SIZE,
        drive: RecordedDrive | None = None,
        slow_motion: bool = False,
        **node_arguments,
    ):
        super().__init__("fault_source", **node_arguments)
        self.faults: set[str] = set()
        self.sent_ns: dict[int, int] = {}
        self._size, self._drive, self._random = size, drive, np.random.default_rng(0)
        self._slow_motion = slow_motion
        self._began_ns, self._began_wall_ns, self._back_ns = time.monotonic_ns(), time.time_ns(), 0
        self._frames = self._samples = 0
        self._picture = self._noise(size)
        self._late: Odometry | None = None
        self._images = [self.create_publisher(Image, topic, qos.output()) for topic in images]
        self._odometry = self.create_publisher(Odometry, odometry, qos.output())
        self.create_timer(ODOMETRY_S, self._tick, clock=Clock(clock_type=ClockType.STEADY_TIME))

    @property
    def matched(self) -> bool:
        return all(publisher.get_subscription_count() for publisher in (*self._images, self._odometry))

    def set_faults(self, *names: str) -> None:
        """Replaces the active faults. Raises KeyError for an unknown name."""
        for name in names:
            FAULTS[name]  # noqa: B018
        if "clock_back" in names and "clock_back" not in self.faults:
            self._back_ns += round(CLOCK_BACK_S * NANOSECONDS)
        self.faults = set(names)
        if "camera_burst" in names:
            self._send_burst()

    def _now_ns(self) -> int:
        """Stamp clock: starts at the wall clock, then runs without its corrections."""
        return self._began_wall_ns + self._passed_ns() - self._back_ns

    def _passed_ns(self) -> int:
        if self._slow_motion:
            return round(self._samples * ODOMETRY_S * NANOSECONDS)
        return time.monotonic_ns() - self._began_ns

    def _tick(self) -> None:
        self._send_odometry()
        if self._samples % SAMPLES_PER_FRAME == 0:
            self._send_pictures()

    def _noise(self, size: tuple[int, int]) -> np.ndarray:
        return self._random.integers(0, 255, (*size, 3), np.uint8)

    def _shown(self, size: tuple[int, int]) -> np.ndarray:
        """What the cameras see now; noise in any size but the recorded one."""
        if self._drive is None or self._drive.pictures.shape[1:3] != size:
            return self._noise(size)
        return self._drive.picture(self._passed_ns() / NANOSECONDS)

    def _send_pictures(self) -> None:
        self._frames += 1
        if "camera_silent" in self.faults or ("camera_slow" in self.faults and self._frames % 10):
            return
        stamp_ns = self._now_ns() - (NANOSECONDS // 2 if "camera_old" in self.faults else 0)
        message = self._image(stamp_ns)
        self.sent_ns[stamp_ns] = time.monotonic_ns()
        while len(self.sent_ns) > 600:
            del self.sent_ns[next(iter(self.sent_ns))]
        for publisher in self._images:
            for _ in range(2 if "camera_duplicate" in self.faults else 1):
                publisher.publish(message)

    def _image(self, stamp_ns: int) -> Image:
        size = self._size
        if "camera_size" in self.faults:
            size = (size[0] + 32 * (self._frames % 2), size[1])
        if "camera_frozen" not in self.faults or self._picture.shape[:2] != size:
            self._picture = self._shown(size)
        rows, columns = size
        data = self._picture.tobytes()
        if "camera_corrupt" in self.faults:
            data = data[: len(data) // 2]
        encoding = "telepathy8" if "camera_encoding" in self.faults else "rgb8"
        return Image(
            header=header(stamp_ns, "camera"), height=rows, width=columns, encoding=encoding, step=3 * columns,
            data=array("B", data),
        )

    def _send_burst(self) -> None:
        """Stamps lie in the last tenth of a second, so that they are neither new nor from another time."""
        stamp_ns = self._now_ns() - NANOSECONDS // 10
        message = self._image(stamp_ns)
        for step in range(BURST):
            message.header = header(stamp_ns + step, "camera")
            for publisher in self._images:
                publisher.publish(message)

    def _send_odometry(self) -> None:
        self._samples += 1
        if "odometry_silent" in self.faults:
            return
        message = self._sample(self._now_ns())
        if "odometry_disorder" in self.faults:
            if self._late is None:
                self._late = message
                return
            self._odometry.publish(message)
            message, self._late = self._late, None
        self._odometry.publish(message)
        if "odometry_duplicate" in self.faults:
            self._odometry.publish(message)

    def _sample(self, stamp_ns: int) -> Odometry:
        message = Odometry(header=header(stamp_ns, "map"), child_frame_id="base_link")
        pose, passed_s = message.pose.pose, self._passed_ns() / NANOSECONDS
        at = self._drive.motion(passed_s) if self._drive else Motion(SPEED_MPS * passed_s, 0.0, 0.0, SPEED_MPS)
        pose.position.x, pose.position.y = at.x, at.y
        pose.orientation.z, pose.orientation.w = math.sin(at.yaw / 2), math.cos(at.yaw / 2)
        message.twist.twist.linear.x = at.speed_mps
        if "odometry_nan" in self.faults:
            pose.position.x = float("nan")
        if "odometry_zero_quaternion" in self.faults:
            pose.orientation.z = pose.orientation.w = 0.0
        if "odometry_jump" in self.faults and self._samples % 20 == 0:
            pose.position.y += 500.0
        return message
