"""`sim`: the embedded world behind CARLA's topic names, in real time.

Publishes /clock, camera images (bgra8), camera_info, odometry and vehicle_info, takes AckermannDrive or pedals, and
reports on `~/scenario` (JSON, kept for late listeners) what begins, what the expert thinks and how it ends. A shell
around `scenario_playback`. It runs on the steady clock; late ticks are made up for, and counted.
"""

import sys

if __name__ == "__main__":  # a signal while rclpy is being imported
    from specdrive_ros.ros.starting import end_quietly_on_signals

    end_quietly_on_signals()

import json
import re
import time
from array import array
from collections.abc import Sequence
from functools import partial

import cv2
import numpy as np
from nav_msgs.msg import Odometry
from rclpy.clock import Clock, ClockType
from rclpy.node import Node
from rclpy.publisher import Publisher
from rosgraph_msgs.msg import Clock as ClockMessage
from sensor_msgs.msg import CameraInfo, Image
from std_msgs.msg import String
from std_srvs.srv import Trigger

from specdrive_ros.errors import InputError
from specdrive_ros.ros import qos
from specdrive_ros.ros.conversions import header, stamp, yaw_quaternion
from specdrive_ros.ros.parameters import ParameterSpec, declare, read
from specdrive_ros.ros.run_node import run_node
from specdrive_ros.sim.scenario_playback import TICK_S, PlaybackConfig, ScenarioPlayback, parse_scenarios
from specdrive_ros.ros.vehicle_geometry import EMBEDDED
from specdrive_ros.ros.vehicle_info import info_message, info_type
from specdrive_ros.ros.vehicle_messages import TOPIC_OF_OUTPUT, from_ackermann, from_carla, message_type
from specdrive_ros.sim.appearance import APPEARANCES, TRAIN
from specdrive_ros.sim.camera import render
from specdrive_ros.sim.pinhole import CAMERAS, FRONT_CAMERA, PinholeCamera, check_cameras
from specdrive_ros.sim.scenario import FAMILIES, make_world
from specdrive_ros.sim.world import Command, EgoState

MAP_FRAME = "map"
ROLE_NAME = re.compile(r"[A-Za-z_]\w*(/[A-Za-z_]\w*)*", re.ASCII)
MOST_TICKS_AT_ONCE = 4  # a longer delay is not made up for, because the world would jump
PARAMETERS = (
    ParameterSpec("scenarios", list(FAMILIES), "what to drive, each FAMILY or FAMILY:SEED", read_only=True),
    ParameterSpec("seed", 0, "seed of scenarios that name none", 0, 2**31 - 1, read_only=True),
    ParameterSpec("count", 1, "seeds in a row for each scenario", 1, 100_000, read_only=True),
    ParameterSpec("appearance", TRAIN.name, "how the worlds look: as in training, or as never there",
                  choices=APPEARANCES, read_only=True),
    ParameterSpec("cameras", [FRONT_CAMERA.name], "what the car has, of " + ", ".join(CAMERAS), read_only=True),
    ParameterSpec("role_name", "ego_vehicle", "CARLA's name for the car, part of every topic", read_only=True),
    ParameterSpec("lead_in_s", 2.0, "the expert drives so long before commands are obeyed", 0.0, 60.0, read_only=True),
    ParameterSpec("command_timeout_s", 1.0, "brake after this long without a command", 0.1, 60.0, read_only=True),
    ParameterSpec("max_seconds", 0.0, "ends a scenario after this long, 0: never", 0.0, 3600.0, read_only=True),
    ParameterSpec("autostart", True, "begin at once, else wait for the service ~/start", read_only=True),
)


class SimNode(Node):
    """The world as a node. `~/start` (Trigger) begins once camera, odometry and commands are connected."""

    def __init__(self, **node_arguments):
        super().__init__("sim", **node_arguments)
        declare(self, PARAMETERS)
        settings = read(self, PARAMETERS)
        self._scenarios = parse_scenarios(settings["scenarios"], settings["seed"], settings["count"])
        self._config = PlaybackConfig(
            settings["lead_in_s"], settings["command_timeout_s"], settings["max_seconds"]
        )
        self._role = _checked_role(settings["role_name"])
        self._root = f"/carla/{self._role}"
        self._events = self.create_publisher(String, "~/scenario", qos.kept_events())
        self._clock = self.create_publisher(ClockMessage, "/clock", qos.output())
        self._odometry = self.create_publisher(Odometry, f"{self._root}/odometry", qos.output())
        make = partial(make_world, appearance=settings["appearance"])
        self._vehicle_info = self._tell_vehicle()
        self._playback = ScenarioPlayback(self._scenarios, self._tell, self._config, make)
        check_cameras(settings["cameras"])
        self._open_cameras(settings["cameras"])
        self._listen_to_commands()
        self._started_s: float | None = None
        self._ticks_done = 0
        self.create_service(Trigger, "~/start", self._on_start)
        steady = Clock(clock_type=ClockType.STEADY_TIME)
        self._timer = self.create_timer(TICK_S, self._on_timer, clock=steady)
        if settings["autostart"]:
            self._begin()

    def _open_cameras(self, names: Sequence[str]) -> None:
        self._images, self._infos = {}, {}
        for name in names:
            topic = f"{self._root}/{name}"
            self._images[name] = self.create_publisher(Image, f"{topic}/image", qos.output())
            self._infos[name] = self.create_publisher(CameraInfo, f"{topic}/camera_info", qos.output())

    def _tell_vehicle(self) -> Publisher | None:
        """Publishes the car's geometry, once; not without carla_msgs, of which `_listen_to_commands` warns."""
        kind = info_type()
        if kind is None:
            return None
        publisher = self.create_publisher(kind, f"{self._root}/vehicle_info", qos.told_once())
        publisher.publish(info_message(EMBEDDED, self._role))
        return publisher

    def _listen_to_commands(self) -> None:
        self._commands = []
        for output, act in (("ackermann", self._on_ackermann), ("carla", self._on_carla)):
            try:
                kind = message_type(output)
            except InputError as error:
                self.get_logger().warning(str(error))
                continue
            topic = f"{self._root}/{TOPIC_OF_OUTPUT[output]}"
            self._commands.append(self.create_subscription(kind, topic, act, qos.command_input()))

    def _on_start(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        missing = self._unconnected()
        response.success = not missing
        response.message = f"nobody is connected to: {', '.join(missing)}" if missing else "started"
        if response.success and self._started_s is None:
            self._begin()
        return response

    def _unconnected(self) -> list[str]:
        outputs = [self._odometry, *self._images.values()]
        missing = [publisher.topic_name for publisher in outputs if not publisher.get_subscription_count()]
        if not any(self.count_publishers(command.topic_name) for command in self._commands):
            missing.append(" or ".join(command.topic_name for command in self._commands))
        return missing

    @property
    def stamp_ns(self) -> int:
        """Time of the world's state, ns."""
        return self._playback.stamp_ns

    def _begin(self) -> None:
        self._started_s = time.monotonic()

    def _on_ackermann(self, message) -> None:
        self._obey(from_ackermann, message, self._playback.world.ego.speed)

    def _on_carla(self, message) -> None:
        self._obey(from_carla, message)

    def _obey(self, convert, *arguments) -> None:
        try:
            acceleration, curvature = convert(*arguments)
        except InputError as error:
            self.get_logger().warning(str(error), throttle_duration_sec=1.0)
            return
        self._playback.take_command(Command(acceleration_mps2=acceleration, curvature_per_m=curvature))

    def _on_timer(self) -> None:
        if self._started_s is None or self._playback.finished:
            return
        due = int((time.monotonic() - self._started_s) / TICK_S) - self._ticks_done
        if due > MOST_TICKS_AT_ONCE:
            self._started_s += (due - MOST_TICKS_AT_ONCE) * TICK_S
            due = MOST_TICKS_AT_ONCE
        for _ in range(due):
            self._advance()

    def _advance(self) -> None:
        self._playback.tick()
        self._ticks_done += 1
        if self._playback.finished:
            return
        time_ns = self._playback.stamp_ns
        self._clock.publish(ClockMessage(clock=stamp(time_ns)))
        self._odometry.publish(odometry_message(self._playback.world.ego, time_ns, self._role))
        if self._playback.frame_due:
            self._publish_frames(time_ns)

    def _publish_frames(self, time_ns: int) -> None:
        if time.monotonic() - self._started_s > (self._ticks_done + 1) * TICK_S:
            self._playback.note_late_frame()
        world = self._playback.world
        for name, publisher in self._images.items():
            image = image_message(render(world, name), time_ns, f"{self._role}/{name}")
            publisher.publish(image)
            self._infos[name].publish(camera_info_message(world.cameras[name], image))

    def _tell(self, event: dict) -> None:
        self._events.publish(String(data=json.dumps(event)))

    def close(self) -> None:
        """Nothing to close: the world is only memory."""


def _checked_role(name: str) -> str:
    """Raises InputError for a name that cannot be part of a topic."""
    if not ROLE_NAME.fullmatch(name):
        raise InputError(f"parameter role_name: {name!r}; must be letters, digits and _, a letter or _ first")
    return name


def odometry_message(ego: EgoState, time_ns: int, child_frame: str) -> Odometry:
    """Pose in the map, twist in the child frame, as from CARLA's bridge."""
    message = Odometry(header=header(time_ns, MAP_FRAME), child_frame_id=child_frame)
    message.pose.pose.position.x = float(ego.x)
    message.pose.pose.position.y = float(ego.y)
    message.pose.pose.orientation = yaw_quaternion(ego.yaw)
    message.twist.twist.linear.x = float(ego.speed)
    message.twist.twist.angular.z = float(ego.speed * ego.curvature)
    return message


def image_message(rgb: np.ndarray, time_ns: int, frame_id: str) -> Image:
    """rgb: uint8 [H, W, 3] -> bgra8, CARLA's encoding."""
    height, width = rgb.shape[:2]
    pixels = cv2.cvtColor(rgb, cv2.COLOR_RGB2BGRA)
    return Image(
        header=header(time_ns, frame_id),
        height=height,
        width=width,
        encoding="bgra8",
        step=4 * width,
        data=array("B", pixels.tobytes()),
    )


def camera_info_message(camera: PinholeCamera, image: Image) -> CameraInfo:
    """Intrinsics of an ideal pinhole camera, with the same header as its image."""
    fx, fy, cx, cy = camera.fx, camera.fy, camera.cx, camera.cy
    return CameraInfo(
        header=image.header,
        height=image.height,
        width=image.width,
        distortion_model="plumb_bob",
        d=[0.0] * 5,
        k=[fx, 0.0, cx, 0.0, fy, cy, 0.0, 0.0, 1.0],
        r=[1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0],
        p=[fx, 0.0, cx, 0.0, 0.0, fy, cy, 0.0, 0.0, 0.0, 1.0, 0.0],
    )


def main(arguments: list[str] | None = None) -> int:
    return run_node(SimNode, arguments)


if __name__ == "__main__":
    sys.exit(main())
