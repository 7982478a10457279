"""The node is never silent: late plans, missing pictures, lost odometry, and what it says of them."""

import time
from dataclasses import replace

import pytest

pytest.importorskip("specdrive_ros.msg")
from diagnostic_msgs.msg import DiagnosticStatus  # noqa: E402
from rcl_interfaces.srv import SetParameters  # noqa: E402
from rclpy.parameter import Parameter  # noqa: E402
from specdrive_ros.msg import CycleStats, Trajectory  # noqa: E402
from specdrive_ros.ros.conversions import nanoseconds  # noqa: E402

from .small_world import SPEED, SUCCESS, ConstantVelocity, World, drive_until, make_planner  # noqa: E402


def started(graph, *overrides: str):
    """(world, node, planner) active, matched and planning."""
    node, planner = make_planner(graph, *overrides)
    assert node.trigger_configure() == SUCCESS and node.trigger_activate() == SUCCESS
    world = World(graph, node)
    assert graph.spin_until(world.matched)
    return world, node, planner


def hold_next_plan(graph, world, planner) -> int:
    """The planner hangs on the next observation, after one whose plan was heard; returns its t0."""

    def planned_now() -> bool:
        world.advance()
        assert graph.spin_until(lambda: planner.observations[-1].t0_ns == world.now_ns)
        world.settle()
        return Trajectory.PLANNED in {each.source for each in heard_at(world, world.now_ns)}

    assert graph.spin_until(planned_now)
    planner.gate.clear()
    world.advance()
    assert graph.spin_until(lambda: planner.observations[-1].t0_ns == world.now_ns)
    return world.now_ns


def heard_at(world, t0_ns: int) -> list:
    return [each for each in world.heard["trajectory"] if nanoseconds(each.header.stamp) == t0_ns]


def test_at_the_deadline_the_last_plan_is_republished_then_a_stop_then_the_late_plan(graph):
    world, node, planner = started(graph, "deadline_ms:=300", "republish_max_age_s:=1.4", "cycle_hz:=10")
    assert drive_until(graph, world, world.hears_all)
    held = hold_next_plan(graph, world, planner)
    assert graph.spin_until(lambda: any(each.source == Trajectory.REPUBLISHED for each in heard_at(world, held)))
    again = next(each for each in heard_at(world, held) if each.source == Trajectory.REPUBLISHED)
    assert again.points[9].pose.position.x == pytest.approx(SPEED, abs=0.05), "seen from the held observation"

    def deadline_stats() -> list:
        return [
            each for each in world.heard["cycle_stats"]
            if nanoseconds(each.header.stamp) == held and each.fallback_reason == CycleStats.DEADLINE
        ]

    assert graph.spin_until(deadline_stats)
    stats = deadline_stats()[0]
    assert "no plan after 300 ms" in stats.fallback_text
    assert graph.spin_until(lambda: any(each.source == Trajectory.STOP for each in heard_at(world, held)))
    planner.gate.set()
    assert graph.spin_until(lambda: heard_at(world, held)[-1].source == Trajectory.PLANNED)

    def late_stats() -> list:
        return [
            each for each in world.heard["cycle_stats"]
            if nanoseconds(each.header.stamp) == held and each.fallback_reason == CycleStats.NONE
        ]

    assert graph.spin_until(late_stats)
    assert late_stats()[0].late and late_stats()[0].cycle == stats.cycle
    node.close()


def test_policy_stop_stops_and_does_not_publish_the_late_plan(graph):
    world, node, planner = started(graph, "deadline_ms:=300", "deadline_policy:=stop")
    assert drive_until(graph, world, world.hears_all)
    held = hold_next_plan(graph, world, planner)
    assert graph.spin_until(lambda: bool(heard_at(world, held)))
    planner.gate.set()
    assert drive_until(graph, world, lambda: world.last("trajectory").source == Trajectory.PLANNED)
    assert {each.source for each in heard_at(world, held)} == {Trajectory.STOP}
    node.close()


def test_policies_without_stand_in_wait_for_the_plan(graph):
    world, node, planner = started(graph, "deadline_ms:=50", "deadline_policy:=shorten")
    assert drive_until(graph, world, world.hears_all)
    held = hold_next_plan(graph, world, planner)
    assert not graph.spin_until(lambda: bool(heard_at(world, held)), 0.5), "ten times its deadline"
    planner.gate.set()
    assert graph.spin_until(lambda: bool(heard_at(world, held)))
    assert [each.source for each in heard_at(world, held)] == [Trajectory.PLANNED]
    node.close()


def test_before_the_first_observation_it_says_to_stand_and_why(graph):
    world, node, _ = started(graph)
    assert graph.spin_until(lambda: len(world.heard["cycle_stats"]) >= 3)
    assert set(world.sources()) == {Trajectory.STOP}
    assert all(point.longitudinal_velocity_mps == 0.0 for point in world.last("trajectory").points)
    stats = world.last("cycle_stats")
    assert stats.fallback_reason == CycleStats.NO_OBSERVATION and stats.fallback_text.startswith("NO_FRAMES: ")
    node.close()


def test_cameras_fall_silent_then_odometry(graph):
    """A plan that is young is republished, then a stop from the speed driven; without odometry that stop goes on."""
    world, node, _ = started(graph, "camera_stale_s:=0.3", "odometry_stale_s:=2", "republish_max_age_s:=0.4")
    assert drive_until(graph, world, world.hears_all)
    world.skip("front", "tele")
    assert drive_until(graph, world, lambda: world.last("trajectory").source == Trajectory.STOP)
    first = world.last("trajectory").points[0].longitudinal_velocity_mps
    assert SPEED - 1.0 < first < SPEED
    assert drive_until(
        graph, world, lambda: "nothing comes from front, tele" in world.last("cycle_stats").fallback_text
    )
    assert world.last("cycle_stats").fallback_reason == CycleStats.INPUT_STALE
    world.skip("front", "tele", "odometry")
    assert graph.spin_until(lambda: "odometry" in world.last("cycle_stats").fallback_text)
    assert world.last("trajectory").source == Trajectory.STOP
    world.skip()
    assert drive_until(graph, world, lambda: world.last("trajectory").source == Trajectory.PLANNED)
    node.close()


def test_stamps_of_trajectories_never_go_back(graph):
    """Its stamps are the test's own, so the planner must not reckon them by the wall clock."""
    world, node, planner = started(graph, "deadline_ms:=50", "odometry_stale_s:=60")
    assert drive_until(graph, world, world.hears_all)
    world.skip("front", "tele")
    world.advance(8)
    world.settle()
    world.skip()
    before = len(world.heard["trajectory"])
    assert drive_until(graph, world, lambda: Trajectory.PLANNED in world.sources()[before:])
    stamps = [nanoseconds(each.header.stamp) for each in world.heard["trajectory"]]
    began = next(index for index, source in enumerate(world.sources()) if source == Trajectory.PLANNED)
    assert stamps[began:] == sorted(stamps[began:])
    node.close()


@pytest.mark.parametrize("policy", ["wait", "last", "drop"])
def test_one_camera_falls_silent(graph, policy):
    limits = ("camera_max_age_s:=0.6", "camera_wait_s:=0.01", "deadline_ms:=500")
    world, node, planner = started(graph, f"camera_policy:={policy}", *limits)
    assert drive_until(graph, world, world.hears_all)
    assert graph.spin_until(lambda: planner.observations[-1].t0_ns == world.now_ns)
    world.skip("tele")
    seen, dropped = len(planner.observations), world.last("cycle_stats").dropped_observations
    for _ in range(4):
        world.advance()
        world.settle()
    if policy == "last":
        assert graph.spin_until(lambda: len(planner.observations) > seen)
        stamps = planner.observations[-1].frame_stamps_ns
        assert stamps["front"][-1] > stamps["tele"][-1]
        world.advance(8)
        world.settle()
        seen = len(planner.observations)
        world.advance(2)
        world.settle()
    assert len(planner.observations) == seen, "it waits, drops the cycle, or the picture is older than the limit"
    if policy == "drop":
        heard = world.heard["cycle_stats"]
        assert graph.spin_until(lambda: any("cycle dropped" in each.fallback_text for each in heard))
        assert graph.spin_until(lambda: world.last("cycle_stats").dropped_observations > dropped)
    node.close()


def test_each_check_has_a_status_and_a_parameter(graph):
    world, node, planner = started(graph, "check_start_m:=0.4")
    assert drive_until(graph, world, world.hears_all)
    planner.offset = 0.5
    assert drive_until(graph, world, lambda: world.statuses()["planner: check start"].level == DiagnosticStatus.ERROR)
    assert "begins" in world.statuses()["planner: check start"].message
    assert world.statuses()["planner: check curvature"].level == DiagnosticStatus.OK
    client = graph.listener("tuner").create_client(SetParameters, "/planner/set_parameters")

    def set_parameter(name: str, value):
        parameter = Parameter(name, value=value).to_parameter_msg()
        return graph.answer(client, SetParameters.Request(parameters=[parameter])).results[0]

    assert set_parameter("check_start_m", 2).successful
    assert not set_parameter("check_start_m", -2.0).successful
    refused = set_parameter("model", "other")
    assert not refused.successful and "unconfigured" in refused.reason
    assert not set_parameter("autostart", True).successful
    node.close()


def test_diagnostics_have_a_status_for_everything(graph):
    world, node, _ = started(graph)
    assert drive_until(graph, world, lambda: world.hears_all() and len(world.statuses()) > 10)
    names = set(world.statuses())
    wanted = {"model", "cycle", "deadline", "reasoning", "input front", "input tele", "input odometry"}
    wanted |= {f"check {name}" for name in ("start", "step", "curvature", "curvature_rate", "contradiction", "reverse")}
    assert {f"planner: {name}" for name in wanted} <= names

    def value(status: str, key: str) -> str:
        return {each.key: each.value for each in world.statuses()[f"planner: {status}"].values}[key]

    assert graph.spin_until(lambda: float(value("reasoning", "accepted_length")) == 1.0)
    assert int(value("input odometry", "duplicates")) == 0 and value("input front", "frame_id") == "front"
    assert value("deadline", "policy") == "republish"
    node.close()


class SlowAction(ConstantVelocity):
    """Says that its action head took fifty seconds, and one millisecond with fewer steps."""

    def plan(self, observation):
        late = self.pace.must_shorten_action()
        stage_ms = {"action": 1.0 if late else 50_000.0}
        return replace(super().plan(observation), action_steps=3 if late else 0, stage_ms=stage_ms)


def test_fewer_action_steps_are_counted_and_teach_nothing_of_all_steps(graph):
    planner = SlowAction()
    node, _ = make_planner(graph, "cycle_hz:=10", load=lambda settings: planner)
    assert node.trigger_configure() == SUCCESS and node.trigger_activate() == SUCCESS
    world = World(graph, node)
    assert graph.spin_until(world.matched)

    def said() -> dict[str, str]:
        statuses = [status for array in world.heard["diagnostics"] for status in array.status]
        deadline = [status for status in statuses if status.name.endswith("deadline")]
        return {each.key: each.value for each in deadline[-1].values} if deadline else {}

    assert drive_until(graph, world, lambda: int(said().get("fewer_action_steps", "0")) >= 3)
    assert float(said()["budget action ms"]) == 50_000.0, "what all of its steps take is still known"
    assert int(said()["shortened"]) >= 3
    node.close()


class Ahead(ConstantVelocity):
    """Counts how often its next prompt was begun, and how often that was when it planned; may fail at it."""

    def __init__(self):
        super().__init__()
        self.begun, self.begun_before, self.forgotten, self.ahead_error = 0, [], 0, None

    def plan(self, observation):
        self.begun_before.append(self.begun)
        return super().plan(observation)

    def prefill_ahead(self):
        self.begun += 1
        if self.ahead_error is not None:
            raise self.ahead_error

    def forget(self):
        self.forgotten += 1


def ahead_world(graph, planner, *overrides):
    node, _ = make_planner(graph, *overrides, load=lambda settings: planner)
    assert node.trigger_configure() == SUCCESS and node.trigger_activate() == SUCCESS
    world = World(graph, node)
    assert graph.spin_until(world.matched)
    return world, node


def test_the_next_prompt_is_begun_while_its_image_is_awaited(graph):
    planner = Ahead()
    world, node = ahead_world(graph, planner)
    assert drive_until(graph, world, lambda: planner.begun >= 3)
    assert planner.begun <= len(planner.observations)
    node.close()


def test_a_prompt_begun_in_vain_costs_no_cycle(graph):
    """An error there is said, forgets what was begun, and every observation still has its plan."""
    planner = Ahead()
    planner.ahead_error = ValueError("no room")
    world, node = ahead_world(graph, planner)
    assert drive_until(graph, world, lambda: planner.begun >= 3)
    assert planner.forgotten >= planner.begun - 1
    assert drive_until(graph, world, lambda: world.last("trajectory").source == Trajectory.PLANNED)
    assert CycleStats.MODEL_FAILED not in {each.fallback_reason for each in world.heard["cycle_stats"]}
    node.close()


def test_no_prompt_is_begun_before_an_image_that_is_there_and_due(graph):
    planner = Ahead()
    world, node = ahead_world(graph, planner, "cycle_hz:=100", "deadline_policy:=shorten")
    assert drive_until(graph, world, lambda: planner.begun >= 2)
    planner.gate.clear()
    count = len(planner.observations)
    assert drive_until(graph, world, lambda: len(planner.observations) > count)
    held = len(planner.begun_before)
    world.advance()  # arrives while the planner is held
    assert graph.spin_until(lambda: node._inbox.waiting(planner.cameras))
    planner.gate.set()
    assert graph.spin_until(lambda: len(planner.begun_before) > held)
    assert planner.begun_before[held] == planner.begun_before[held - 1]
    node.close()


def test_no_prompt_is_begun_where_it_is_switched_off(graph):
    planner = Ahead()
    world, node = ahead_world(graph, planner, "prefill_ahead:=false")
    assert drive_until(graph, world, lambda: len(planner.observations) >= 4)
    assert planner.begun == 0
    node.close()


def held_past_the_next_image(graph, world, planner, wait_s: float) -> int:
    """Holds the planner until an image has waited for so long; returns that image's t0."""
    planner.gate.clear()
    count = len(planner.observations)
    assert drive_until(graph, world, lambda: len(planner.observations) > count)
    world.advance(5)  # one period on
    waiting, until = world.now_ns, time.monotonic() + wait_s
    assert graph.spin_until(lambda: time.monotonic() > until)
    planner.gate.set()
    return waiting


def test_an_image_that_waited_too_long_is_left_out_but_looked_at(graph):
    """Once: the next one is planned on, whatever it waited for."""
    planner = Looks()
    world, node = ahead_world(graph, planner, "cycle_hz:=2", "deadline_ms:=400")
    assert drive_until(graph, world, lambda: len(planner.observations) > 9)
    before = world.last("cycle_stats").dropped_observations
    waiting = held_past_the_next_image(graph, world, planner, 0.4)
    assert graph.spin_until(lambda: planner.looked)
    assert planner.looked == [waiting]
    assert graph.spin_until(lambda: any("ms for the planner: left out" in each.message for each in world.said("cycle")))
    planned = len(planner.observations)
    assert drive_until(graph, world, lambda: len(planner.observations) > planned)
    assert waiting not in {each.t0_ns for each in planner.observations}
    assert drive_until(graph, world, lambda: world.last("cycle_stats").dropped_observations > before)
    node.close()


@pytest.mark.parametrize("policy, wait_s", [("shorten", 0.4), ("republish", 0.05)])
def test_an_image_is_planned_on_if_it_waited_shortly_or_nothing_stands_in(graph, policy, wait_s):
    planner = Looks()
    world, node = ahead_world(graph, planner, "cycle_hz:=2", "deadline_ms:=400", f"deadline_policy:={policy}")
    assert drive_until(graph, world, lambda: len(planner.observations) > 9)
    waiting = held_past_the_next_image(graph, world, planner, wait_s)
    assert graph.spin_until(lambda: waiting in {each.t0_ns for each in planner.observations})
    assert not planner.looked
    node.close()


class Looks(Ahead):
    """Notes what it only looked at."""

    def __init__(self):
        super().__init__()
        self.looked = []

    def look(self, observation):
        self.looked.append(observation.t0_ns)
