"""The planner's subscriptions: messages into the inbox, a monitor beside each. Decodes nothing.

Odometry comes from its topic or, where nobody publishes any, from /tf.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module

import numpy as np
from nav_msgs.msg import Odometry
from rclpy.node import Node

from specdrive_ros.errors import InputError
from specdrive_ros.observation.transform_odometry import Edge, TransformOdometry
from specdrive_ros.ros import qos
from specdrive_ros.ros.conversions import header, nanoseconds
from specdrive_ros.ros.diagnostics import InputMonitor
from specdrive_ros.ros.inbox import Inbox
from specdrive_ros.ros.perception import MESSAGE_OF_TRANSPORT, ODOMETRY
from specdrive_ros.ros.planner_parameters import TOPIC_SUFFIX

NO_SPEED = float("nan")  # the history takes it from positions


class PlannerInputs:
    """Opened when the node is activated, closed when it is deactivated. `monitors` has one monitor an input."""

    def __init__(self, node: Node):
        self._node = node
        self._subscriptions: list = []
        self.monitors: dict[str, InputMonitor] = {}

    def open(self, cameras: Sequence[str], settings: Mapping[str, object], inbox: Inbox) -> None:
        transport = settings["image_transport"]
        for camera in cameras:
            topic = f"~/input/{camera}/{TOPIC_SUFFIX[transport]}"
            take = self._into(inbox, camera, topic)
            self._subscribe(MESSAGE_OF_TRANSPORT[transport], topic, take, qos.image_input())
        from_tf = settings["odometry_source"] == "tf"
        topic = "/tf" if from_tf else "~/input/odometry"
        take = self._into(inbox, ODOMETRY, topic)
        if from_tf:
            self._open_transforms(settings, take)
        else:
            self._subscribe(Odometry, topic, take, qos.odometry_input())
        self.retune(settings)

    def _into(self, inbox: Inbox, name: str, topic: str):
        monitor = self.monitors[name] = InputMonitor(name, self._node.resolve_topic_name(topic), 1.0)
        clock = self._node.get_clock()

        def take(message) -> None:
            stamp_ns = nanoseconds(message.header.stamp)
            overflowed = inbox.put(name, message, stamp_ns)
            monitor.note_arrival(overflowed, stamp_ns, message.header.frame_id, clock.now().nanoseconds)

        return take

    def _open_transforms(self, settings: Mapping[str, object], take) -> None:
        kind = _transform_message()
        derived = TransformOdometry(settings["fixed_frame"], settings["base_frame"])

        def take_transforms(message) -> None:
            for transform in message.transforms:
                odometry = _odometry_of(derived, transform)
                if odometry is not None:
                    take(odometry)

        self._subscribe(kind, "/tf", take_transforms, qos.odometry_input())
        self._subscribe(kind, "/tf_static", take_transforms, qos.kept_events())

    def _subscribe(self, kind: type, topic: str, take, profile) -> None:
        subscription = self._node.create_subscription(
            kind, topic, take, profile, qos_overriding_options=qos.overridable()
        )
        self._subscriptions.append(subscription)

    def retune(self, settings: Mapping[str, object]) -> None:
        """Limits of the monitors; may change while they run."""
        for name, monitor in self.monitors.items():
            kind = ODOMETRY if name == ODOMETRY else "camera"
            monitor.stale_after_s, monitor.min_hz = settings[f"{kind}_stale_s"], settings[f"{kind}_min_hz"]
            monitor.max_age_s = settings["stamp_max_age_s"]

    def close(self) -> None:
        for subscription in self._subscriptions:
            self._node.destroy_subscription(subscription)
        self._subscriptions.clear()
        self.monitors.clear()


def check_odometry_source(settings: Mapping[str, object]) -> None:
    """Raises InputError where odometry should come from tf and its messages are not installed."""
    if settings["odometry_source"] == "tf":
        _transform_message()


def _transform_message() -> type:
    try:
        return import_module("tf2_msgs.msg").TFMessage
    except ImportError as error:
        raise InputError(
            "parameter odometry_source: tf needs package tf2_msgs, which is not installed; install it or choose topic"
        ) from error


def _odometry_of(derived: TransformOdometry, transform) -> Odometry | None:
    """A geometry_msgs/TransformStamped as odometry of the car, where it moves the car."""
    moved, turned = transform.transform.translation, transform.transform.rotation
    edge = Edge(
        transform.header.frame_id,
        nanoseconds(transform.header.stamp),
        np.array([moved.x, moved.y, moved.z]),
        np.array([turned.x, turned.y, turned.z, turned.w]),
    )
    found = derived.add(transform.child_frame_id, edge)
    if found is None:
        return None
    stamp_ns, position, quaternion = found
    message = Odometry(header=header(stamp_ns, derived.fixed_frame), child_frame_id=derived.base_frame)
    pose = message.pose.pose
    pose.position.x, pose.position.y, pose.position.z = (float(value) for value in position)
    turn = pose.orientation
    turn.x, turn.y, turn.z, turn.w = (float(value) for value in quaternion)
    message.twist.twist.linear.x = NO_SPEED
    return message
