"""The controller as a process's node over DDS: commands at a rate, stops when trajectories stop."""

import signal
import time

import numpy as np
import pytest
from specdrive_ros.shapes import NANOSECONDS, WAYPOINT_TIMES_S

pytest.importorskip("ackermann_msgs.msg")
from ackermann_msgs.msg import AckermannDrive  # noqa: E402
from carla_msgs.msg import CarlaEgoVehicleControl  # noqa: E402
from nav_msgs.msg import Odometry  # noqa: E402
from rcl_interfaces.srv import SetParameters, SetParametersAtomically  # noqa: E402
from rclpy.parameter import Parameter  # noqa: E402
from specdrive_ros.errors import InputError  # noqa: E402
from specdrive_ros.msg import Trajectory  # noqa: E402
from specdrive_ros.plan import Plan  # noqa: E402
from specdrive_ros.ros import qos  # noqa: E402
from specdrive_ros.ros.controller_node import ControllerNode  # noqa: E402
from specdrive_ros.ros.conversions import header, trajectory_message  # noqa: E402

from .own_time import OwnTime  # noqa: E402

ENDS_WITHIN_S = 5.0  # of its own time; a tenth of it is usual
MOST_BEFORE_STOP = 20  # commands: half of them are the half second that a trajectory is waited for


def left_arc(t0_ns: int) -> Trajectory:
    """10 m/s on a left curve of 50 m radius."""
    yaw = 10.0 * WAYPOINT_TIMES_S / 50.0
    xyz = np.stack([50.0 * np.sin(yaw), 50.0 * (1 - np.cos(yaw)), 0 * yaw], 1)
    same = np.ones(64)
    plan = Plan(t0_ns, "", (), xyz, yaw, 10.0 * same, 0.0 * same, 0.02 * same, 10.0)
    return trajectory_message(plan, "base_link", Trajectory.PLANNED)


class Car:
    """Feeds the controller odometry and, while `planning`, trajectories; keeps what it commands."""

    def __init__(self, graph, kind: type, topic: str):
        self.node = graph.listener()
        self.commands: list = []
        self.node.create_subscription(kind, topic, self.commands.append, qos.deep(qos.command()))
        self.odometry = self.node.create_publisher(Odometry, "/controller/input/odometry", qos.output())
        self.trajectory = self.node.create_publisher(Trajectory, "/controller/input/trajectory", qos.output())
        self.node.create_timer(0.05, self.feed)
        self.planning = True

    def feed(self) -> None:
        now_ns = self.node.get_clock().now().nanoseconds
        odometry = Odometry(header=header(now_ns, "map"), child_frame_id="ego_vehicle")
        odometry.pose.pose.orientation.w = 1.0
        odometry.twist.twist.linear.x = 10.0
        self.odometry.publish(odometry)
        if self.planning:
            self.trajectory.publish(left_arc(now_ns - NANOSECONDS // 20))


def make_controller(graph, *overrides: str) -> ControllerNode:
    arguments = ["--ros-args", *(part for override in overrides for part in ("-p", override))]
    return graph.add(ControllerNode(context=graph.context, cli_args=arguments))


def sent_by(controller: ControllerNode) -> list:
    """Commands from now on, where they are sent: those that arrive may have waited in a queue."""
    sent, publish = [], controller._publisher.publish
    controller._publisher.publish = lambda command: (sent.append(command), publish(command))
    return sent


def test_follows_then_stops_when_trajectories_stop(graph):
    sent = sent_by(make_controller(graph))
    car = Car(graph, AckermannDrive, "/controller/output/ackermann_cmd")
    assert graph.spin_until(lambda: any(command.speed > 9.0 for command in car.commands))
    following = [command for command in car.commands if command.speed > 9.0][-1]
    assert following.steering_angle > 0.02, "left is positive"
    car.planning = False
    before = len(sent)
    assert graph.spin_until(lambda: sent[-1].speed == 0.0) and len(sent) - before < MOST_BEFORE_STOP
    assert graph.spin_until(lambda: car.commands[-1].speed == 0.0)
    assert car.commands[-1].acceleration > 1.0


def test_pedals_for_carla_steer_right_positive(graph):
    sent = sent_by(make_controller(graph, "output:=carla"))
    car = Car(graph, CarlaEgoVehicleControl, "/controller/output/vehicle_control_cmd")
    assert graph.spin_until(lambda: any(command.steer < -0.02 for command in car.commands))
    car.planning = False
    before = len(sent)
    assert graph.spin_until(lambda: sent[-1].brake > 0.1 and sent[-1].throttle == 0.0)
    assert len(sent) - before < MOST_BEFORE_STOP
    assert graph.spin_until(lambda: car.commands[-1].brake > 0.1 and car.commands[-1].throttle == 0.0)


def test_commands_come_at_the_rate(graph):
    controller = make_controller(graph, "rate_hz:=50")  # an integer is good enough for a float
    assert controller._timer.timer_period_ns == 20_000_000
    car = Car(graph, AckermannDrive, "/controller/output/ackermann_cmd")
    assert graph.spin_until(lambda: len(car.commands) > 0)
    sent = sent_by(controller)
    own, begun = OwnTime(), time.monotonic()
    assert graph.spin_until(lambda: len(sent) >= 50)
    assert time.monotonic() - begun > 0.8 and own.passed_s() < 5.0  # one second is usual
    car.commands.clear()
    assert graph.spin_until(lambda: len(car.commands) >= 50)


def test_garbage_does_not_end_it(graph):
    make_controller(graph)
    car = Car(graph, AckermannDrive, "/controller/output/ackermann_cmd")
    assert graph.spin_until(lambda: any(command.speed > 9.0 for command in car.commands))
    car.odometry.publish(Odometry())  # zero quaternion
    nan = left_arc(car.node.get_clock().now().nanoseconds)
    nan.points[3].pose.position.x = float("nan")
    car.trajectory.publish(nan)
    car.trajectory.publish(Trajectory())
    car.commands.clear()
    assert graph.spin_until(lambda: len(car.commands) > 10)
    assert all(np.isfinite(command.speed) for command in car.commands)


def test_wrong_parameter_is_refused_with_its_rule(graph):
    with pytest.raises(InputError, match="rate_hz.*must be float from 1.0 to 200.0"):
        make_controller(graph, "rate_hz:=0.5")
    with pytest.raises(InputError, match="output.*must be one of ackermann, carla"):
        make_controller(graph, "output:=tank")
    override = "qos_overrides./controller/input/odometry.subscription.reliability"
    with pytest.raises(InputError, match="/controller/input/odometry: cannot be subscribed to .*telepathic"):
        make_controller(graph, f"{override}:=telepathic")


def test_tuning_changes_while_running_and_nonsense_is_refused(graph):
    make_controller(graph)
    client = graph.listener("tuner").create_client(SetParameters, "/controller/set_parameters")

    def set_lookahead(value):
        parameter = Parameter("lookahead_time_s", value=value).to_parameter_msg()
        return graph.answer(client, SetParameters.Request(parameters=[parameter])).results[0]

    assert set_lookahead(1).successful
    refused = set_lookahead(-1.0)
    assert not refused.successful and "lookahead_time_s" in refused.reason


def test_a_value_that_does_not_go_with_the_others_is_refused_before_it_applies(graph):
    node = make_controller(graph)
    client = graph.listener("tuner").create_client(SetParametersAtomically, "/controller/set_parameters_atomically")

    def set_both(**values):
        parameters = [Parameter(name, value=value).to_parameter_msg() for name, value in values.items()]
        return graph.answer(client, SetParametersAtomically.Request(parameters=parameters)).result

    refused = set_both(lookahead_min_m=50.0)
    assert not refused.successful and "must not be above lookahead_max_m" in refused.reason
    assert node.get_parameter("lookahead_min_m").value == node._controller.config.lookahead_min_m == 4.0
    assert set_both(lookahead_min_m=50, lookahead_max_m=60).successful, "together they are right"
    assert node._controller.config.lookahead_max_m == 60.0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_process_says_stop_and_ends_quietly(graph, number):
    process = graph.start("-m", "specdrive_ros.ros.controller_node")
    car = Car(graph, AckermannDrive, "/controller/output/ackermann_cmd")
    assert graph.spin_until(lambda: any(command.speed > 9.0 for command in car.commands))
    own = OwnTime(process.pid)
    process.send_signal(number)
    assert graph.spin_until(lambda: process.poll() is not None or own.passed_s() > ENDS_WITHIN_S)
    assert own.passed_s() < ENDS_WITHIN_S and process.wait() == 0
    assert "Traceback" not in process.stdout.read()
    assert graph.spin_until(lambda: car.commands[-1].speed == 0.0), "the last command is a stop"
