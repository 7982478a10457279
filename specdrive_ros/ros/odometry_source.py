"""Where a node gets the car's odometry: from its topic or, if nobody publishes it, from the transforms on /tf.

CARLA puts the origin of a car at its middle, plans and controller at the rear axle; the shift is made here, so that no
later code has to know about it. tf2_msgs is imported only if it is used.
"""

from collections.abc import Callable, Mapping
from importlib import import_module

import numpy as np
from nav_msgs.msg import Odometry
from rclpy.node import Node

from specdrive_ros.errors import InputError
from specdrive_ros.geometry import matrix_from_quaternion
from specdrive_ros.observation.transform_odometry import Edge, TransformOdometry
from specdrive_ros.ros import qos
from specdrive_ros.ros.conversions import header, nanoseconds
from specdrive_ros.ros.parameters import ParameterSpec
from specdrive_ros.ros.subscribing import subscribe
from specdrive_ros.ros.vehicle_geometry import RANGES
from specdrive_ros.shapes import NANOSECONDS

SOURCES = ("topic", "tf")
LONGEST_STEP_S = 0.5  # between two poses that a speed is computed from
Take = Callable[[Odometry], None]
RearAxle = Callable[[str], float]  # frame of the car -> m, forward positive


def odometry_parameters(*, read_only: bool) -> tuple[ParameterSpec, ...]:
    """The parameters that every node following the car has in common."""
    return (
        ParameterSpec("odometry_source", "topic", "~/input/odometry, or tf where nobody publishes odometry",
                      choices=SOURCES, read_only=read_only),
        ParameterSpec("fixed_frame", "map", "frame that the car moves in, for odometry from tf", read_only=read_only),
        ParameterSpec("base_frame", "base_link", "frame of the car, for odometry from tf", read_only=read_only),
        ParameterSpec("rear_axle_x_m", 0.0, "the rear axle in the frame that odometry is of; CARLA's is its middle",
                      *RANGES["rear_axle_x_m"], read_only=read_only),
        ParameterSpec("use_vehicle_info", True, "a vehicle_info wins over parameters that say how the car is built",
                      read_only=read_only),
    )


def check_odometry_source(settings: Mapping[str, object]) -> None:
    """Raises InputError if odometry should come from tf and its messages are not installed."""
    if settings["odometry_source"] == "tf":
        _transform_message()


def topic_of(settings: Mapping[str, object]) -> str:
    return "/tf" if settings["odometry_source"] == "tf" else "~/input/odometry"


def subscribe_odometry(
    node: Node,
    settings: Mapping[str, object],
    rear_axle_x_m: RearAxle,
    take: Take,
    on_mismatch: Callable[[int], None] | None = None,
) -> list:
    """Subscriptions that pass the odometry of the rear axle to `take`. on_mismatch: as in `subscribe`.

    rear_axle_x_m: position of the rear axle in a message's frame; asked each time, since it may become known late.
    """
    shifted = _shifting(rear_axle_x_m, take)
    if settings["odometry_source"] == "topic":
        return [subscribe(node, Odometry, topic_of(settings), shifted, qos.odometry_input(), on_mismatch)]
    kind, listener = _transform_message(), TransformListener(settings["fixed_frame"], settings["base_frame"], shifted)
    return [
        subscribe(node, kind, "/tf", listener, qos.odometry_input(), on_mismatch),
        subscribe(node, kind, "/tf_static", listener.take_static, qos.kept_events()),
    ]


def _transform_message() -> type:
    try:
        return import_module("tf2_msgs.msg").TFMessage
    except ImportError as error:
        raise InputError(
            "parameter odometry_source: tf needs package tf2_msgs, which is not installed; install it or choose topic"
        ) from error


def _shifting(rear_axle_x_m: RearAxle, take: Take) -> Take:
    def shift(message: Odometry) -> None:
        offset_m = rear_axle_x_m(message.child_frame_id)
        if offset_m == 0.0:
            take(message)
            return
        position, turn = message.pose.pose.position, message.pose.pose.orientation
        quaternion = np.array([turn.x, turn.y, turn.z, turn.w])
        if np.isfinite(quaternion).all() and quaternion.any():  # else the history refuses it with a reason
            ahead = matrix_from_quaternion(quaternion / np.linalg.norm(quaternion))[:, 0] * offset_m
            position.x, position.y, position.z = (
                float(value) for value in (position.x + ahead[0], position.y + ahead[1], position.z + ahead[2])
            )
        take(message)

    return shift


class TransformListener:
    """Called with tf2_msgs/TFMessage; passes on odometry, with the speed computed from the poses."""

    def __init__(self, fixed_frame: str, base_frame: str, take: Take):
        self._derived = TransformOdometry(fixed_frame, base_frame)
        self._take = take
        self._last: tuple[int, np.ndarray] | None = None
        self._speed_mps = 0.0

    def __call__(self, message) -> None:
        for transform in message.transforms:
            found = self._derived.add(transform.child_frame_id, _edge(transform))
            if found is not None:
                self._take(self._odometry(*found))

    def take_static(self, message) -> None:
        """Takes transforms that never change: they do not move the car, whatever their stamps."""
        for transform in message.transforms:
            self._derived.add(transform.child_frame_id, _edge(transform), static=True)

    def _odometry(self, stamp_ns: int, position: np.ndarray, quaternion: np.ndarray) -> Odometry:
        self._note_speed(stamp_ns, position, quaternion)
        frame, child = self._derived.fixed_frame, self._derived.base_frame
        message = Odometry(header=header(stamp_ns, frame), child_frame_id=child)
        place, turn = message.pose.pose.position, message.pose.pose.orientation
        place.x, place.y, place.z = map(float, position)
        turn.x, turn.y, turn.z, turn.w = map(float, quaternion)
        message.twist.twist.linear.x = self._speed_mps
        return message

    def _note_speed(self, stamp_ns: int, position: np.ndarray, quaternion: np.ndarray) -> None:
        """Updates the speed along the heading; it is kept if two poses are too far apart in time."""
        if self._last is not None:
            step_s = (stamp_ns - self._last[0]) / NANOSECONDS
            if 0 < step_s <= LONGEST_STEP_S and quaternion.any():
                forward = matrix_from_quaternion(quaternion)[:, 0]
                self._speed_mps = float(forward @ (position - self._last[1]) / step_s)
        self._last = (stamp_ns, position)


def _edge(transform) -> Edge:
    """Converts a geometry_msgs/TransformStamped."""
    moved, turned = transform.transform.translation, transform.transform.rotation
    return Edge(
        transform.header.frame_id,
        nanoseconds(transform.header.stamp),
        np.array([moved.x, moved.y, moved.z]),
        np.array([turned.x, turned.y, turned.z, turned.w]),
    )
