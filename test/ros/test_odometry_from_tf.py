"""Odometry from /tf and /tf_static over DDS: a trajectory comes out, a stop when /tf ends, and it goes on after."""

import pytest

pytest.importorskip("tf2_msgs.msg")
from ackermann_msgs.msg import AckermannDrive  # noqa: E402
from diagnostic_msgs.msg import DiagnosticStatus  # noqa: E402
from geometry_msgs.msg import TransformStamped  # noqa: E402
from nav_msgs.msg import Odometry  # noqa: E402
from specdrive_ros.msg import CycleStats, Trajectory  # noqa: E402
from specdrive_ros.ros import odometry_source, qos  # noqa: E402
from specdrive_ros.ros.conversions import header, nanoseconds, yaw_quaternion  # noqa: E402
from specdrive_ros.ros.odometry_source import TransformListener  # noqa: E402
from specdrive_ros.shapes import NANOSECONDS  # noqa: E402
from tf2_msgs.msg import TFMessage  # noqa: E402

from .small_world import SPEED, START_NS, SUCCESS, World, drive_until, make_planner  # noqa: E402
from .test_controller_node import Car, make_controller  # noqa: E402

FROM_TF = ("odometry_source:=tf", "fixed_frame:=map", "base_frame:=hero")


def edge(parent: str, child: str, stamp_ns: int, x_m: float) -> TransformStamped:
    transform = TransformStamped(header=header(stamp_ns, parent), child_frame_id=child)
    transform.transform.translation.x = x_m
    transform.transform.rotation = yaw_quaternion(0.0)
    return transform


class Transforms(World):
    """A world without odometry: map -> odom on /tf_static, odom -> hero on /tf, of a car that drives straight on.

    Beside them other frames, as every real /tf has. /tf_static is told when it is asked for: `tell_static`.
    """

    def __init__(self, graph, node=None):
        super().__init__(graph, node)
        self.odometry = self.node.create_publisher(TFMessage, "/tf", qos.output())
        self.pictures_sent = self.transforms_sent = 0
        self.static = self.node.create_publisher(TFMessage, "/tf_static", qos.told_once())

    def tell_static(self) -> None:
        fixed = [edge("map", "odom", 0, 100.0), edge("hero", "hero/rgb_front", 0, 2.0)]
        self.static.publish(TFMessage(transforms=fixed))

    def odometry_now(self) -> TFMessage:
        x_m = SPEED * (self.now_ns - START_NS) / NANOSECONDS
        other = edge("hero/rgb_front", "hero/lens", self.now_ns, x_m)
        return TFMessage(transforms=[other, edge("odom", "hero", self.now_ns, x_m)])

    def let_arrive(self, messages: int) -> None:
        """Until all of it has been taken, also transforms that do not lead to the car and that no monitor counts."""
        if "odometry" not in self.silent:
            self.transforms_sent += 2
        self.pictures_sent += len(self.images)
        assert self.graph.spin_until(
            lambda: self.pictures_taken() >= self.pictures_sent and Counted.taken >= self.transforms_sent
        )

    def pictures_taken(self) -> int:
        return sum(self.planner_node._inputs.monitors[camera].received for camera in self.images)

    def live_again(self) -> None:
        """The node has been activated anew."""
        self.pictures_sent, self.transforms_sent = 0, Counted.taken
        assert self.graph.spin_until(self.matched)


class Counted(TransformListener):
    """Counts the messages of /tf that a node has taken."""

    taken = 0

    def __call__(self, message) -> None:
        super().__call__(message)
        Counted.taken += 1


@pytest.fixture
def counted(monkeypatch):
    monkeypatch.setattr(odometry_source, "TransformListener", Counted)
    monkeypatch.setattr(Counted, "taken", 0)


def started(graph, *overrides: str):
    """(world, node, planner) of an active planner that derives odometry from /tf."""
    node, planner = make_planner(graph, *FROM_TF, "deadline_policy:=shorten", "camera_stale_s:=60", *overrides)
    assert node.trigger_configure() == SUCCESS and node.trigger_activate() == SUCCESS
    world = Transforms(graph, node)
    assert graph.spin_until(world.matched)
    return world, node, planner


def test_a_trajectory_comes_out_with_static_transforms_told_before_or_after(graph, counted):
    world, node, planner = started(graph)
    assert drive_until(graph, world, lambda: len(world.heard["trajectory"]) > 3)
    assert Trajectory.PLANNED not in world.sources() and not planner.observations, "the way to the car is not complete"
    assert graph.spin_until(lambda: "planner: input odometry" in world.statuses())
    status = world.statuses()["planner: input odometry"]
    assert status.level == DiagnosticStatus.ERROR and status.message == "nothing has come on /tf yet"
    world.tell_static()
    assert drive_until(graph, world, world.hears_all)
    trajectory = world.last("trajectory")
    assert (trajectory.header.frame_id, trajectory.source) == ("hero", Trajectory.PLANNED)
    assert trajectory.points[9].pose.position.x == pytest.approx(SPEED, abs=1e-3)
    assert nanoseconds(trajectory.header.stamp) in [each.t0_ns for each in planner.observations]
    observed = planner.observations[-1].history
    assert observed.speed_mps == pytest.approx(SPEED, abs=1e-3)
    assert observed.xyz[0] == pytest.approx([-1.5 * SPEED, 0.0, 0.0], abs=1e-3)
    again = len(planner.observations)
    assert node.trigger_deactivate() == SUCCESS and node.trigger_activate() == SUCCESS
    world.live_again()
    assert drive_until(graph, world, lambda: len(planner.observations) > again + 3), "static ones were told once"
    node.close()


def test_when_tf_ends_the_planner_stops_says_why_and_plans_again_after(graph, counted):
    world, node, planner = started(graph, "odometry_stale_s:=0.5", "republish_max_age_s:=0.3")
    world.tell_static()
    assert drive_until(graph, world, world.hears_all)
    world.skip("odometry")

    def stopped_for_tf() -> bool:
        stats = world.last("cycle_stats")
        return stats.fallback_reason == CycleStats.INPUT_STALE and world.last("trajectory").source == Trajectory.STOP

    assert drive_until(graph, world, stopped_for_tf)
    assert world.last("cycle_stats").fallback_text.startswith("INPUT_STALE: nothing comes from odometry")
    stop = world.last("trajectory")
    assert stop.header.frame_id == "hero" and stop.points[-1].longitudinal_velocity_mps == 0.0
    assert graph.spin_until(lambda: any("nothing on /tf for" in each.message for each in world.said("input odometry")))
    world.skip()
    seen = len(planner.observations)
    assert drive_until(graph, world, lambda: len(planner.observations) > seen)
    assert drive_until(graph, world, lambda: world.last("trajectory").source == Trajectory.PLANNED)
    assert planner.observations[-1].history.speed_mps == pytest.approx(SPEED, abs=1e-3)
    node.close()


class TransformedCar(Car):
    """`Car` whose odometry is a transform, without a speed."""

    def __init__(self, graph):
        super().__init__(graph, AckermannDrive, "/controller/output/ackermann_cmd")
        self.node.destroy_publisher(self.odometry)
        self.odometry = AsTransforms(self.node.create_publisher(TFMessage, "/tf", qos.output()))


class AsTransforms:
    """A publisher of odometry that says it on /tf, further on by the speed that it has."""

    def __init__(self, publisher):
        self.publisher, self.first_ns, self.silent = publisher, None, False

    def publish(self, odometry: Odometry) -> None:
        stamp_ns = nanoseconds(odometry.header.stamp)
        self.first_ns = stamp_ns if self.first_ns is None else self.first_ns
        x_m = odometry.twist.twist.linear.x * (stamp_ns - self.first_ns) / NANOSECONDS
        if not self.silent:
            self.publisher.publish(TFMessage(transforms=[edge("map", "hero", stamp_ns, x_m)]))


def test_a_controller_follows_on_tf_alone_and_stops_when_it_ends(graph):
    controller = make_controller(graph, *FROM_TF)
    car = TransformedCar(graph)
    assert graph.spin_until(lambda: any(command.speed > 9.0 for command in car.commands))
    assert controller._controller._track.newest.speed_mps == pytest.approx(10.0, rel=0.01)
    car.odometry.silent = True
    assert graph.spin_until(lambda: car.commands[-1].speed == 0.0)
    assert car.planning, "trajectories still come: it is for /tf that it stops"
    assert "no odometry for" in controller._stop_reason
    car.odometry.silent = False
    car.commands.clear()
    assert graph.spin_until(lambda: any(command.speed > 9.0 for command in car.commands))
