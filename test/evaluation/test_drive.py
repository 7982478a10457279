import copy
import json

import numpy as np
import pytest
from mcap.reader import make_reader
from mcap_ros2.decoder import DecoderFactory

from specdrive_ros.errors import InputError
from specdrive_ros.evaluation.drive import (
    DriveLog,
    DrivenCycle,
    drive_all_offline,
    drive_summary,
    driven_after,
    list_scenarios,
    report_cycles,
)
from specdrive_ros.evaluation.recording import DriveRecording
from specdrive_ros.evaluation.report import report_html
from specdrive_ros.evaluation.summary import summary_text
from specdrive_ros.plan import Plan
from specdrive_ros.shapes import FUTURE_WAYPOINTS, NANOSECONDS, PICTURE_SIZE
from specdrive_ros.sim.pinhole import FRONT_CAMERA
from specdrive_ros.sim.scenario import FAMILIES, make_world


class ExpertPlanner:
    """Plans what the expert would do next, by rolling a copy of the world forward."""

    cameras = ("rgb_front",)

    def __init__(self):
        self.world = None
        self.observations = []

    def make(self, family, seed):
        self.world = make_world(family, seed)
        return self.world

    def plan(self, observation) -> Plan:
        self.observations.append(observation)
        ghost, ego = copy.deepcopy(self.world), self.world.ego
        rows = []
        for _ in range(FUTURE_WAYPOINTS):
            for _ in range(2):
                ghost.step(0.05, ghost.expert_command())
            now = ghost.ego
            rows.append(
                (
                    now.x - ego.x,
                    now.y - ego.y,
                    now.yaw - ego.yaw,
                    now.speed,
                    now.acceleration,
                    now.curvature,
                )
            )
        dx, dy, yaw, speed, acceleration, curvature = np.array(rows).T
        cos, sin = np.cos(ego.yaw), np.sin(ego.yaw)
        xyz = np.stack([cos * dx + sin * dy, -sin * dx + cos * dy, np.zeros_like(dx)], 1)
        text = self.world.label().text
        tokens = tuple(range(len(text.split()) + 2))
        return Plan(
            observation.t0_ns,
            text,
            tokens,
            xyz,
            yaw,
            speed,
            acceleration,
            curvature,
            ego.speed,
            target_passes=len(tokens),
            stage_ms={"total": 1.0},
        )


class StraightOnPlanner:
    """Goes straight on as fast as it is, whatever there is to see."""

    cameras = ("rgb_front",)

    def __init__(self, make_plan):
        self.make_plan = make_plan

    def plan(self, observation) -> Plan:
        speed = observation.history.speed_mps
        return self.make_plan(observation.t0_ns / NANOSECONDS, speed=speed, curvature=0.0)


def drive(planner, scenarios, recording=None, **more):
    log = DriveLog(recording)
    make = {"make": planner.make} if hasattr(planner, "make") else {}
    drive_all_offline(planner, scenarios, log, **make, **more)
    return log


def test_the_experts_plans_drive_a_scenario_to_its_goal():
    result = drive(ExpertPlanner(), [("obstacle", 3)], latency_s=0.2).results()[0]
    assert (result.outcome, result.seed) == ("success", 3), result.why
    assert result.distance_m > 50
    assert len(result.cycles) == pytest.approx((result.duration_s - 1.5) / 0.2, abs=2)


def test_observations_end_at_t0_and_hold_four_frames_and_the_true_history():
    planner = ExpertPlanner()
    drive(planner, [("cruise", 3)], seconds=1.0)
    for observation in planner.observations:
        stamps = observation.frame_stamps_ns["rgb_front"]
        np.testing.assert_array_equal(np.diff(stamps), NANOSECONDS // 10)
        assert stamps[-1] == observation.t0_ns
        assert observation.frames["rgb_front"].shape == (4, *PICTURE_SIZE, 3)
        speeds = np.linalg.norm(np.diff(observation.history.xyz, axis=0), axis=1) / 0.1
        assert abs(speeds[-1] - observation.history.speed_mps) < 0.2
    frames = [observation.frames["rgb_front"] for observation in planner.observations]
    np.testing.assert_array_equal(frames[0][1:], frames[1][:3])
    assert (frames[0][3] != frames[1][3]).any()


def test_a_planner_that_does_not_look_runs_the_light(make_plan):
    seeds = (3, 1, 0, 2, 4, 5)  # some lights are green when it comes; the first of these was red
    ends = (drive(StraightOnPlanner(make_plan), [("traffic_light", seed)]).results()[0] for seed in seeds)
    assert any(result.outcome == "red_light" for result in ends)


def test_a_plan_that_fails_its_checks_becomes_a_stop_with_a_reason(make_plan):
    class Jumping(StraightOnPlanner):
        def plan(self, observation):
            plan = super().plan(observation)
            plan.xyz[:, 0] += 5.0
            return plan

    log = drive(Jumping(make_plan), [("cruise", 0)], seconds=2.0)
    cycle = log.results()[0].cycles[-1]
    assert cycle.source == "stop" and cycle.note.startswith("plan refused: START")
    assert summary_of(log)["cycles"]["fallback"]["stop"] == len(log.results()[0].cycles)
    assert cycle.speed_mps < log.results()[0].cycles[0].speed_mps - 2.0


def test_equal_seeds_give_equal_drives(make_plan):
    summaries = []
    for _ in range(2):
        log = drive(StraightOnPlanner(make_plan), [("obstacle", 5), ("cruise", 5)], seconds=3.0)
        summaries.append(summary_of(log))
    assert summary_text(summaries[0]) == summary_text(summaries[1])
    assert [row["name"] for row in summaries[0]["scenarios"]] == ["obstacle", "cruise"]


def test_latency_delays_plans_and_spaces_them_out(make_plan):
    at_once = drive(StraightOnPlanner(make_plan), [("cruise", 0)], seconds=2.0).results()[0]
    late = drive(StraightOnPlanner(make_plan), [("cruise", 0)], seconds=2.0, latency_s=0.25).results()[0]
    steps = np.diff([cycle.time_s for cycle in at_once.cycles])
    np.testing.assert_allclose(steps, 0.1, atol=1e-6)
    np.testing.assert_allclose(np.diff([cycle.time_s for cycle in late.cycles]), 0.3, atol=1e-6)
    assert late.cycles[-1].pose != at_once.cycles[-1].pose


def test_a_drive_cut_short_by_seconds_is_a_timeout_and_says_so(make_plan):
    result = drive(StraightOnPlanner(make_plan), [("cruise", 0)], seconds=1.0).results()[0]
    assert result.outcome == "timeout" and "as asked" in result.why
    assert result.duration_s == pytest.approx(3.0, abs=0.06)  # the expert's lead-in of 2 s and one more


def test_an_interrupted_scenario_is_kept_and_says_so(make_plan):
    class Interrupted(DriveLog):
        def on_cycle(self, cycle):
            super().on_cycle(cycle)
            if cycle.time_s > 2.45:
                raise KeyboardInterrupt

    log = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        drive_all_offline(StraightOnPlanner(make_plan), [("cruise", 0)], log)
    result = log.results()[0]
    assert result.outcome == "timeout" and result.why.startswith("cut short after 2.5 s")
    assert result.distance_m > 0
    assert log.counts.frames == 26
    summary_text(summary_of(log))


def test_only_the_pictures_of_the_report_are_kept(make_plan):
    log = drive(StraightOnPlanner(make_plan), [("cruise", 0)], seconds=4.0)
    cycles = log.results()[0].cycles
    assert len(cycles) > 40
    assert sum(cycle.rgb is not None for cycle in cycles) == 12
    assert cycles[-1].rgb is not None


def test_a_cycle_that_comes_after_its_scenarios_end_is_counted_there(make_plan, picture):
    log = DriveLog()
    log.on_event({"event": "start", "name": "cruise", "seed": 0, "stamp_ns": NANOSECONDS})
    log.on_event(
        {
            "event": "outcome",
            "name": "cruise",
            "seed": 0,
            "stamp_ns": 9 * NANOSECONDS,
            "outcome": "success",
            "why": "",
            "distance_m": 1.0,
            "seconds": 8.0,
        }
    )
    log.on_event({"event": "start", "name": "obstacle", "seed": 0, "stamp_ns": 11 * NANOSECONDS})
    log.on_cycle(DrivenCycle(7.9, picture, make_plan(8.9), (0.0, 0.0, 0.0), 1.0))
    log.on_cycle(DrivenCycle(1.5, picture, make_plan(12.5), (0.0, 0.0, 0.0), 1.0))
    assert [len(result.cycles) for result in log.results()] == [1, 1]


def summary_of(log) -> dict:
    return drive_summary(log.results(), log.counts, model="test", runtime="none", draft="none", seed=0)


def test_fallbacks_late_and_dropped_cycles_are_counted(make_plan, picture):
    log = DriveLog()
    log.on_event({"event": "start", "name": "cruise", "seed": 0, "stamp_ns": 0})
    for source, late in (("planned", False), ("planned", True), ("republished", True), ("stop", False)):
        log.on_cycle(DrivenCycle(1.0, picture, make_plan(), (0.0, 0.0, 0.0), 1.0, source, late))
    log.counts.dropped = 3
    assert summary_of(log)["cycles"] == {
        "observed": 7,
        "planned": 2,
        "late": 2,
        "fallback": {"republished": 1, "stop": 1},
        "dropped": 3,
    }
    assert summary_of(log)["reasoning"]["tokens"] == 20, "only plans of their own were reasoned"


def test_the_report_shows_the_path_that_was_then_driven():
    turn = np.linspace(0, 1.0, 11)  # a quarter of a circle of 10 m radius, and on, a point each 0.1 s
    poses = np.stack([0.1 * np.arange(11), 10 * np.sin(turn), 10 - 10 * np.cos(turn), turn], 1)
    path = driven_after(poses, 5)
    expected = np.linspace(0, 0.5, 6)
    np.testing.assert_allclose(path[:, 0], 10 * np.sin(expected), atol=1e-9)
    np.testing.assert_allclose(path[:, 1], 10 - 10 * np.cos(expected), atol=1e-9)


def read_recording(path) -> dict[str, list]:
    """Topic -> (log time ns, message), as a reader that knows ROS 2 bags but not this package sees them."""
    messages: dict[str, list] = {}
    with path.open("rb") as file:
        reader = make_reader(file, decoder_factories=[DecoderFactory()])
        for _, channel, record, message in reader.iter_decoded_messages():
            messages.setdefault(channel.topic, []).append((record.log_time, message))
    return messages


def test_report_and_recording_of_a_drive(tmp_path):
    path = tmp_path / "drive.mcap"
    with DriveRecording(path) as recording:
        log = drive(ExpertPlanner(), [("lead_vehicle", 1)], recording, seconds=1.0)
    result = log.results()[0]
    page = report_html("Drive", summary_of(log), report_cycles(result, FRONT_CAMERA))
    assert result.cycles[0].plan.reasoning in page

    messages = read_recording(path)
    cycles = len(result.cycles)
    for topic in (
        "/carla/ego_vehicle/rgb_front/image/compressed",
        "/carla/ego_vehicle/odometry",
        "/tf",
        "/planner/output/path",
        "/planner/output/trajectory",
        "/planner/output/reasoning",
        "/planner/output/reasoning_text",
    ):
        assert len(messages[topic]) == cycles, topic
    first = result.cycles[0]
    stamp_ns, trajectory = messages["/planner/output/trajectory"][0]
    assert stamp_ns == first.plan.t0_ns
    points = trajectory.points
    assert len(points) == FUTURE_WAYPOINTS
    assert points[63].time_from_start.sec == 6 and points[63].time_from_start.nanosec == 400_000_000
    np.testing.assert_allclose(
        [(p.pose.position.x, p.pose.position.y) for p in points], first.plan.xyz[:, :2], atol=1e-9
    )
    assert messages["/planner/output/reasoning_text"][0][1].data == first.plan.reasoning
    odometry = messages["/carla/ego_vehicle/odometry"][0][1]
    assert odometry.twist.twist.linear.x == pytest.approx(first.speed_mps)
    assert bytes(messages["/carla/ego_vehicle/rgb_front/image/compressed"][0][1].data[:2]) == b"\xff\xd8"


def test_all_scenarios_are_those_the_model_was_trained_in():
    assert list_scenarios(["all"], 1, 5, every=("merge", "cruise")) == [("merge", 5), ("cruise", 5)]
    assert list_scenarios(["obstacle"], 1, 5, every=("merge",)) == [("obstacle", 5)]
    with pytest.raises(InputError, match="--scenario racing: no such scenario"):
        list_scenarios(["racing"], 1, 5, every=("merge",))
    for name in ("racing", "all"):
        with pytest.raises(InputError, match=f"the model's settings, scenarios: no such scenario {name}; there are"):
            list_scenarios(["all"], 1, 5, every=(name,))


def test_scenarios_are_listed_by_repeat_and_family():
    assert list_scenarios(["all"], 1, 5) == [(family, 5) for family in FAMILIES]
    assert list_scenarios(["cruise", "obstacle", "cruise"], 2, 5) == [
        ("cruise", 5),
        ("obstacle", 5),
        ("cruise", 6),
        ("obstacle", 6),
    ]


@pytest.mark.parametrize(
    ("names", "repeat", "seed", "message"),
    [
        (["cruize"], 1, 0, "--scenario cruize.*cruise, lead_vehicle, traffic_light, obstacle"),
        (["cruise"], 0, 0, "--repeat 0"),
        (["cruise"], 1, -1, "--seed -1"),
        (["cruise"], 2, 999_999, "--seed 999999 with 2 repeats"),
    ],
)
def test_wrong_choices_are_refused(names, repeat, seed, message):
    with pytest.raises(InputError, match=message):
        list_scenarios(names, repeat, seed)


def test_the_summary_reads_back_and_counts_what_came_in(make_plan):
    summary = summary_of(drive(StraightOnPlanner(make_plan), [("cruise", 0)], seconds=1.0))
    assert json.loads(summary_text(summary)) == summary
    assert summary["inputs"] == {"frames": 31, "odometry": 61, "rejected": {}}  # 3 s, both ends counted
