"""The planner's subscriptions: puts messages into the inbox, with a monitor for each input. Decodes nothing."""

from collections.abc import Mapping, Sequence
from functools import partial

from rclpy.node import Node

from specdrive_ros.ros import qos
from specdrive_ros.ros.conversions import nanoseconds
from specdrive_ros.ros.diagnostics import InputMonitor
from specdrive_ros.ros.inbox import Inbox
from specdrive_ros.ros.odometry_source import subscribe_odometry, topic_of
from specdrive_ros.ros.perception import MESSAGE_OF_TRANSPORT, ODOMETRY
from specdrive_ros.ros.planner_parameters import TOPIC_SUFFIX
from specdrive_ros.ros.subscribing import subscribe
from specdrive_ros.ros.vehicle_geometry import VehicleGeometry
from specdrive_ros.ros.vehicle_info import CODE, KnownVehicle


class PlannerInputs:
    """Opened when the node is activated, closed when it is deactivated. `monitors` has one monitor per input, `vehicle`
    what is known of the car; both are empty before the first opening."""

    def __init__(self, node: Node):
        self._node = node
        self._subscriptions: list = []
        self.monitors: dict[str, InputMonitor] = {}
        self.vehicle: KnownVehicle | None = None

    def open(self, cameras: Sequence[str], settings: Mapping[str, object], inbox: Inbox) -> None:
        transport = settings["image_transport"]
        kind = MESSAGE_OF_TRANSPORT[transport]
        for camera in cameras:
            topic = f"~/input/{camera}/{TOPIC_SUFFIX[transport]}"
            take = self._into(inbox, camera, topic)
            mismatch = self.monitors[camera].note_unheard
            self._subscriptions.append(subscribe(self._node, kind, topic, take, qos.image_input(), mismatch))
        take = self._into(inbox, ODOMETRY, topic_of(settings))
        monitor = self.monitors[ODOMETRY]
        self.vehicle = KnownVehicle(
            self._node, VehicleGeometry(settings["rear_axle_x_m"], settings["wheelbase_m"]),
            on_moved=inbox.reset, on_refused=partial(monitor.note_warning, CODE),
        )
        self._subscriptions += self.vehicle.listen(settings["use_vehicle_info"])
        self._subscriptions += subscribe_odometry(
            self._node, settings, self.vehicle.rear_axle_x_m, take, monitor.note_unheard
        )
        self.retune(settings)

    def _into(self, inbox: Inbox, name: str, topic: str):
        monitor = self.monitors[name] = InputMonitor(name, self._node.resolve_topic_name(topic), 1.0)
        clock = self._node.get_clock()

        def take(message) -> None:
            stamp_ns = nanoseconds(message.header.stamp)
            overflowed = inbox.put(name, message, stamp_ns)
            monitor.note_arrival(overflowed, stamp_ns, message.header.frame_id, clock.now().nanoseconds)

        return take

    def retune(self, settings: Mapping[str, object]) -> None:
        """Sets the limits of the monitors; possible while they run."""
        for name, monitor in self.monitors.items():
            kind = ODOMETRY if name == ODOMETRY else "camera"
            monitor.stale_after_s, monitor.min_hz = settings[f"{kind}_stale_s"], settings[f"{kind}_min_hz"]
            monitor.max_age_s = settings["stamp_max_age_s"]

    def close(self) -> None:
        for subscription in self._subscriptions:
            self._node.destroy_subscription(subscription)
        self._subscriptions.clear()
        self.monitors.clear()
