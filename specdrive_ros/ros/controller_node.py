"""`controller`: takes trajectory and odometry, sends vehicle commands at a fixed rate.

A shell around `specdrive_ros.controller`. It runs on the steady clock, so that a simulation clock that stops or jumps
back does not stop the commands.
"""

import sys

if __name__ == "__main__":  # a signal while rclpy is being imported
    from specdrive_ros.ros.starting import end_quietly_on_signals

    end_quietly_on_signals()

import time
from threading import Event

from nav_msgs.msg import Odometry
from rclpy.clock import Clock, ClockType
from rclpy.duration import Duration
from rclpy.node import Node

from specdrive_ros.controller import ControlCommand, ControllerConfig, TrajectoryController
from specdrive_ros.errors import InputError
from specdrive_ros.msg import Trajectory
from specdrive_ros.ros import qos
from specdrive_ros.ros.conversions import ego_trajectory, pose_sample
from specdrive_ros.ros.odometry_source import check_odometry_source, odometry_parameters, subscribe_odometry
from specdrive_ros.ros.parameters import ParameterSpec, declare, on_change, read, refuse_unless
from specdrive_ros.ros.run_node import run_node
from specdrive_ros.ros.subscribing import subscribe
from specdrive_ros.ros.vehicle_geometry import EMBEDDED, RANGES, VehicleGeometry
from specdrive_ros.ros.vehicle_info import KnownVehicle
from specdrive_ros.ros.vehicle_messages import MESSAGE_OF_OUTPUT, TOPIC_OF_OUTPUT, message_of, message_type

ACKED_S, LINGER_S = 0.25, 0.1  # out of the half second that a node has to shut down
_DEFAULT = ControllerConfig()
STARTUP = (
    ParameterSpec("output", "ackermann", "message to command with", choices=tuple(MESSAGE_OF_OUTPUT), read_only=True),
    ParameterSpec("rate_hz", 20.0, "commands per second", 1.0, 200.0, read_only=True),
    *odometry_parameters(read_only=True),
    ParameterSpec("wheelbase_m", EMBEDDED.wheelbase_m, "from the rear axle to the front one",
                  *RANGES["wheelbase_m"], read_only=True),
    ParameterSpec("max_steering_angle_rad", EMBEDDED.max_steering_angle_rad,
                  "of the front wheels to either side; what CARLA's steer of 1 is",
                  *RANGES["max_steering_angle_rad"], read_only=True),
)
TUNING = (
    ParameterSpec("trajectory_timeout_s", _DEFAULT.trajectory_timeout_s,
                  "stop after this long without a trajectory", 0.05, 10.0),
    ParameterSpec("trajectory_max_age_s", _DEFAULT.trajectory_max_age_s,
                  "stop when the trajectory's stamp is older than this", 0.1, 10.0),
    ParameterSpec("odometry_timeout_s", _DEFAULT.odometry_timeout_s,
                  "stop after this long without odometry", 0.05, 10.0),
    ParameterSpec("lookahead_time_s", _DEFAULT.lookahead_time_s,
                  "pure pursuit aims this far ahead, in time at the speed driven", 0.1, 5.0),
    ParameterSpec("lookahead_min_m", _DEFAULT.lookahead_min_m, "and at least this far", 0.5, 100.0),
    ParameterSpec("lookahead_max_m", _DEFAULT.lookahead_max_m, "and at most this far", 0.5, 200.0),
    ParameterSpec("speed_preview_s", _DEFAULT.speed_preview_s,
                  "reach the trajectory's speed of so much later in so much time", 0.05, 5.0),
    ParameterSpec("max_acceleration_mps2", _DEFAULT.max_acceleration_mps2, "hardest acceleration", 0.1, 20.0),
    ParameterSpec("max_deceleration_mps2", _DEFAULT.max_deceleration_mps2, "hardest braking", 0.1, 20.0),
    ParameterSpec("stop_deceleration_mps2", _DEFAULT.stop_deceleration_mps2,
                  "braking when there is nothing to follow", 0.1, 20.0),
    ParameterSpec("max_curvature_per_m", _DEFAULT.max_curvature_per_m, "tightest curve", 0.001, 1.0),
)
PARAMETERS = STARTUP + TUNING


class ControllerNode(Node):
    """Subscribes to `~/input/trajectory`, `…/odometry` and `…/vehicle_info`; publishes `~/output/<command>`."""

    def __init__(self, **node_arguments):
        super().__init__("controller", **node_arguments)
        declare(self, PARAMETERS)
        startup = read(self, STARTUP)
        self._output = startup["output"]
        self._controller = TrajectoryController(ControllerConfig(**read(self, TUNING)))
        self._stop_reason: str | None = None
        topic = f"~/output/{TOPIC_OF_OUTPUT[self._output]}"
        self._publisher = self.create_publisher(message_type(self._output), topic, qos.command())
        check_odometry_source(startup)
        self._vehicle = KnownVehicle(self, VehicleGeometry(**{name: startup[name] for name in RANGES}))
        self._vehicle.listen(startup["use_vehicle_info"])
        subscribe_odometry(self, startup, self._vehicle.rear_axle_x_m, self._on_odometry)
        subscribe(self, Trajectory, "~/input/trajectory", self._on_trajectory, qos.trajectory_input())
        steady = Clock(clock_type=ClockType.STEADY_TIME)
        self._timer = self.create_timer(1.0 / startup["rate_hz"], self._on_timer, clock=steady)
        refuse_unless(self, TUNING, lambda values: ControllerConfig(**values))
        on_change(self, [spec.name for spec in TUNING], self._retune)

    def _retune(self) -> None:
        self._controller.config = ControllerConfig(**read(self, TUNING))

    def _on_odometry(self, message: Odometry) -> None:
        self._take(self._controller.observe, pose_sample, message)

    def _on_trajectory(self, message: Trajectory) -> None:
        self._take(self._controller.accept, ego_trajectory, message)

    def _take(self, use, convert, message) -> None:
        try:
            use(convert(message), time.monotonic_ns())
        except InputError as error:
            self.get_logger().warning(str(error), throttle_duration_sec=1.0)

    def _on_timer(self) -> None:
        now_ns = self.get_clock().now().nanoseconds
        self._send(self._controller.command(now_ns, time.monotonic_ns()))

    def _send(self, command: ControlCommand) -> None:
        self._publisher.publish(message_of(self._output, command, self._vehicle.geometry))
        if bool(command.stop_reason) != bool(self._stop_reason) or self._stop_reason is None:
            what = f"stopping: {command.stop_reason}" if command.stop_reason else "following the trajectory"
            self.get_logger().info(what)
        self._stop_reason = command.stop_reason

    def close(self) -> None:
        """Sends a stop as the last command: a vehicle keeps doing what it was last told."""
        self._send(self._controller.stop("the controller is shutting down"))
        self._publisher.wait_for_all_acked(Duration(seconds=ACKED_S))
        Event().wait(LINGER_S)  # best-effort readers acknowledge nothing and still read our shared memory


def main(arguments: list[str] | None = None) -> int:
    return run_node(ControllerNode, arguments)


if __name__ == "__main__":
    sys.exit(main())
