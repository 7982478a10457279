"""The world over DDS: CARLA's names and types, real time, obeys commands, tells its outcome."""

import json
import time

import numpy as np
import pytest

pytest.importorskip("ackermann_msgs.msg")
from ackermann_msgs.msg import AckermannDrive  # noqa: E402
from carla_msgs.msg import CarlaEgoVehicleControl  # noqa: E402
from nav_msgs.msg import Odometry  # noqa: E402
from rclpy.clock import Clock as NodeClock, ClockType  # noqa: E402
from rosgraph_msgs.msg import Clock  # noqa: E402
from sensor_msgs.msg import CameraInfo, Image  # noqa: E402
from specdrive_ros.errors import InputError  # noqa: E402
from specdrive_ros.ros import qos  # noqa: E402
from specdrive_ros.ros.conversions import nanoseconds  # noqa: E402
from specdrive_ros.ros.perception import decode_message  # noqa: E402
from specdrive_ros.ros.sim_node import MOST_TICKS_AT_ONCE, SimNode  # noqa: E402
from specdrive_ros.shapes import NANOSECONDS, PICTURE_SIZE  # noqa: E402
from specdrive_ros.sim.camera import render  # noqa: E402
from specdrive_ros.sim.scenario import make_world  # noqa: E402
from specdrive_ros.sim.scenario_playback import TICK_S  # noqa: E402
from std_msgs.msg import String  # noqa: E402
from std_srvs.srv import Trigger  # noqa: E402

ROLE = "/carla/ego_vehicle"


def make_sim(graph, *overrides: str) -> SimNode:
    arguments = ["--ros-args", *(part for override in overrides for part in ("-p", override))]
    return graph.add(SimNode(context=graph.context, cli_args=arguments))


class Ear:
    """Keeps all messages of some topics."""

    def __init__(self, graph):
        self.node = graph.listener()
        self.heard = {}
        self.hear("clock", Clock, "/clock", qos.output())
        self.hear("image", Image, f"{ROLE}/rgb_front/image", qos.image_input())
        self.hear("info", CameraInfo, f"{ROLE}/rgb_front/camera_info", qos.output())
        self.hear("odometry", Odometry, f"{ROLE}/odometry", qos.odometry_input())
        self.hear("events", String, "/sim/scenario", qos.kept_events())

    def hear(self, name: str, kind: type, topic: str, profile, depth: int = qos.DEEP) -> None:
        self.heard[name] = []
        self.node.create_subscription(kind, topic, self.heard[name].append, qos.deep(profile, depth))

    def events(self, kind: str) -> list[dict]:
        return [event for event in map(_json, self.heard["events"]) if event["event"] == kind]


def _json(message: String) -> dict:
    return json.loads(message.data)


def test_topics_types_frames_and_stamps_are_carlas(graph):
    make_sim(graph, 'scenarios:=["cruise:5"]')
    ear = Ear(graph)
    streams = [messages for name, messages in ear.heard.items() if name != "events"]
    assert graph.spin_until(lambda: all(len(messages) > 2 for messages in streams))
    image, info, odometry = (ear.heard[name][-1] for name in ("image", "info", "odometry"))
    assert (image.encoding, image.header.frame_id) == ("bgra8", "ego_vehicle/rgb_front")
    rows, columns = PICTURE_SIZE
    assert (image.width, image.height, image.step) == (columns, rows, 4 * columns)
    assert info.header.frame_id == image.header.frame_id and (info.width, info.height) == (columns, rows)
    assert info.k[0] > 0 and info.p[0] == info.k[0]
    assert (odometry.header.frame_id, odometry.child_frame_id) == ("map", "ego_vehicle")
    assert odometry.twist.twist.linear.x > 0.5
    stamps = [nanoseconds(message.header.stamp) for message in ear.heard["odometry"]]
    assert set(np.diff(stamps)) == {NANOSECONDS // 20}
    frames = [nanoseconds(message.header.stamp) for message in ear.heard["image"]]
    assert set(np.diff(frames)) == {NANOSECONDS // 10}


def test_images_are_the_worlds_own_and_colours_survive(graph):
    make_sim(graph, 'scenarios:=["cruise:5"]', "autostart:=false")
    ear = Ear(graph)
    start = ear.node.create_client(Trigger, "/sim/start")
    ear.node.create_publisher(AckermannDrive, f"{ROLE}/ackermann_cmd", qos.command())
    assert graph.spin_until(lambda: graph.answer(start, Trigger.Request()).success)
    assert graph.spin_until(lambda: ear.heard["image"])
    world = make_world("cruise", 5)
    for _ in range(2):
        world.step(0.05, world.expert_command())
    assert np.array_equal(decode_message(ear.heard["image"][0]), render(world, "rgb_front"))


def test_waits_until_it_is_connected(graph):
    sim = make_sim(graph, "autostart:=false")
    node = graph.listener()
    start = node.create_client(Trigger, "/sim/start")
    answer = graph.answer(start, Trigger.Request())
    assert not answer.success
    for topic in (f"{ROLE}/odometry", f"{ROLE}/rgb_front/image", f"{ROLE}/ackermann_cmd"):
        assert topic in answer.message
    assert sim.get_name() == "sim"


@pytest.mark.parametrize("kind, topic, gas", [
    (AckermannDrive, "ackermann_cmd", {"speed": 14.0}),
    (CarlaEgoVehicleControl, "vehicle_control_cmd", {"throttle": 1.0}),
])
def test_moves_when_commanded_and_brakes_when_not(graph, kind, topic, gas):
    """Listened to with a queue of one: on a busy machine the world is ahead of who hears it all, and off the road."""
    make_sim(graph, 'scenarios:=["cruise:5"]', "lead_in_s:=0.0", "command_timeout_s:=0.5")
    ear = Ear(graph)
    ear.hear("now", Odometry, f"{ROLE}/odometry", qos.odometry_input(), depth=1)
    pedals = ear.node.create_publisher(kind, f"{ROLE}/{topic}", qos.command())
    timer = ear.node.create_timer(0.05, lambda: pedals.publish(kind(**gas)))

    def speed() -> float:
        return ear.heard["now"][-1].twist.twist.linear.x if ear.heard["now"] else 0.0

    assert graph.spin_until(lambda: ear.events("hand_over"))
    begun = ear.events("hand_over")[0]["speed_mps"]
    assert graph.spin_until(lambda: speed() > begun + 0.5)
    driven = speed()
    ear.node.destroy_timer(timer)
    assert graph.spin_until(lambda: 0 < speed() < driven - 0.5)


def test_runs_in_real_time_and_tells_how_it_ends(graph):
    """Two scenarios of one and a half seconds; a world that was not served does not leap by more than four ticks."""
    begun = time.monotonic()
    make_sim(graph, 'scenarios:=["cruise"]', "seed:=3", "count:=2", "lead_in_s:=0.5", "max_seconds:=1.0")
    ear = Ear(graph)
    served, steady = [begun], NodeClock(clock_type=ClockType.STEADY_TIME)
    ear.node.create_timer(TICK_S, lambda: served.append(time.monotonic()), clock=steady)
    assert graph.spin_until(lambda: ear.events("finished"))
    not_served_s = sum(max(0.0, gap_s - MOST_TICKS_AT_ONCE * TICK_S) for gap_s in np.diff(served))
    assert 2.8 < time.monotonic() - begun < 3.6 + not_served_s
    outcomes = ear.events("outcome")
    assert [(event["name"], event["seed"]) for event in outcomes] == [("cruise", 3), ("cruise", 4)]
    assert {"outcome", "why", "distance_m", "frames", "late_frames"} <= outcomes[0].keys()


def test_garbage_commands_and_parameters(graph):
    make_sim(graph, 'scenarios:=["cruise:5"]', "lead_in_s:=0.0")
    ear = Ear(graph)
    commands = ear.node.create_publisher(AckermannDrive, f"{ROLE}/ackermann_cmd", qos.command())
    assert graph.spin_until(lambda: commands.get_subscription_count())
    commands.publish(AckermannDrive(speed=float("nan")))
    ear.heard["odometry"].clear()
    assert graph.spin_until(lambda: len(ear.heard["odometry"]) > 5)
    assert np.isfinite(ear.heard["odometry"][-1].pose.pose.position.x)
    with pytest.raises(InputError, match="scenario 'moon'"):
        make_sim(graph, 'scenarios:=["moon"]')
    with pytest.raises(InputError, match="'rgb_rear'.*rgb_front, rgb_front_tele"):
        make_sim(graph, 'cameras:=["rgb_rear"]')


def test_the_cameras_of_its_parameter_and_no_others(graph):
    make_sim(graph, 'scenarios:=["cruise:5"]', 'cameras:=["rgb_front", "rgb_front_tele"]')
    ear = Ear(graph)
    ear.hear("tele", Image, f"{ROLE}/rgb_front_tele/image", qos.image_input())
    ear.hear("tele_info", CameraInfo, f"{ROLE}/rgb_front_tele/camera_info", qos.output())
    assert graph.spin_until(lambda: all(len(ear.heard[name]) > 1 for name in ("image", "info", "tele", "tele_info")))
    assert ear.heard["tele"][-1].header.frame_id == "ego_vehicle/rgb_front_tele"
    assert ear.heard["tele_info"][-1].k[0] > 2 * ear.heard["info"][-1].k[0]


@pytest.mark.parametrize("name", ["", "9x", "a b", "~", "a//b"])
def test_a_role_that_no_topic_can_be_named_after(graph, name):
    with pytest.raises(InputError, match="parameter role_name: .*; must be letters, digits and _"):
        make_sim(graph, f"role_name:='{name}'")
