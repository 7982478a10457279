"""Whatever comes on an input, the node goes on: no cycle is lost, a trajectory is published, and it plans again."""

import numpy as np
import pytest

pytest.importorskip("specdrive_ros.msg")
from builtin_interfaces.msg import Time  # noqa: E402
from nav_msgs.msg import Odometry  # noqa: E402
from sensor_msgs.msg import Image  # noqa: E402
from specdrive_ros.msg import CycleStats, Trajectory  # noqa: E402

from .small_world import CAMERAS, FAILURE, SUCCESS, World, drive_until, make_planner  # noqa: E402

FIRST_S, LAST_S = -(2**31), 2**31 - 1
STAMPS = (Time(sec=FIRST_S), Time(sec=LAST_S, nanosec=2**32 - 1), Time(), Time(sec=-1, nanosec=999_999_999))
NUMBERS = (1e300, -1e300, float("inf"), float("nan"), 5e-324)


def odometry(world: World) -> list[Odometry]:
    """One for each way to be wrong."""
    made = []

    def wrong(change) -> None:
        message = world.odometry_now()
        change(message)
        made.append(message)

    for stamp in STAMPS:
        wrong(lambda each, stamp=stamp: setattr(each.header, "stamp", stamp))
    for value in NUMBERS:
        wrong(lambda each, value=value: setattr(each.pose.pose.position, "y", value))
        wrong(lambda each, value=value: setattr(each.pose.pose.orientation, "z", value))
        wrong(lambda each, value=value: setattr(each.twist.twist.linear, "x", value))
        wrong(lambda each, value=value: setattr(each.pose, "covariance", np.full(36, value)))
    for name in ("", "\u00e4" * 5000, "a b/c"):
        wrong(lambda each, name=name: setattr(each, "child_frame_id", name))
        wrong(lambda each, name=name: setattr(each.header, "frame_id", name))
    return made


def images(world: World, camera: str) -> list[Image]:
    made = []

    def wrong(**values) -> None:
        message = world.image(camera)
        for name, value in values.items():
            setattr(message, name, value)
        made.append(message)

    for stamp in STAMPS:
        message = world.image(camera)
        message.header.stamp = stamp
        made.append(message)
    most = 2**32 - 1
    for height, width, step in ((0, 0, 0), (most, most, most), (1, most, most), (8, 12, 0), (8, 12, 35), (most, 12, 36)):
        wrong(height=height, width=width, step=step)
    for encoding in ("", "rgb8 ", "x" * 10_000, "bayer_rggb16", "32FC1", "yuv422"):
        wrong(encoding=encoding)
    wrong(data=b"")
    wrong(height=1, width=1, step=3, data=b"\1\2\3")
    wrong(height=1, width=4000, step=12_000, data=bytes(12_000))
    return made


def test_no_message_ends_a_cycle(graph):
    node, _ = make_planner(graph, "deadline_ms:=2000")
    node.trigger_configure(), node.trigger_activate()
    world = World(graph, node)
    assert graph.spin_until(world.matched) and drive_until(graph, world, world.hears_all)
    waves = [[(world.odometry, message)] for message in odometry(world)]
    for camera in CAMERAS:
        waves += [[(world.images[camera], message)] for message in images(world, camera)]
    extreme = len(STAMPS)  # also on every input at once: no message has another stamp then
    for row in range(extreme):
        waves.append([(world.odometry, odometry(world)[row])] +
                     [(world.images[camera], images(world, camera)[row]) for camera in CAMERAS])
    for wave in waves:
        for publisher, message in wave:
            publisher.publish(message)
        world.let_arrive(len(wave))
        world.settle()
    assert not [each for each in world.said("cycle") if "cycle lost" in each.message]
    said = len(world.heard["trajectory"])
    assert drive_until(graph, world, lambda: Trajectory.PLANNED in world.sources()[said:])
    for trajectory in world.heard["trajectory"]:
        speeds = [point.longitudinal_velocity_mps for point in trajectory.points]
        assert np.isfinite(speeds).all() and np.abs(speeds).max() < 200.0


def test_a_fault_of_our_own_leaves_no_cycle_without_a_trajectory(graph, monkeypatch):
    node, _ = make_planner(graph, "deadline_ms:=2000")
    node.trigger_configure(), node.trigger_activate()
    world = World(graph, node)
    assert graph.spin_until(world.matched) and drive_until(graph, world, world.hears_all)
    with monkeypatch.context() as patch:
        patch.setattr(node._perception, "observation", lambda: 1 / 0)
        assert drive_until(graph, world, lambda: "cycle lost" in world.last("cycle_stats").fallback_text)
        assert world.last("cycle_stats").fallback_reason == CycleStats.MODEL_FAILED
        assert Trajectory.STOP in world.sources()
        assert graph.spin_until(lambda: [each for each in world.said("cycle") if "cycle lost" in each.message])
    said = len(world.heard["trajectory"])
    assert drive_until(graph, world, lambda: Trajectory.PLANNED in world.sources()[said:])


def test_a_failed_activate_says_why_and_can_be_tried_again(graph, capfd):
    topic = "qos_overrides./planner/input/odometry.subscription.reliability"
    node, _ = make_planner(graph, f"{topic}:=telepathic")
    assert node.trigger_configure() == SUCCESS and node.trigger_activate() == FAILURE
    said = capfd.readouterr()
    assert "activate failed" in said.err + said.out and "telepathic" in said.err + said.out
    assert node.trigger_cleanup() == SUCCESS and node.trigger_configure() == SUCCESS
