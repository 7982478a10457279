"""CARLA's signs and units against the embedded world, which speaks its topics; and commands while its clock stands."""

import pytest

pytest.importorskip("carla_msgs.msg")
from ackermann_msgs.msg import AckermannDrive  # noqa: E402
from carla_msgs.msg import CarlaEgoVehicleControl  # noqa: E402
from nav_msgs.msg import Odometry  # noqa: E402
from specdrive_ros.ros import qos  # noqa: E402
from specdrive_ros.ros.controller_node import ControllerNode  # noqa: E402
from specdrive_ros.ros.conversions import nanoseconds, yaw_of  # noqa: E402
from specdrive_ros.ros.sim_node import SimNode  # noqa: E402
from specdrive_ros.shapes import NANOSECONDS  # noqa: E402

ROLE = "/carla/ego_vehicle"
IN_EFFECT_NS = 3 * NANOSECONDS // 10  # of the world's time, after a command has been sent for the second time


class Driver:
    """Sends one command again and again to a world that obeys at once; keeps its odometry."""

    def __init__(self, graph, kind: type, topic: str):
        arguments = ["--ros-args", "-p", 'scenarios:=["cruise:5"]', "-p", "lead_in_s:=0.0"]
        self.sim = graph.add(SimNode(context=graph.context, cli_args=arguments))
        self.graph, self.node = graph, graph.listener()
        self.odometry: list[Odometry] = []
        self.node.create_subscription(Odometry, f"{ROLE}/odometry", self.odometry.append,
                                      qos.deep(qos.odometry_input()))
        self.publisher = self.node.create_publisher(kind, f"{ROLE}/{topic}", qos.command())
        self.command, self.sent = None, 0
        self.node.create_timer(0.05, self._send)

    def _send(self) -> None:
        if self.command is not None:
            self.publisher.publish(self.command)
            self.sent += 1

    def odometry_since(self, stamp_ns: int) -> list[Odometry]:
        return [message for message in self.odometry if nanoseconds(message.header.stamp) > stamp_ns]

    def speeds(self) -> list[float]:
        return [message.twist.twist.linear.x for message in self.odometry]

    def drive(self, command, samples: int = 8) -> tuple[float, float]:
        """(yaw rate rad/s, change of speed m/s) while it is obeyed."""
        assert self.graph.spin_until(self.publisher.get_subscription_count)
        self.command, self.sent = command, 0
        assert self.graph.spin_until(lambda: self.sent >= 2)
        since_ns = self.sim.stamp_ns + IN_EFFECT_NS
        assert self.graph.spin_until(lambda: len(self.odometry_since(since_ns)) >= samples)
        recent = self.odometry_since(since_ns)
        rates = [message.twist.twist.angular.z for message in recent]
        turned = yaw_of(recent[-1].pose.pose.orientation) - yaw_of(recent[0].pose.pose.orientation)
        assert turned * sum(rates) > 0 or abs(turned) < 0.01, "pose and twist turn the same way"
        return sum(rates) / len(rates), recent[-1].twist.twist.linear.x - recent[0].twist.twist.linear.x


@pytest.mark.parametrize("steer", [0.06, -0.06])
def test_pedals_steer_right_positive(graph, steer):
    rate, _ = Driver(graph, CarlaEgoVehicleControl, "vehicle_control_cmd").drive(
        CarlaEgoVehicleControl(throttle=0.3, steer=steer)
    )
    assert rate * steer < -0.001, "a positive steer turns clockwise"


@pytest.mark.parametrize("angle", [0.1, -0.1])
def test_ackermann_steers_left_positive_in_radians(graph, angle):
    driver = Driver(graph, AckermannDrive, "ackermann_cmd")
    rate, _ = driver.drive(AckermannDrive(speed=6.0, steering_angle=angle))
    speed = driver.odometry[-1].twist.twist.linear.x
    assert rate * angle > 0
    assert abs(rate) == pytest.approx(speed * abs(angle) / 2.7, rel=0.5), "radians of a front wheel, 2.7 m behind it"


def test_throttle_and_brake_are_shares_and_speed_is_metres_a_second(graph):
    driver = Driver(graph, CarlaEgoVehicleControl, "vehicle_control_cmd")
    assert driver.drive(CarlaEgoVehicleControl(throttle=0.6))[1] > 0.1
    driver.command = CarlaEgoVehicleControl(brake=0.5)
    speeds = driver.speeds()
    assert graph.spin_until(lambda: driver.speeds()[-1] < max(speeds) - 0.5)


def test_ackermann_zero_speed_stops_and_does_not_reverse(graph):
    driver = Driver(graph, AckermannDrive, "ackermann_cmd")
    driver.command = AckermannDrive(speed=0.0, acceleration=6.0)
    assert graph.spin_until(lambda: driver.odometry and driver.odometry[-1].twist.twist.linear.x < 0.05)
    stood_ns = driver.sim.stamp_ns
    assert graph.spin_until(lambda: len(driver.odometry_since(stood_ns)) >= 10)
    assert driver.odometry[-1].twist.twist.linear.x > -0.05


@pytest.mark.parametrize(("output", "kind", "topic"), [
    ("carla", CarlaEgoVehicleControl, "vehicle_control_cmd"),
    ("ackermann", AckermannDrive, "ackermann_cmd"),
])
def test_a_standing_clock_does_not_stop_the_commands(graph, output, kind, topic):
    """CARLA in synchronous mode waits for a command before the next tick, and the clock with it."""
    arguments = ["--ros-args", "-p", f"output:={output}", "-p", "use_sim_time:=true"]
    graph.add(ControllerNode(context=graph.context, cli_args=arguments))
    commands = []
    graph.listener().create_subscription(kind, f"/controller/output/{topic}", commands.append, qos.command_input())
    assert graph.spin_until(lambda: len(commands) > 10)
    last = commands[-1]
    assert last.brake > 0.1 and last.throttle == 0.0 if output == "carla" else last.speed == 0.0
