"""What a session answers, in the simulator's frame and at the waypoints' own times, and when it answers not."""

import numpy as np
import pytest

from specdrive_ros.alpasim.refusal import NotReady
from specdrive_ros.alpasim.route import distance_to_route
from specdrive_ros.alpasim.session import REFUSE, DriveSession, match_cameras
from specdrive_ros.errors import InputError
from specdrive_ros.geometry import quaternion_from_yaw, yaw_from_quaternion

MS = 1_000_000
YAW, SPEED = 2.0, 5.0  # the simulated car's, rad and m/s, from (10, -3, 1) on at instant 0


def place(now_ms):
    way = SPEED * now_ms / 1000
    return np.array([10 + way * np.cos(YAW), -3 + way * np.sin(YAW), 1.0])


@pytest.fixture
def session(planners):
    return DriveSession("s", {"front": "rgb_front"}, ["side"], planners, seed=40)


def poses(session, *instants_ms, speed=SPEED):
    xyz = np.array([place(now) for now in instants_ms])
    quaternions = np.tile(quaternion_from_yaw(YAW), (len(instants_ms), 1))
    session.add_poses([now * MS for now in instants_ms], xyz, quaternions, [speed] * len(instants_ms))


def pictures(session, jpeg, *instants_ms):
    for now in instants_ms:
        session.add_picture("front", now * MS, jpeg)


@pytest.fixture
def ready(session, jpeg):
    """Two seconds of poses and frames at 10 Hz, up to 2000 ms."""
    poses(session, *range(0, 2001, 100))
    pictures(session, jpeg, *range(0, 2001, 100))
    return session


def test_the_plan_comes_in_the_simulators_frame(ready):
    answer = ready.drive(2000 * MS)
    assert answer.source == "planned" and answer.plan.reasoning == "Go straight on"
    np.testing.assert_array_equal(answer.stamps_ns, (2000 + np.arange(65) * 100) * MS)
    expected = [place(2000 + 100 * k) for k in range(65)]
    np.testing.assert_allclose(answer.xyz, expected, atol=1e-6)
    np.testing.assert_allclose(yaw_from_quaternion(answer.quaternions), YAW, atol=1e-9)


def test_a_plan_of_older_frames_keeps_the_times_of_its_waypoints(ready):
    """40 ms after the frames the first waypoint is 60 ms ahead, and the rig has moved on."""
    poses(ready, 2040)
    answer = ready.drive(2040 * MS)
    assert answer.stamps_ns[0] == 2040 * MS and answer.stamps_ns[1] == 2100 * MS
    np.testing.assert_allclose(answer.xyz[0], place(2040), atol=1e-6)
    np.testing.assert_allclose(answer.xyz[1], place(2100), atol=1e-6)


def test_one_observation_makes_one_plan(ready, straight_on):
    first = ready.drive(2000 * MS)
    poses(ready, 2050)
    second = ready.drive(2050 * MS)
    assert len(straight_on.observations) == 1
    assert (first.source, second.source) == ("planned", "repeated")
    np.testing.assert_allclose(second.xyz[1], first.xyz[1], atol=1e-6)


def test_each_inference_has_its_own_seed(ready, jpeg, straight_on):
    for now in (2000, 2100, 2200):
        poses(ready, now)
        pictures(ready, jpeg, now)
        ready.drive(now * MS)
    assert straight_on.seeds == [40, 41, 42]


def test_a_young_session_stops_or_refuses(planners, jpeg):
    for until_ready in ("stop", REFUSE):
        session = DriveSession("s", {"front": "rgb_front"}, [], planners, until_ready=until_ready)
        poses(session, 0)
        pictures(session, jpeg, 0)
        if until_ready == REFUSE:
            with pytest.raises(NotReady, match="TOO_SHORT: odometry reaches 0.00 s back"):
                session.drive(0)
        else:
            answer = session.drive(0)
            assert answer.source == "warming_up" and "TOO_SHORT" in answer.note
            travelled = np.linalg.norm(answer.xyz[-1] - place(0))
            assert travelled == pytest.approx(SPEED**2 / 2 / 2.0)  # 2 m/s²
            assert session.rejected == {}


def test_a_session_that_lasts_and_has_no_history_is_refused(session, jpeg):
    pictures(session, jpeg, *range(0, 2001, 100))
    poses(session, *range(1500, 2001, 100))
    with pytest.raises(NotReady, match="TOO_SHORT: odometry reaches 0.50 s back from t0; 1.5 s are needed"):
        session.drive(2000 * MS)


def test_poses_from_before_the_first_frame_are_history(session, jpeg):
    """AlpaSim sends the recorded past at once; the first three frames are still awaited."""
    poses(session, *range(0, 2001, 100))
    pictures(session, jpeg, 2000)
    assert "MISSING_FRAMES" in session.drive(2000 * MS).note
    for now in (2100, 2200, 2300):
        poses(session, now)
        pictures(session, jpeg, now)
    assert session.drive(2300 * MS).source == "planned"


def test_frames_at_another_cadence_are_refused(session, jpeg):
    poses(session, *range(0, 3001, 100))
    pictures(session, jpeg, *range(0, 3001, 500))
    with pytest.raises(NotReady, match="MISSING_FRAMES.* 4 frames 0.1 s apart of each of front are needed"):
        session.drive(3000 * MS)


@pytest.mark.parametrize("step_ms", (50, 20))
def test_faster_cameras_are_thinned_out(session, jpeg, straight_on, step_ms):
    poses(session, *range(0, 2001, step_ms))
    pictures(session, jpeg, *range(0, 2001, step_ms))
    assert session.drive(2000 * MS).source == "planned"
    stamps = straight_on.observations[0].frame_stamps_ns["rgb_front"]
    np.testing.assert_array_equal(np.diff(stamps), 100 * MS)


def test_what_is_missing_is_said(session, jpeg, ready):
    poses(ready, 2300)
    with pytest.raises(NotReady, match="NOT_YET: the newest ego pose is 0.20 s older"):
        ready.drive(2500 * MS)
    with pytest.raises(InputError, match="0.40 s before the newest frame"):
        ready.drive(1600 * MS)
    poses(ready, *range(2400, 3001, 100))
    with pytest.raises(NotReady, match="STALE_FRAMES.* is 1.00 s older"):
        ready.drive(3000 * MS)


def test_nothing_at_all(session, jpeg):
    with pytest.raises(NotReady, match="NO_ODOMETRY"):
        session.drive(0)
    poses(session, 0)
    with pytest.raises(NotReady, match="NO_FRAMES"):
        session.drive(0)


def test_a_refused_plan_is_replaced(ready, jpeg, straight_on):
    ready.drive(2000 * MS)
    straight_on.broken = True
    poses(ready, 2100)
    pictures(ready, jpeg, 2100)
    again = ready.drive(2100 * MS)
    assert again.source == "republished" and "REVERSE" in again.note
    np.testing.assert_allclose(again.xyz[1], place(2200), atol=0.05)


def test_a_clock_that_goes_back_begins_anew(ready, jpeg, straight_on):
    ready.drive(2000 * MS)
    poses(ready, 100)
    pictures(ready, jpeg, 100)
    assert straight_on.forgotten == 1
    assert ready.drive(100 * MS).source == "warming_up"


def test_bad_input_changes_nothing(ready, jpeg):
    with pytest.raises(InputError, match="camera 'back' was not declared in start_session; declared: front, side"):
        ready.add_picture("back", 2100 * MS, jpeg)
    ready.add_picture("side", 2100 * MS, b"no picture, and nobody looks at it")
    for content in (b"", b"no picture", jpeg[: len(jpeg) // 2]):
        with pytest.raises(InputError, match="camera 'front'"):
            ready.add_picture("front", 2100 * MS, content)
    for xyz, quaternion in (([np.nan, 0, 0], [0, 0, 0, 1]), ([0, 0, 0], [0, 0, 0, 0]), ([0, 0, 0], [0, 0, 0, np.inf])):
        with pytest.raises(InputError, match="pose at 2100000 us"):
            ready.add_poses([2100 * MS], np.array([xyz]), np.array([quaternion]), [0.0])
    assert ready.drive(2000 * MS).source == "planned"
    assert ready.rejected == {"NOT_DECODABLE": 1, "UNKNOWN_ENCODING": 2}


def test_a_pose_that_is_sent_again_is_no_matter(ready):
    poses(ready, 2000)
    assert ready.drive(2000 * MS).source == "planned"


def test_the_route_is_compared_with_the_plan(ready):
    beside = np.stack([np.arange(0.0, 60.0, 2.0), np.full(30, 1.5), np.zeros(30)], axis=1)
    ready.set_route(2000 * MS, beside)
    assert ready.drive(2000 * MS).scalars["route_distance_m"] == pytest.approx(1.5, abs=0.3)
    with pytest.raises(InputError, match="route"):
        ready.set_route(2000 * MS, np.full((2, 3), np.nan))


def test_distance_to_a_route_with_repeated_points():
    route = np.array([[0.0, 0.0], [0.0, 0.0], [4.0, 0.0]])
    assert distance_to_route(np.array([[2.0, 1.0], [7.0, 4.0]]), route) == pytest.approx(5.0)


def test_cameras_are_matched_by_name_or_as_given():
    assert match_cameras(["anything"], ["rgb_front"], {}) == {"anything": "rgb_front"}
    assert match_cameras(["a", "b"], ["b"], {}) == {"b": "b"}
    assert match_cameras(["x", "b"], ["a", "b"], {"x": "a"}) == {"x": "a", "b": "b"}
    with pytest.raises(NotReady, match="camera rgb_front: not declared; declared are left, right; serve with --camera"):
        match_cameras(["left", "right"], ["rgb_front"], {})
    with pytest.raises(NotReady, match="declared are none"):
        match_cameras([], ["rgb_front"], {})


def test_closing_gives_the_planner_to_the_next(planners, straight_on):
    one, two = (DriveSession(name, {"front": "rgb_front"}, [], planners) for name in "ab")
    assert one._planner is straight_on and two._planner is not straight_on
    one.close()
    assert straight_on.forgotten == 1 and planners.take() is straight_on
