"""A small planner and the world around a planner node: cameras, odometry, and all that it says."""

import threading
from dataclasses import replace

import cv2
import numpy as np
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from nav_msgs.msg import Odometry, Path
from rclpy.lifecycle import TransitionCallbackReturn
from sensor_msgs.msg import CompressedImage, Image
from specdrive_ros.msg import CycleStats, Reasoning, Trajectory
from specdrive_ros.plan import Plan
from specdrive_ros.ros import qos
from specdrive_ros.ros.conversions import header
from specdrive_ros.ros.planner_node import PlannerNode
from specdrive_ros.safety.plan_checks import PlanLimits, violations
from specdrive_ros.shapes import NANOSECONDS, WAYPOINT_TIMES_S
from std_msgs.msg import String

CAMERAS = ("front", "tele")
SPEED = 5.0
FRAME_WALL_S = 0.05  # for a node in another process
START_NS = 1000 * NANOSECONDS
SUCCESS, FAILURE = TransitionCallbackReturn.SUCCESS, TransitionCallbackReturn.FAILURE


class ConstantVelocity:
    """Plans straight on; can be told to take long, to raise or to plan nonsense.

    cruise_mps: a car that is slower gains a metre a second every second until it drives so fast.
    """

    cameras = CAMERAS
    limits = PlanLimits()
    cruise_mps = 0.0

    def __init__(self):
        self.observations = []
        self.gate = threading.Event()
        self.gate.set()
        self.error: Exception | None = None
        self.offset = 0.0

    def plan(self, observation) -> Plan:
        self.observations.append(observation)
        self.gate.wait()
        if self.error is not None:
            raise self.error
        speed = observation.history.speed_mps
        gained = np.minimum(WAYPOINT_TIMES_S, max(0.0, self.cruise_mps - speed))
        speeds, acceleration = speed + gained, np.gradient(gained, WAYPOINT_TIMES_S)
        steps = np.diff(speeds, prepend=speed) / 2 + np.concatenate([[speed], speeds[:-1]])
        ahead = np.cumsum(steps * np.diff(WAYPOINT_TIMES_S, prepend=0.0)) + self.offset
        zeros = np.zeros(64)
        plan = Plan(
            observation.t0_ns, "Keep going since the road is free.", (1, 2, 3),
            np.stack([ahead, zeros, zeros], 1), zeros, speeds, acceleration, zeros, speed,
            target_passes=3, stage_ms={"vision": 1.0},
        )
        return replace(plan, violations=tuple(violations(plan, observation, self.limits)))


class World:
    """Publishes cameras at 10 Hz and odometry at 20 Hz of a car at 5 m/s, keeps what the planner says.

    Time in stamps is the test's own: `advance` goes as fast as the node takes the messages.
    """

    def __init__(self, graph, node: PlannerNode | None = None, transport: str = "raw"):
        self.graph, self.planner_node, self.transport = graph, node, transport
        self.node = graph.listener()
        self.now_ns = START_NS
        self.sent = 0
        self.silent: set[str] = set()
        kind, suffix = (Image, "image") if transport == "raw" else (CompressedImage, "image/compressed")
        self.images = {
            camera: self.node.create_publisher(kind, f"/planner/input/{camera}/{suffix}", qos.output())
            for camera in CAMERAS
        }
        self.odometry = self.node.create_publisher(Odometry, "/planner/input/odometry", qos.output())
        self.heard = {}
        for name, kind in (("trajectory", Trajectory), ("path", Path), ("reasoning", Reasoning),
                           ("reasoning_text", String), ("cycle_stats", CycleStats)):
            self.hear(name, kind, f"/planner/output/{name}")
        self.hear("diagnostics", DiagnosticArray, "/diagnostics")

    def hear(self, name: str, kind: type, topic: str) -> None:
        self.heard[name] = []
        self.node.create_subscription(kind, topic, self.heard[name].append, qos.deep(qos.output()))

    def matched(self) -> bool:
        return all(publisher.get_subscription_count() for publisher in (*self.images.values(), self.odometry))

    def hears_all(self) -> bool:
        """Something on every topic, and a plan as the last word."""
        return all(self.heard.values()) and self.last("trajectory").source == Trajectory.PLANNED

    def sources(self) -> list[int]:
        return [trajectory.source for trajectory in self.heard["trajectory"]]

    def skip(self, *inputs: str) -> None:
        """From now on these send nothing."""
        self.silent = set(inputs)

    def advance(self, frames: int = 1) -> None:
        """Frames of 0.1 s: two odometry messages and one image a camera each; the last at `now_ns`."""
        for _ in range(frames):
            for _ in range(2):
                self.now_ns += NANOSECONDS // 20
                if "odometry" not in self.silent:
                    self.odometry.publish(self.odometry_now())
            heard = [camera for camera in CAMERAS if camera not in self.silent]
            for camera in heard:
                self.images[camera].publish(self.image(camera))
            self.let_arrive(2 * ("odometry" not in self.silent) + len(heard))

    def let_arrive(self, messages: int) -> None:
        if self.planner_node is None:
            self.graph.spin_for(FRAME_WALL_S)
            return
        self.sent += messages
        assert self.graph.spin_until(lambda: self.planner_node.messages_received >= self.sent)

    def settle(self) -> None:
        """Until the planner has looked at all that was sent: the cycle after the one that is going on."""
        after = self.planner_node._worker._cycle_number + 1
        assert self.graph.spin_until(lambda: any(each.cycle >= after for each in self.heard["cycle_stats"]))

    def said(self, status: str) -> list[DiagnosticStatus]:
        """All that was ever said of one status: a node tells a fault for a while, and then the next."""
        arrays = self.heard["diagnostics"]
        return [each for array in arrays for each in array.status if each.name == f"planner: {status}"]

    def odometry_now(self) -> Odometry:
        message = Odometry(header=header(self.now_ns, "map"), child_frame_id="rear_axle")
        message.pose.pose.position.x = SPEED * (self.now_ns - START_NS) / NANOSECONDS
        message.pose.pose.orientation.w = 1.0
        message.twist.twist.linear.x = SPEED
        return message

    def image(self, camera: str):
        rgb = np.full((8, 12, 3), (200, 100, 50), np.uint8)
        stamped = header(self.now_ns, camera)
        if self.transport == "compressed":
            encoded = cv2.imencode(".png", rgb[..., ::-1])[1]
            return CompressedImage(header=stamped, format="png", data=encoded.tobytes())
        return Image(header=stamped, height=8, width=12, encoding="rgb8", step=36, data=rgb.tobytes())

    def last(self, name: str):
        return self.heard[name][-1]

    def statuses(self) -> dict[str, DiagnosticStatus]:
        if not self.heard["diagnostics"]:
            return {}
        return {status.name: status for status in self.last("diagnostics").status}


def make_planner(graph, *overrides: str, load=None) -> tuple[PlannerNode, ConstantVelocity]:
    planner = ConstantVelocity()
    arguments = ["--ros-args", *(part for override in overrides for part in ("-p", override))]
    node = PlannerNode(load or (lambda settings: planner), context=graph.context, cli_args=arguments)
    return graph.add(node), planner


def drive_until(graph, world, condition) -> bool:
    """Feeds frames until the condition holds."""

    def advanced() -> bool:
        world.advance()
        return condition()

    return graph.spin_until(advanced)
