"""CARLA's vehicle_info: the car's geometry, sent once and kept for late listeners.

Once it arrives, what it says about axles and steering replaces a node's parameters. One that cannot be true is refused
with its reason, and what was known stays. carla_msgs is imported only if it is used: without it there are only the
parameters. If the rear axle turns out to be elsewhere, earlier positions belong to another point of the car.
"""

from collections.abc import Callable
from importlib import import_module

import numpy as np
from rclpy.node import Node

from specdrive_ros.errors import InputError
from specdrive_ros.ros import qos
from specdrive_ros.ros.subscribing import subscribe
from specdrive_ros.ros.vehicle_geometry import VehicleGeometry, from_wheels

TOPIC = "~/input/vehicle_info"
CODE = "VEHICLE_INFO"  # of the warning that a message was refused
MOST_WARNINGS = 16
SAME = 1e-3  # m or rad: a float32 in the message is not exactly the parameter
TRACK_M, WHEEL_RADIUS_M = 1.6, 0.35  # of the embedded world's car, where nothing depends on them


def info_type() -> type | None:
    """CarlaEgoVehicleInfo, or None if carla_msgs is not installed."""
    try:
        return import_module("carla_msgs.msg").CarlaEgoVehicleInfo
    except ImportError:
        return None


def geometry_of(message) -> VehicleGeometry:
    """Geometry from a CarlaEgoVehicleInfo. Raises InputError if it is not a car's, or its carla_msgs has no wheel
    positions."""
    try:
        xy_m = np.array([(wheel.position.x, wheel.position.y) for wheel in message.wheels], np.float64).reshape(-1, 2)
        max_steer_rad = np.array([wheel.max_steer_angle for wheel in message.wheels], np.float64)
    except AttributeError as error:
        raise InputError(f"its wheels do not say where they are ({error}); each must have a position") from error
    return from_wheels(xy_m, max_steer_rad)


def info_message(car: VehicleGeometry, role_name: str) -> object:
    """CarlaEgoVehicleInfo of a car that has nothing but its geometry; everything else is 0."""
    messages = import_module("carla_msgs.msg")
    info = messages.CarlaEgoVehicleInfo(type="vehicle.specdrive.embedded", rolename=role_name)
    front_x_m = car.rear_axle_x_m + car.wheelbase_m
    for x_m, steers_rad in ((front_x_m, car.max_steering_angle_rad), (car.rear_axle_x_m, 0.0)):  # CARLA's order
        for y_m in (TRACK_M / 2, -TRACK_M / 2):
            wheel = messages.CarlaEgoVehicleInfoWheel(max_steer_angle=steers_rad, radius=WHEEL_RADIUS_M)
            wheel.position.x, wheel.position.y, wheel.position.z = x_m, y_m, WHEEL_RADIUS_M
            info.wheels.append(wheel)
    return info


class KnownVehicle:
    """A node's car: as its parameters say (`given`) until a vehicle_info arrives, then as that says.

    on_moved: called if the rear axle is elsewhere than assumed. on_refused: called with the reason a message was
              refused.
    """

    def __init__(
        self,
        node: Node,
        given: VehicleGeometry,
        on_moved: Callable[[], None] | None = None,
        on_refused: Callable[[str], None] | None = None,
    ):
        self.geometry = self._given = given
        self._frame = ""
        self._node, self._on_moved, self._on_refused = node, on_moved, on_refused
        self._warned: set[str] = set()

    def listen(self, wanted: bool = True) -> list:
        """Subscriptions; none if it is not wanted or cannot be received."""
        kind = info_type() if wanted else None
        if kind is None:
            return []
        return [subscribe(self._node, kind, TOPIC, self.take, qos.told_once(), on_mismatch=self._note_mismatch)]

    def _note_mismatch(self, publishers: int) -> None:
        """Passes it on; `subscribe` has already logged it."""
        if self._on_refused is not None:
            self._on_refused(f"{self._topic} offers less than is asked for: what was told once does not come")

    @property
    def _topic(self) -> str:
        return self._node.resolve_topic_name(TOPIC)

    def take(self, message) -> None:
        """Called with CarlaEgoVehicleInfo."""
        try:
            geometry = geometry_of(message)
        except InputError as error:
            self._warn(f"{self._topic} is not believed: {error}")
            return
        before, self.geometry, self._frame = self.geometry, geometry, message.rolename.strip("/")
        if not _is_same(before, geometry):
            self._node.get_logger().info(f"{self._topic} of {message.rolename!r}: {geometry}; was: {before}")
        if self._on_moved is not None and abs(geometry.rear_axle_x_m - before.rear_axle_x_m) > SAME:
            self._on_moved()

    def rear_axle_x_m(self, frame_id: str) -> float:
        """Rear axle (m) in a frame of the car: as in vehicle_info if it is for that frame, else as given."""
        frame = frame_id.strip("/")
        if self._frame and frame and frame != self._frame:
            self._warn(f"{self._topic} is of {self._frame!r}, odometry of {frame!r}: rear_axle_x_m stays")
            return self._given.rear_axle_x_m
        return self.geometry.rear_axle_x_m

    def _warn(self, text: str) -> None:
        """Logs each text once, up to a maximum, in case a sender's numbers never repeat."""
        if text in self._warned or len(self._warned) >= MOST_WARNINGS:
            return
        self._warned.add(text)
        self._node.get_logger().warning(text)
        if self._on_refused is not None:
            self._on_refused(text)


def _is_same(one: VehicleGeometry, other: VehicleGeometry) -> bool:
    return all(abs(value - getattr(other, name)) <= SAME for name, value in vars(one).items())
