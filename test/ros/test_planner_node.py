"""The planner node over DDS with a planner of constant velocity: life, outputs, faults, drops."""

import signal
import threading
from pathlib import Path as FilePath

import numpy as np
import pytest

pytest.importorskip("specdrive_ros.msg")
from diagnostic_msgs.msg import DiagnosticStatus  # noqa: E402
from lifecycle_msgs.msg import State, Transition  # noqa: E402
from lifecycle_msgs.srv import ChangeState, GetState  # noqa: E402
from rclpy.lifecycle import TransitionCallbackReturn  # noqa: E402
from rosgraph_msgs.msg import Clock  # noqa: E402
from sensor_msgs.msg import Image  # noqa: E402
from specdrive_ros.errors import InputError  # noqa: E402
from specdrive_ros.msg import CycleStats, Trajectory  # noqa: E402
from specdrive_ros.ros import qos  # noqa: E402
from specdrive_ros.ros.conversions import nanoseconds, stamp  # noqa: E402
from specdrive_ros.shapes import NANOSECONDS  # noqa: E402

from .own_time import OwnTime  # noqa: E402
from .small_world import (  # noqa: E402
    CAMERAS,
    FAILURE,
    SPEED,
    START_NS,
    SUCCESS,
    ConstantVelocity,
    World,
    drive_until,
    make_planner,
)

ENDS_WITHIN_S = 5.0  # of its own time; a tenth of it is usual


@pytest.fixture
def running(graph):
    """(graph, world, node, planner) active and matched. Late plans and silent inputs are the affair of other tests."""
    limits = ("camera_stale_s:=60", "odometry_stale_s:=60")
    node, planner = make_planner(graph, "cycle_hz:=10", "deadline_policy:=shorten", *limits)
    assert node.trigger_configure() == SUCCESS and node.trigger_activate() == SUCCESS
    world = World(graph, node)
    assert graph.spin_until(world.matched)
    yield graph, world, node, planner
    planner.gate.set()
    node.close()


def test_plans_and_publishes_everything_stamped_t0(running):
    graph, world, _, planner = running
    assert drive_until(graph, world, world.hears_all)
    trajectory = world.last("trajectory")
    t0s = [observation.t0_ns for observation in planner.observations]
    assert nanoseconds(trajectory.header.stamp) in t0s
    assert trajectory.header.frame_id == "rear_axle" and trajectory.source == Trajectory.PLANNED
    assert len(trajectory.points) == 64
    assert trajectory.points[9].pose.position.x == pytest.approx(SPEED, abs=1e-6)
    stats = world.last("cycle_stats")
    assert stats.header.frame_id == "rear_axle" and stats.fallback_reason == CycleStats.NONE
    assert list(stats.input_names) == ["front", "tele", "odometry"]
    assert nanoseconds(stats.total) > 0 and nanoseconds(stats.vision) == 1_000_000
    assert nanoseconds(stats.deadline) == 100_000_000
    assert world.last("reasoning").tokens == 3
    assert world.last("reasoning_text").data == "Keep going since the road is free."
    frames = planner.observations[-1].frames
    assert list(frames) == list(CAMERAS) and frames["front"].shape == (4, 8, 12, 3)
    assert frames["front"][0, 0, 0].tolist() == [200, 100, 50]


def test_compressed_images(graph):
    node, planner = make_planner(graph, "image_transport:=compressed")
    assert node.trigger_configure() == SUCCESS and node.trigger_activate() == SUCCESS
    world = World(graph, node, "compressed")
    assert graph.spin_until(world.matched)
    assert drive_until(graph, world, world.hears_all)
    assert planner.observations[-1].frames["tele"][0, 0, 0].tolist() == [200, 100, 50]
    node.close()


def test_latest_observation_wins_and_drops_are_counted(running):
    graph, world, _, planner = running
    assert drive_until(graph, world, world.hears_all)
    planner.gate.clear()
    seen = len(planner.observations)
    assert drive_until(graph, world, lambda: len(planner.observations) > seen)
    held = planner.observations[-1].t0_ns
    world.advance(4)
    newest = world.now_ns
    planner.gate.set()
    assert graph.spin_until(lambda: nanoseconds(world.last("cycle_stats").header.stamp) == newest)
    assert planner.observations[-1].t0_ns == newest
    overtaken = round((newest - held) / (NANOSECONDS // 10)) - 1
    dropped = {nanoseconds(stats.header.stamp): stats.dropped_observations for stats in world.heard["cycle_stats"]}
    assert dropped[newest] - dropped[held] == overtaken
    assert np.all(np.diff(planner.observations[-1].frame_stamps_ns["front"]) == NANOSECONDS // 10), (
        "frames of dropped observations are still history"
    )


@pytest.mark.parametrize("fault", ["raises", "nonsense"])
def test_a_failing_model_becomes_a_stop_with_a_reason(running, fault):
    graph, world, _, planner = running
    assert drive_until(graph, world, world.hears_all)
    if fault == "raises":
        planner.error = RuntimeError("out of luck")
    else:
        planner.offset = float("nan")
    wanted = CycleStats.MODEL_FAILED if fault == "raises" else CycleStats.PLAN_REJECTED

    def stopped() -> dict:
        """Stamp -> trajectory and statistics of cycles that ended in a stop for this reason."""
        stops = {str(each.header.stamp): each for each in world.heard["trajectory"] if each.source == Trajectory.STOP}
        failed = {str(each.header.stamp): each for each in world.heard["cycle_stats"] if each.fallback_reason == wanted}
        return {key: (stops[key], failed[key]) for key in stops.keys() & failed.keys()}

    assert drive_until(graph, world, stopped)
    trajectory, stats = next(iter(stopped().values()))
    points = trajectory.points
    assert "out of luck" in stats.fallback_text or fault == "nonsense"
    assert points[-1].longitudinal_velocity_mps == 0.0 and points[0].longitudinal_velocity_mps > 3.0
    assert graph.spin_until(lambda: world.statuses()["planner: cycle"].level == DiagnosticStatus.ERROR)
    planner.error, planner.offset = None, 0.0
    assert drive_until(graph, world, lambda: world.last("trajectory").source == Trajectory.PLANNED)


def test_bad_messages_are_named_in_diagnostics_and_the_node_lives(running):
    graph, world, _, _ = running
    assert drive_until(graph, world, world.hears_all)
    bad = world.image("tele")
    bad.encoding = "telepathy8"
    world.images["tele"].publish(bad)
    world.sent += 1
    nan = world.odometry_now()
    nan.pose.pose.position.x = float("nan")
    world.odometry.publish(nan)
    world.sent += 1

    def naming(status: str, words: str) -> list:
        return [each for each in world.said(status) if words in each.message]

    assert graph.spin_until(lambda: naming("input tele", "telepathy8") and naming("input odometry", "not finite"))
    tele = naming("input tele", "telepathy8")[0]
    assert tele.level == DiagnosticStatus.WARN and tele.hardware_id
    assert {value.key: value.value for value in tele.values}["rejected UNKNOWN_ENCODING"] == "1"
    planned = len(world.heard["trajectory"])
    assert drive_until(graph, world, lambda: Trajectory.PLANNED in world.sources()[planned:])


def test_silent_inputs_are_errors_within_their_limit(graph):
    node, _ = make_planner(graph, "camera_stale_s:=0.1", "odometry_stale_s:=60")
    node.trigger_configure(), node.trigger_activate()
    world = World(graph)
    assert graph.spin_until(lambda: world.statuses().get("planner: input front") is not None)
    assert "nothing has come" in world.statuses()["planner: input front"].message
    assert graph.spin_until(world.matched)
    world.advance(3)

    def stale() -> bool:
        return "limit 0.1 s" in world.statuses()["planner: input front"].message

    assert graph.spin_until(stale)
    assert world.statuses()["planner: input front"].level == DiagnosticStatus.ERROR
    assert world.statuses()["planner: input odometry"].level == DiagnosticStatus.OK
    node.close()


def test_a_publisher_that_does_not_match_is_named(graph):
    """The camera offers best effort where reliable is asked for: nothing of it would ever arrive."""
    override = "qos_overrides./planner/input/front/image.subscription.reliability:=reliable"
    node, _ = make_planner(graph, override)
    assert node.trigger_configure() == SUCCESS and node.trigger_activate() == SUCCESS
    world = World(graph)
    camera = graph.listener("camera").create_publisher(Image, "/planner/input/front/image", qos.image_input())
    assert graph.spin_until(lambda: any("offers less" in each.message for each in world.said("input front")))
    named = next(each for each in world.said("input front") if "offers less" in each.message)
    assert named.level == DiagnosticStatus.ERROR and "best_effort" in named.message
    assert camera.get_subscription_count() == 0
    assert not any("offers less" in each.message for each in world.said("input tele"))
    node.close()


def test_stamps_that_go_back_start_anew(running):
    graph, world, _, planner = running
    assert drive_until(graph, world, world.hears_all)
    world.now_ns = START_NS - 500 * NANOSECONDS
    begun = world.now_ns
    assert drive_until(graph, world, lambda: planner.observations[-1].t0_ns < START_NS)
    assert planner.observations[-1].t0_ns - begun >= 1.5 * NANOSECONDS
    stamps = planner.observations[-1].frame_stamps_ns["front"]
    assert stamps.max() - stamps.min() < NANOSECONDS


def test_only_a_clock_that_goes_back_starts_anew(graph):
    node, planner = make_planner(graph, "use_sim_time:=true")
    world = World(graph, node)
    clock = world.node.create_publisher(Clock, "/clock", qos.output())
    assert node.trigger_configure() == SUCCESS and node.trigger_activate() == SUCCESS
    assert graph.spin_until(world.matched) and graph.spin_until(clock.get_subscription_count)
    assert drive_until(graph, world, world.hears_all)

    def set_clock(seconds: int) -> None:
        clock.publish(Clock(clock=stamp(seconds * NANOSECONDS)))
        assert graph.spin_until(lambda: node.get_clock().now().nanoseconds == seconds * NANOSECONDS)

    def plans_heard() -> int:
        return sum(each.source == Trajectory.PLANNED for each in world.heard["trajectory"])

    def plans_of_next(frames: int) -> int:
        """Of this many frames, each sent when all before it has been looked at and heard."""
        before = plans_heard()
        for _ in range(frames):
            world.advance()
            world.settle()
        return plans_heard() - before

    world.settle()
    set_clock(100)
    assert plans_of_next(5) >= 4, "the first message of a clock is no jump"
    set_clock(10)
    assert plans_of_next(5) <= 1, "what was known belongs to another time"
    assert plans_of_next(20) >= 4
    node.close()


# Life


def test_ten_lives_back_to_back(graph):
    others = set(threading.enumerate())  # such as the last of another test's node

    def workers() -> int:
        return sum(thread.name == "planner worker" for thread in set(threading.enumerate()) - others)

    node, planner = make_planner(graph)
    world = World(graph, node)
    for _ in range(10):
        assert node.trigger_configure() == SUCCESS
        assert node.trigger_activate() == SUCCESS
        assert node.trigger_deactivate() == SUCCESS
        assert node.trigger_cleanup() == SUCCESS
    node.trigger_configure(), node.trigger_activate()
    assert graph.spin_until(world.matched)
    assert drive_until(graph, world, world.hears_all)
    assert workers() == 1
    assert node.trigger_shutdown() == SUCCESS
    assert workers() == 0
    assert planner.observations


def test_deactivate_finishes_the_plan_in_hand(running):
    graph, world, node, planner = running
    assert drive_until(graph, world, world.hears_all)
    planner.gate.clear()
    seen = len(planner.observations)
    assert drive_until(graph, world, lambda: len(planner.observations) > seen)
    threading.Timer(0.2, planner.gate.set).start()
    assert node.trigger_deactivate() == SUCCESS
    held = planner.observations[-1].t0_ns

    def plan_in_hand_came() -> bool:  # after what stood in for it at its deadline
        last = world.last("trajectory")
        return nanoseconds(last.header.stamp) == held and last.source == Trajectory.PLANNED

    assert graph.spin_until(plan_in_hand_came)
    heard = len(world.heard["trajectory"])
    world.planner_node = None
    world.advance(5)
    assert not graph.spin_until(lambda: len(world.heard["trajectory"]) > heard, 0.3)


def test_a_failed_configure_says_why_and_can_be_tried_again(graph, capfd):
    attempts = []

    def load(settings):
        attempts.append(settings["model"])
        if len(attempts) == 1:
            raise InputError("model nowhere: no such folder; should hold config.json")
        return ConstantVelocity()

    node, _ = make_planner(graph, load=load)
    world = World(graph)
    change = world.node.create_client(ChangeState, "/planner/change_state")
    ask = world.node.create_client(GetState, "/planner/get_state")

    def configure() -> bool:
        transition = Transition(id=Transition.TRANSITION_CONFIGURE)
        return graph.answer(change, ChangeState.Request(transition=transition)).success

    def state() -> int:
        return graph.answer(ask, GetState.Request()).current_state.id

    configure()
    assert state() == State.PRIMARY_STATE_UNCONFIGURED
    assert graph.spin_until(lambda: "planner: model" in world.statuses())
    status = world.statuses()["planner: model"]
    assert status.level == DiagnosticStatus.ERROR and "no such folder" in status.message
    assert "Traceback" in capfd.readouterr().err
    assert configure()
    assert state() == State.PRIMARY_STATE_INACTIVE


def test_wrong_cameras_are_refused_with_the_right_ones(graph, capfd):
    node, _ = make_planner(graph, 'cameras:=["front","rear"]')
    assert node.trigger_configure() == FAILURE
    assert "this model was made for front, tele" in capfd.readouterr().err


def test_illegal_moves_change_nothing(graph):
    node, _ = make_planner(graph)
    assert node.trigger_activate() == TransitionCallbackReturn.ERROR
    assert node.trigger_configure() == SUCCESS
    assert node.trigger_configure() == TransitionCallbackReturn.ERROR
    assert node.trigger_activate() == SUCCESS
    node.close()


PROCESS = """
import sys
sys.path.insert(0, {folder!r})
from small_world import ConstantVelocity
from specdrive_ros.ros.planner_node import PlannerNode
from specdrive_ros.ros.run_node import run_node
arguments = ["--ros-args", "-p", "autostart:=true"]
sys.exit(run_node(lambda: PlannerNode(lambda settings: ConstantVelocity()), arguments, PlannerNode.autostart))
"""


def test_as_a_process_it_starts_itself_and_ends_within_a_second(graph):
    process = graph.start("-c", PROCESS.format(folder=str(FilePath(__file__).parent)))
    world = World(graph)
    assert graph.spin_until(world.matched)
    assert drive_until(graph, world, world.hears_all)
    own = OwnTime(process.pid)
    process.send_signal(signal.SIGINT)
    assert graph.spin_until(lambda: process.poll() is not None or own.passed_s() > ENDS_WITHIN_S)
    assert own.passed_s() < ENDS_WITHIN_S and process.wait() == 0
    assert "Traceback" not in process.stdout.read()
