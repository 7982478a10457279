"""Replay with a planner that keeps its speed: what it must say of a drive is known in closed form."""

import json
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest

from specdrive_ros.cli.main import Parser
from specdrive_ros.cli.replay import add_arguments, parse_cameras, replay_all
from specdrive_ros.errors import InputError
from specdrive_ros.evaluation.bag_files import find_files
from specdrive_ros.evaluation.bags import open_bag
from specdrive_ros.evaluation.replay import ReplayOptions, due_plans, replay_bag
from specdrive_ros.evaluation.replay_sources import Sources, find_sources
from specdrive_ros.evaluation.replay_summary import replay_summary
from specdrive_ros.plan import Plan
from specdrive_ros.shapes import WAYPOINT_TIMES_S

BASE = 1_600_000_000 * 10**9
SPEED_MPS = 8.0


class SpeedKeeper:
    """Plans straight on at the speed at t0, and remembers what it was shown."""

    cameras = ("front",)

    def __init__(self, violations=()):
        self.observations, self.violations = [], violations

    def plan(self, observation):
        self.observations.append(observation)
        speed = observation.history.speed_mps
        xyz = WAYPOINT_TIMES_S[:, None] * [speed, 0.0, 0.0]
        flat = np.zeros(64)
        return Plan(observation.t0_ns, "Keep speed since the road is clear.", (5, 6, 7), xyz, flat,
                    flat + speed, flat, flat, speed, target_passes=3, violations=self.violations,
                    stage_ms={"vision": 1.0})


def ns(time_s):
    return BASE + int(round(time_s * 1e9))


@pytest.fixture
def drive(ros):
    """10 s straight on at 8 m/s: odometry at 20 Hz, a numbered picture at 10 Hz, recorded 20 ms late."""

    def rows(seconds=10.0, pictures=True, camera="/camera/front/image", odometry="/odom", image=None):
        image = image or (lambda k: ros.image(ns(k / 10), k % 256))
        poses = [(odometry, ns(k / 20) + 2 * 10**7, ros.odometry(ns(k / 20), SPEED_MPS * k / 20, SPEED_MPS))
                 for k in range(int(seconds * 20) + 1)]
        frames = [(camera, ns(k / 10) + 2 * 10**7, image(k)) for k in range(int(seconds * 10) + 1)]
        return sorted(poses + frames * pictures, key=lambda row: row[1])

    return rows


def replayed(folder, planner=None, **options):
    bag, planner = open_bag(folder), planner or SpeedKeeper()
    result = replay_bag(bag, find_sources(bag, planner.cameras), planner, ReplayOptions(**options))
    return result, replay_summary([result], model="speed keeper", runtime="none", seed=0)


def test_plans_at_the_due_instants_once_history_is_there(write_bag, drive):
    planner = SpeedKeeper()
    result, summary = replayed(write_bag(drive()), planner)
    assert [round(cycle.time_s, 3) for cycle in result.cycles] == [round(1.5 + 0.5 * k, 1) for k in range(18)]
    assert summary["cycles"]["planned"] == 18 and summary["cycles"]["refused"] == {"TOO_SHORT": 3}
    assert summary["inputs"] == {"frames": 101, "odometry": 201, "rejected": {}}
    last = planner.observations[-1]
    assert last.frames["front"][:, 0, 0, 0].tolist() == [97, 98, 99, 100] and last.repeated_frames == 0
    np.testing.assert_allclose(last.history.xyz[0], [-12, 0, 0], atol=1e-6)


def test_keeping_speed_on_a_straight_drive_has_no_error(write_bag, drive):
    _, summary = replayed(write_bag(drive()))
    trajectory = summary["trajectory"]
    assert trajectory["evaluated_at"] == {"1s": 16, "3s": 12, "6.4s": 5}
    for name in ("ade_m", "fde_m", "constant_velocity_ade_m"):
        assert trajectory[name] == {"1s": 0.0, "3s": 0.0, "6.4s": 0.0}


def test_errors_are_measured_against_the_bags_own_future(write_bag, ros, drive):
    """From 5 s on the car brakes at 2 m/s²; a plan of 4.5 s knows nothing of it."""
    rows = drive(pictures=True)
    after = [k for k, (topic, _, _) in enumerate(rows) if topic == "/odom"]
    for index in after:
        time_s = (rows[index][1] - BASE - 2 * 10**7) / 1e9
        braked = max(0.0, time_s - 5)
        moved = ros.odometry(ns(time_s), SPEED_MPS * time_s - braked**2, SPEED_MPS - 2 * braked)
        rows[index] = ("/odom", rows[index][1], moved)
    result, _ = replayed(write_bag(rows))
    errors, baseline = result.errors()
    at_4_5 = [round(cycle.time_s, 1) for cycle in result.cycles].index(4.5)
    assert errors[at_4_5][4] == pytest.approx(0, abs=1e-6)
    assert errors[at_4_5][29] == pytest.approx(2.5**2, abs=0.01)
    np.testing.assert_allclose(errors[at_4_5], baseline[at_4_5], atol=1e-6)


def test_the_same_bag_gives_the_same_summary(write_bag, drive):
    folder = write_bag(drive())
    summaries = [replayed(folder)[1] for _ in range(2)]
    for summary in summaries:
        summary.pop("latency_ms")
    assert json.dumps(summaries[0]) == json.dumps(summaries[1])


@pytest.mark.parametrize("every_s, seconds, planned", [
    (0.2, 3.0, 9), (1.0, None, 10), (0.5, 4.0, 6), (3.0, None, 4)])
def test_how_often_and_how_long(write_bag, drive, every_s, seconds, planned):
    folder = write_bag(drive())
    result, summary = replayed(folder, every_s=every_s, seconds=seconds)
    assert len(result.cycles) == planned
    bag = open_bag(folder)
    sources = find_sources(bag, ("front",))
    due = due_plans(bag, sources, ReplayOptions(every_s, seconds))
    assert planned == due - sum(result.refused.values())
    if seconds:  # the future beyond is still read
        assert summary["trajectory"]["evaluated_at"]["6.4s"] == planned - (seconds > 3.6)


def test_one_picture_is_held_and_said_so(write_bag, drive, ros):
    rows = drive(pictures=False) + [("/camera/front/image", ns(0), ros.image(ns(0), 7))]
    planner = SpeedKeeper()
    result, summary = replayed(write_bag(rows), planner)
    assert len(result.cycles) == 18 and summary["bags"][0]["repeated_frames"] == 4 * 18
    assert "/camera/front/image has a single image in 10.0 s" in summary["notes"][0]
    assert any("held for every plan" in note for note in summary["notes"])
    assert planner.observations[-1].frame_stamps_ns["front"].tolist() == [ns(0)] * 4
    assert result.report_cycles()[-1].note.startswith("picture held")


def test_a_held_picture_can_be_refused(write_bag, drive, ros):
    rows = drive(pictures=False) + [("/camera/front/image", ns(0), ros.image(ns(0), 7))]
    result, summary = replayed(write_bag(rows), max_frame_age_s=0.2)
    assert result.cycles == [] and summary["cycles"]["refused"] == {"STALE_FRAMES": 21}
    assert "no plan was possible (STALE_FRAMES 21)" in summary["notes"][-1]


def test_a_camera_that_pauses_stops_plans_while_it_does(write_bag, drive):
    rows = [row for row in drive() if row[0] == "/odom" or not ns(4.05) < row[1] - 2 * 10**7 < ns(6.05)]
    result, _ = replayed(write_bag(rows))
    times_s = [cycle.time_s for cycle in result.cycles]
    assert not [t for t in times_s if 4.25 < t < 6.0] and result.refused["STALE_FRAMES"] == 3
    first_after = next(cycle for cycle in result.cycles if cycle.time_s > 6)
    assert first_after.repeated_frames > 0


def test_bad_images_and_bad_odometry_are_counted_not_fatal(write_bag, drive, ros):
    def image(k):
        return ros.image(ns(k / 10), k, encoding="rgb8" if k % 10 else "hologram")

    rows = drive(image=image) + [("/odom", ns(3), ros.odometry(ns(3.01), float("nan"))),
                                 ("/odom", ns(3), ros.odometry(ns(3.02), quaternion=(0.0, 0.0, 0.0, 0.0)))]
    result, summary = replayed(write_bag(rows))
    assert summary["inputs"]["rejected"] == {"NOT_FINITE": 1, "UNKNOWN_ENCODING": 11, "ZERO_QUATERNION": 1}
    assert len(result.cycles) == 18 and summary["trajectory"]["ade_m"]["6.4s"] == 0.0
    said = "11 of 101 images were refused; the last: encoding 'hologram' is unknown"
    assert any(said in note for note in summary["notes"])


def test_plans_that_fail_a_check_are_counted_and_still_measured(write_bag, drive):
    planner = SpeedKeeper(("CURVATURE: 0.50 1/m",))
    result, summary = replayed(write_bag(drive()), planner)
    assert summary["cycles"]["violated"] == {"CURVATURE": 18} and summary["trajectory"]["evaluated"] == 16
    assert "18 of 18 plans fail the check CURVATURE" in summary["notes"][-1]
    assert result.report_cycles()[0].note == "CURVATURE: 0.50 1/m"


def test_each_plan_has_its_times(write_bag, drive):
    _, summary = replayed(write_bag(drive()))
    latency = summary["latency_ms"]
    assert latency["vision"]["median"] == 1.0
    assert latency["total"]["median"] >= latency["decode"]["median"] > 0


def test_compressed_images_and_unset_twists(write_bag, drive, ros):
    rows = drive(image=lambda k: ros.compressed(ns(k / 10), k), camera="/camera/front/image/compressed")
    for index, (topic, at_ns, message) in enumerate(rows):
        if topic == "/odom":
            rows[index] = (topic, at_ns, ros.odometry(at_ns - 2 * 10**7, message.pose.pose.position.x, 0.0))
    planner = SpeedKeeper()
    _, summary = replayed(write_bag(rows), planner)
    assert planner.observations[0].history.speed_mps == pytest.approx(SPEED_MPS)
    assert summary["trajectory"]["ade_m"]["3s"] == pytest.approx(0, abs=1e-3)


def test_pictures_are_kept_in_bounded_number(write_bag, drive):
    bag, planner = open_bag(write_bag(drive())), SpeedKeeper()
    result = replay_bag(bag, Sources({"/camera/front/image": "front"}, "/odom"), planner,
                        ReplayOptions(every_s=0.1), pictures=10)
    kept = [index for index, cycle in enumerate(result.cycles) if cycle.rgb is not None]
    assert 5 <= len(kept) <= 10 and len(set(np.diff(kept))) == 1 and kept[0] == 0


# Topics


def test_topics_are_found_by_type_and_by_name(write_bag, drive, ros):
    extra = [("/camera/rear/image", ns(0), ros.image(ns(0))),
             ("/camera/front/image/compressed", ns(0), ros.compressed(ns(0)))]
    bag = open_bag(write_bag(drive(seconds=1) + extra))
    assert find_sources(bag, ("front",)) == Sources({"/camera/front/image": "front"}, "/odom")
    both = find_sources(bag, ("rear", "front")).cameras
    assert both == {"/camera/rear/image": "rear", "/camera/front/image": "front"}
    given = find_sources(bag, ("front",), {"/camera/rear/image": "front"})
    assert given.cameras == {"/camera/rear/image": "front"}


def test_a_sole_image_topic_is_the_sole_camera_whatever_its_name(write_bag, drive):
    bag = open_bag(write_bag(drive(seconds=1, camera="/usb_cam/image_raw")))
    assert find_sources(bag, ("front",)).cameras == {"/usb_cam/image_raw": "front"}


@pytest.mark.parametrize("cameras, given, odometry, pattern", [
    (("front",), {"/nope": "front"}, None, "no topic /nope; it has"),
    (("front",), {"/odom": "front"}, None, "/odom is nav_msgs/msg/Odometry; must be sensor_msgs/msg/CompressedImage"),
    (("front",), {"/camera/a/image": "rear"}, None, "the model's cameras are front"),
    (("front",), {}, None, "not clear which topic is camera front; give --camera TOPIC=front; .*: /camera/a"),
    (("a",), {}, "/camera/a/image", "is sensor_msgs/msg/Image; must be nav_msgs/msg/Odometry"),
    (("a",), {}, None, "more than one odometry; give --odometry TOPIC; odometry: /odom .*, /odom2 "),
])
def test_unclear_or_wrong_topics_say_what_there_is(write_bag, drive, ros, cameras, given, odometry, pattern):
    bag = open_bag(write_bag(drive(seconds=1, camera="/camera/a/image") + [
        ("/camera/b/image", ns(0), ros.image(ns(0))), ("/odom2", ns(0), ros.odometry(ns(0)))]))
    with pytest.raises(InputError, match=pattern):
        find_sources(bag, cameras, given, odometry)


def test_a_bag_without_images_or_odometry_says_so(write_bag, drive):
    with pytest.raises(InputError, match="no topic for camera front.*image topics: none; all topics: /odom"):
        find_sources(open_bag(write_bag(drive(seconds=1, pictures=False))), ("front",))
    rows = [row for row in drive(seconds=1) if row[0] != "/odom"]
    with pytest.raises(InputError, match="no odometry"):
        find_sources(open_bag(write_bag(rows, name="blind")), ("front",))


# The command


def arguments(*words) -> Namespace:
    parser = Parser()
    add_arguments(parser)
    return parser.parse_args([str(word) for word in words])


def test_the_command_writes_its_three_files(write_bag, drive, tmp_path, capsys):
    folder, out = write_bag(drive()), tmp_path / "out"
    assert replay_all(arguments(folder, folder, "--out", out), SpeedKeeper) == 0
    summary = json.loads((out / "summary.json").read_text())
    assert summary["cycles"]["planned"] == 36 and len(summary["bags"]) == 2
    assert "Keep speed since the road is clear." in (out / "report.html").read_text()
    assert "ADE 0.00 m, constant velocity 0.00 m, over 10 plans" in capsys.readouterr().out
    plans = open_bag(out / "plans.mcap")
    assert {t.type for t in plans.topics} >= {
        "sensor_msgs/msg/CompressedImage", "nav_msgs/msg/Path", "std_msgs/msg/String"}
    paths = list(plans.messages(["/planner/output/path"]))
    assert len(paths) == 36 and len(paths[0].message.poses) == 64


def test_json_alone_is_on_stdout(write_bag, drive, tmp_path, capsys):
    replay_all(arguments(write_bag(drive()), "--json", "--out", tmp_path / "out"), SpeedKeeper)
    assert json.loads(capsys.readouterr().out)["cycles"]["planned"] == 18


def test_no_plan_at_all_is_an_error_with_its_reason(write_bag, drive, tmp_path):
    with pytest.raises(InputError, match=r"no plan was possible \(TOO_SHORT 3\): odometry reaches 1.0"):
        replay_all(arguments(write_bag(drive(seconds=1)), "--out", tmp_path / "out"), SpeedKeeper)
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["trajectory"]["evaluated"] == 0


def test_a_bad_bag_stops_before_a_model_is_loaded(tmp_path):
    def load():
        raise AssertionError("loaded")

    with pytest.raises(InputError, match="no such file or folder"):
        replay_all(arguments(tmp_path / "nothing", "--out", tmp_path / "out"), load)
    assert not (tmp_path / "out").exists()


def test_a_device_is_no_bag():
    with pytest.raises(InputError, match="bag /dev/null: neither a file nor a folder; must be a rosbag2 folder, .mcap or"):
        find_files(Path("/dev/null"), {}, [])


@pytest.mark.parametrize("words", [
    ("--every", "0"), ("--every", "nan"), ("--seconds", "-1"), ("--max-frame-age", "-1"), ("--seed", "-1")])
def test_wrong_options_are_refused(tmp_path, words):
    with pytest.raises(InputError, match="must be"):
        replay_all(arguments(tmp_path, *words), SpeedKeeper)


def test_camera_arguments():
    assert parse_cameras(["/a=front", "/b=rear"], ("front", "rear")) == {"/a": "front", "/b": "rear"}
    assert parse_cameras(["/a"], ("front",)) == {"/a": "front"}
    for wrong in (["/a"], ["=front"], ["/a="], ["/a=front", "/b=front"], ["/a=front", "/a=rear"]):
        with pytest.raises(InputError):
            parse_cameras(wrong, ("front", "rear"))


# Recordings of others


@pytest.mark.parametrize("name, planned, evaluated", [
    ("kitti_straight_mcap", 8, {"1s": 6, "3s": 2, "6.4s": 0}),
    ("broken/truncated_mcap", 4, {"1s": 2, "3s": 0, "6.4s": 0}),
])
def test_real_camera_and_odometry(recording, name, planned, evaluated):
    planner = SpeedKeeper()
    _, summary = replayed(recording(name), planner)
    assert summary["cycles"]["planned"] == planned and summary["trajectory"]["evaluated_at"] == evaluated
    assert summary["trajectory"]["ade_m"]["1s"] < 0.1
    frames = planner.observations[-1].frames["front"]
    assert frames.shape[0] == 4 and frames.std() > 30
    assert all((frames[k] != frames[k + 1]).any() for k in range(3))


def test_real_drive_with_a_single_picture(recording):
    result, summary = replayed(recording("comma2k19_drive_mcap"), every_s=5.0)
    assert "single image in 59.9 s" in summary["notes"][0] and len(result.cycles) == 12
    assert 0.3 < summary["trajectory"]["constant_velocity_ade_m"]["6.4s"] < 10
