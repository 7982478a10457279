"""CARLA's vehicle_info over DDS: told once, heard early or late, believed or not; what then is steered and shifted."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("carla_msgs.msg")
from ackermann_msgs.msg import AckermannDrive  # noqa: E402
from carla_msgs.msg import CarlaEgoVehicleControl, CarlaEgoVehicleInfo  # noqa: E402
from nav_msgs.msg import Odometry  # noqa: E402
from specdrive_ros.errors import InputError  # noqa: E402
from specdrive_ros.ros import qos  # noqa: E402
from specdrive_ros.ros.controller_node import ControllerNode  # noqa: E402
from specdrive_ros.ros.conversions import header, yaw_quaternion  # noqa: E402
from specdrive_ros.ros.sim_node import SimNode  # noqa: E402
from specdrive_ros.ros.vehicle_geometry import EMBEDDED, VehicleGeometry  # noqa: E402
from specdrive_ros.ros.vehicle_info import CODE, geometry_of, info_message  # noqa: E402
from specdrive_ros.shapes import NANOSECONDS  # noqa: E402

from .small_world import SPEED, START_NS, SUCCESS, World, drive_until, make_planner  # noqa: E402
from .test_controller_node import Car, make_controller  # noqa: E402

TOPIC = "/controller/input/vehicle_info"
OTHER = VehicleGeometry(-1.4, 3.2, 0.6)
CURVATURE = 0.02  # of the way that `Car` is sent
AS_PARAMETERS, AS_TOLD = (
    -np.arctan(car.wheelbase_m * CURVATURE) / car.max_steering_angle_rad for car in (EMBEDDED, OTHER)
)
FRAME = "ego_vehicle"  # of the odometry of `Car`


class Teller:
    """Says how the car is built, as CARLA's bridge does: once."""

    def __init__(self, graph, topic: str = TOPIC, profile=None):
        self.node = graph.listener("teller")
        self.publisher = self.node.create_publisher(CarlaEgoVehicleInfo, topic, profile or qos.told_once())

    def tell(self, car: VehicleGeometry = OTHER, frame: str = FRAME, change=lambda info: None) -> None:
        info = info_message(car, frame)
        change(info)
        self.publisher.publish(info)


def in_degrees(info) -> None:
    for wheel in info.wheels:
        wheel.max_steer_angle = float(np.degrees(wheel.max_steer_angle))


def listening_car(graph) -> Car:
    return Car(graph, CarlaEgoVehicleControl, "/controller/output/vehicle_control_cmd")


def steers(graph, car: Car, wanted: float) -> bool:
    """From now on, so many times in a row."""
    car.commands.clear()
    return graph.spin_until(
        lambda: len(car.commands) >= 5
        and all(command.steer == pytest.approx(wanted, rel=0.2) for command in car.commands[-5:])
    )


def test_a_message_is_read_as_it_was_written():
    again = geometry_of(info_message(OTHER, "hero"))
    assert vars(again) == pytest.approx(vars(OTHER), abs=1e-6)
    wheels = [SimpleNamespace(max_steer_angle=0.5)] * 4
    with pytest.raises(InputError, match="do not say where they are .*position"):
        geometry_of(SimpleNamespace(wheels=wheels))
    with pytest.raises(InputError, match="0 wheels"):
        geometry_of(CarlaEgoVehicleInfo())


def test_the_world_tells_how_its_car_is_built_also_who_comes_late(graph):
    sim = graph.add(SimNode(context=graph.context, cli_args=["--ros-args", "-p", "autostart:=false"]))
    for name in ("early", "late"):
        heard = []
        graph.listener(name).create_subscription(
            CarlaEgoVehicleInfo, "/carla/ego_vehicle/vehicle_info", heard.append, qos.told_once()
        )
        assert graph.spin_until(lambda heard=heard: heard) and len(heard) == 1
        assert vars(geometry_of(heard[0])) == pytest.approx(vars(EMBEDDED), abs=1e-6)
        assert heard[0].rolename == "ego_vehicle" == sim._role


def test_a_controller_that_starts_late_steers_the_car_it_was_told_of(graph, capfd):
    Teller(graph).tell()
    controller, car = make_controller(graph, "output:=carla"), listening_car(graph)
    assert graph.spin_until(lambda: controller._vehicle.geometry != EMBEDDED)
    assert steers(graph, car, AS_TOLD)
    assert "wheelbase 3.20 m" in capfd.readouterr().err


def test_a_vehicle_info_that_comes_late_is_taken_when_it_comes(graph):
    make_controller(graph, "output:=carla")
    car = listening_car(graph)
    assert steers(graph, car, AS_PARAMETERS)
    Teller(graph).tell()
    assert steers(graph, car, AS_TOLD)


def test_parameters_are_the_car_where_vehicle_info_is_not_wanted(graph):
    teller = Teller(graph)
    teller.tell()
    controller = make_controller(
        graph, "output:=carla", "use_vehicle_info:=false", "wheelbase_m:=3", "max_steering_angle_rad:=0.5"
    )
    assert steers(graph, listening_car(graph), -np.arctan(3.0 * CURVATURE) / 0.5)
    assert teller.publisher.get_subscription_count() == 0 and controller._vehicle.geometry.wheelbase_m == 3.0


def test_one_that_cannot_be_true_is_refused_once_by_name_and_the_next_one_taken(graph, capfd):
    make_controller(graph, "output:=carla")
    car, teller = listening_car(graph), Teller(graph)
    assert graph.spin_until(teller.publisher.get_subscription_count)
    said = []

    def refused() -> bool:
        teller.tell(change=in_degrees)
        said.append(capfd.readouterr().err)
        return f"{TOPIC} is not believed: max_steering_angle_rad: 34.3775; must be from 0.1 to 1.4" in "".join(said)

    assert graph.spin_until(refused)
    for _ in range(5):
        teller.tell(change=in_degrees)
    assert steers(graph, car, AS_PARAMETERS)
    teller.tell()
    assert steers(graph, car, AS_TOLD)
    assert "".join([*said, capfd.readouterr().err]).count("is not believed") == 1


def test_warnings_that_never_are_the_same_come_to_an_end(graph, capfd):
    controller = make_controller(graph)
    for number in range(100):
        long = SimpleNamespace(**(vars(OTHER) | {"wheelbase_m": 100.0 + number}))
        controller._vehicle.take(info_message(long, FRAME))
    assert controller._vehicle.geometry == EMBEDDED
    assert capfd.readouterr().err.count("is not believed") == 16


def test_a_teller_who_keeps_nothing_for_others_is_named(graph, capfd):
    make_controller(graph)
    Teller(graph, profile=qos.output())
    said = []
    assert graph.spin_until(
        lambda: said.append(capfd.readouterr().err) or f"a publisher of {TOPIC} offers less" in "".join(said)
    )


def test_without_carla_msgs_nodes_go_by_their_parameters(graph, monkeypatch):
    for name in ("carla_msgs", "carla_msgs.msg"):
        monkeypatch.setitem(sys.modules, name, None)
    make_controller(graph)
    car = Car(graph, AckermannDrive, "/controller/output/ackermann_cmd")
    assert graph.spin_until(lambda: any(command.speed > 9.0 for command in car.commands))
    node, _ = make_planner(graph)
    assert node.trigger_configure() == SUCCESS and node.trigger_activate() == SUCCESS
    graph.add(SimNode(context=graph.context, cli_args=["--ros-args", "-p", "autostart:=false"]))
    node.close()


def test_odometry_of_the_world_is_not_shifted_whatever_the_parameter_says(graph):
    """Its origin is the rear axle, CARLA's is the middle: one parameter cannot be right for both."""
    graph.add(SimNode(context=graph.context, cli_args=["--ros-args", "-p", 'scenarios:=["cruise:5"]']))
    names = ("odometry", "vehicle_info")
    remapped = [f"/controller/input/{name}:=/carla/ego_vehicle/{name}" for name in names]
    rules = [part for rule in remapped for part in ("-r", rule)]
    arguments = ["--ros-args", "-p", "rear_axle_x_m:=-1.4", *rules]
    controller = graph.add(ControllerNode(context=graph.context, cli_args=arguments))
    places = {}
    graph.listener().create_subscription(
        Odometry, "/carla/ego_vehicle/odometry",
        lambda each: places.update({(each.header.stamp.sec, each.header.stamp.nanosec): each.pose.pose.position}),
        qos.deep(qos.odometry_input()),
    )

    def off_m() -> float:
        """How far the controller's newest pose is from what the world said of that stamp."""
        newest = controller._controller._track.newest
        place = places.get(divmod(newest.stamp_ns, NANOSECONDS)) if newest else None
        return np.nan if place is None else float(np.hypot(newest.x - place.x, newest.y - place.y))

    assert graph.spin_until(lambda: off_m() == 0.0)
    assert controller._vehicle.geometry.rear_axle_x_m == 0.0


# The planner: a car that is known by its middle and drives a circle, so that a wrong rear axle has another past

RADIUS_M, BACK_S = 50.0, 1.5


def past_y_m(ahead_of_axle_m: float) -> float:
    """Where a point of the car, so far ahead of its rear axle, was 1.5 s ago, to the left of where it is now."""
    turned = SPEED * BACK_S / RADIUS_M
    return RADIUS_M * (1 - np.cos(turned)) - ahead_of_axle_m * np.sin(turned)


class Circle(World):
    frame = "hero"

    def odometry_now(self) -> Odometry:
        yaw = SPEED * (self.now_ns - START_NS) / NANOSECONDS / RADIUS_M
        message = Odometry(header=header(self.now_ns, "map"), child_frame_id=self.frame)
        message.pose.pose.position.x = RADIUS_M * np.sin(yaw) - OTHER.rear_axle_x_m * np.cos(yaw)
        message.pose.pose.position.y = RADIUS_M * (1 - np.cos(yaw)) - OTHER.rear_axle_x_m * np.sin(yaw)
        message.pose.pose.orientation = yaw_quaternion(yaw)
        message.twist.twist.linear.x = SPEED
        return message


def circling(graph, *overrides: str):
    """(world, node, planner, past): past has each observation's own first row."""
    node, planner = make_planner(graph, "camera_stale_s:=60", "odometry_stale_s:=60", *overrides)
    assert node.trigger_configure() == SUCCESS and node.trigger_activate() == SUCCESS
    world = Circle(graph, node)
    assert graph.spin_until(world.matched)
    return world, node, planner, lambda: [each.history.xyz[0, 1] for each in planner.observations]


def drives_with(graph, world, past, wanted: float) -> bool:
    return drive_until(graph, world, lambda: past()[-1:] == [pytest.approx(wanted, abs=0.02)])


AXLE_Y_M, MIDDLE_Y_M = past_y_m(0.0), past_y_m(-OTHER.rear_axle_x_m)
PLANNER_TOPIC = "/planner/input/vehicle_info"


def test_a_planner_shifts_to_the_rear_axle_it_is_told_of_and_mixes_no_two_pasts(graph, capfd):
    assert abs(AXLE_Y_M - MIDDLE_Y_M) > 0.2
    world, node, planner, past = circling(graph, "wheelbase_m:=3.1")
    assert drives_with(graph, world, past, MIDDLE_Y_M)
    assert node._outputs._car().wheelbase_m == 3.1
    Teller(graph, PLANNER_TOPIC).tell(frame="hero")
    assert drives_with(graph, world, past, AXLE_Y_M)
    assert node._outputs._car().wheelbase_m == pytest.approx(OTHER.wheelbase_m), "for Autoware's wheel angle"
    assert {min((AXLE_Y_M, MIDDLE_Y_M), key=lambda each: abs(each - y)) for y in past()} == {AXLE_Y_M, MIDDLE_Y_M}
    assert all(min(abs(AXLE_Y_M - y), abs(MIDDLE_Y_M - y)) < 0.02 for y in past()), "the past began anew"
    assert "rear axle at -1.40 m" in capfd.readouterr().err
    before = node._inputs.monitors["odometry"].received
    again = len(planner.observations)
    assert node.trigger_deactivate() == SUCCESS and node.trigger_activate() == SUCCESS
    world.sent = 0
    assert graph.spin_until(world.matched) and before > 0
    assert drive_until(graph, world, lambda: len(planner.observations) > again + 3)
    assert past()[-1] == pytest.approx(AXLE_Y_M, abs=0.02), "told once, and known in the next life, too"
    node.close()


def test_odometry_of_another_frame_goes_by_the_parameter(graph, capfd):
    world, node, _, past = circling(graph, "rear_axle_x_m:=-1.4")
    Teller(graph, PLANNER_TOPIC).tell(VehicleGeometry(0.0, 2.7, 0.6), frame="truck")
    said = []
    assert drive_until(graph, world, lambda: said.append(capfd.readouterr().err) or "is of 'truck'" in "".join(said))
    assert drives_with(graph, world, past, AXLE_Y_M)
    assert "odometry of 'hero': rear_axle_x_m stays" in "".join(said)
    node.close()


def test_a_refused_one_is_in_the_planner_s_diagnostics(graph):
    world, node, _, past = circling(graph)
    Teller(graph, PLANNER_TOPIC).tell(frame="hero", change=in_degrees)

    def named() -> bool:
        return any("is not believed" in each.message for each in world.said("input odometry"))

    assert drive_until(graph, world, named)
    assert drives_with(graph, world, past, MIDDLE_Y_M)
    values = {each.key: each.value for each in world.said("input odometry")[-1].values}
    assert values[f"warned {CODE}"] == "1"
    node.close()
