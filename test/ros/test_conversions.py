"""Messages and arrays, without sockets."""

import numpy as np
import pytest

pytest.importorskip("specdrive_ros.msg")
from geometry_msgs.msg import Quaternion  # noqa: E402
from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from nav_msgs.msg import Odometry  # noqa: E402
from specdrive_ros.errors import InputError  # noqa: E402
from specdrive_ros.msg import CycleStats, Trajectory  # noqa: E402
from specdrive_ros.plan import Plan  # noqa: E402
from specdrive_ros.ros import conversions as convert  # noqa: E402
from specdrive_ros.safety.fallback import stop_from  # noqa: E402
from specdrive_ros.shapes import NANOSECONDS  # noqa: E402

T0_NS = 1_234_567_890_123_456_789


def some_plan(**changes) -> Plan:
    rng = np.random.default_rng(0)
    fields = dict(
        t0_ns=T0_NS, reasoning="Keep distance to the lead vehicle.", token_ids=tuple(range(12)),
        xyz=rng.normal(size=(64, 3)), yaw=rng.uniform(-3, 3, 64), speed_mps=rng.uniform(0, 15, 64),
        acceleration=rng.normal(size=64), curvature=rng.normal(size=64) * 0.01, v0_mps=5.0, target_passes=4,
        stage_ms={"vision": 12.5},
    )
    return Plan(**fields | changes)


@given(st.integers(0, 2**31 * NANOSECONDS - 1))
def test_stamps_are_exact(time_ns):
    assert convert.nanoseconds(convert.stamp(time_ns)) == time_ns
    assert convert.nanoseconds(convert.duration(time_ns)) == time_ns


def test_negative_durations():
    message = convert.duration(-1)
    assert (message.sec, message.nanosec) == (-1, 999_999_999)
    assert convert.nanoseconds(message) == -1


def test_waypoints_are_at_exact_tenths():
    trajectory = convert.trajectory_message(some_plan(), "base_link", Trajectory.PLANNED)
    times = [convert.nanoseconds(point.time_from_start) for point in trajectory.points]
    assert times == [100_000_000 * (row + 1) for row in range(64)]
    assert convert.nanoseconds(trajectory.header.stamp) == T0_NS
    assert trajectory.header.frame_id == "base_link"


def test_plan_survives_the_messages():
    plan = some_plan()
    trajectory = convert.trajectory_message(plan, "base_link", Trajectory.PLANNED)
    again = convert.plan_of(trajectory, convert.reasoning_message(plan, "base_link"), plan.stage_ms)
    assert (again.t0_ns, again.reasoning, len(again.token_ids)) == (T0_NS, plan.reasoning, 12)
    np.testing.assert_allclose(again.xyz, plan.xyz)
    np.testing.assert_allclose(again.yaw, plan.yaw, atol=1e-9)
    np.testing.assert_allclose(again.speed_mps, plan.speed_mps, rtol=1e-6)
    followed = convert.ego_trajectory(trajectory)
    np.testing.assert_allclose(followed.xy, plan.xyz[:, :2])
    assert followed.times_s[42] == pytest.approx(4.3, abs=1e-12)


def test_path_has_the_waypoints_times():
    trajectory = convert.trajectory_message(some_plan(), "base_link", Trajectory.PLANNED)
    path = convert.path_message(trajectory)
    assert path.header == trajectory.header
    assert convert.nanoseconds(path.poses[9].header.stamp) == T0_NS + NANOSECONDS


def test_reasoning_numbers():
    message = convert.reasoning_message(some_plan(), "base_link")
    assert (message.tokens, message.target_passes) == (12, 4)
    assert message.accepted_length == pytest.approx(3.0)
    assert message.routine_share == pytest.approx(2 / 3)
    plain = convert.reasoning_message(some_plan(target_passes=12), "base_link")
    assert plain.accepted_length == 1.0 and plain.routine_share == 0.0
    empty = convert.reasoning_message(some_plan(token_ids=(), target_passes=0), "base_link")
    assert empty.accepted_length == 0.0 and empty.routine_share == 0.0


def test_stages_there_and_back():
    message = CycleStats()
    convert.set_stages(message, {"vision": 12.5, "total": 80.25, "unknown": 1.0})
    stages = convert.stages_ms(message)
    assert stages["vision"] == 12.5 and stages["total"] == 80.25 and stages["draft"] == 0.0


@pytest.mark.parametrize("yaw", [-3.0, -0.5, 0.0, 1.0, 3.1])
def test_yaw_there_and_back_at_any_length(yaw):
    turn = convert.yaw_quaternion(yaw)
    assert convert.yaw_of(turn) == pytest.approx(yaw)
    long = Quaternion(x=3 * turn.x, y=3 * turn.y, z=3 * turn.z, w=3 * turn.w)
    assert convert.yaw_of(long) == pytest.approx(yaw)


@pytest.mark.parametrize("w", [0.0, float("nan")])
def test_unset_orientation_is_refused(w):
    odometry = Odometry()
    odometry.pose.pose.orientation = Quaternion(w=w)
    with pytest.raises(InputError, match="no rotation"):
        convert.pose_sample(odometry)


def test_a_writer_writes_what_a_message_of_its_own_would_hold():
    """Also after another plan was written: nothing of it is left."""
    writer = convert.TrajectoryWriter(64)
    first = convert.trajectory_message(stop_from(7, 8.0, 0.05), "a", Trajectory.STOP)
    second = convert.trajectory_message(stop_from(9, 3.0, -0.1), "b", Trajectory.PLANNED)
    for plan, frame, expected in ((stop_from(7, 8.0, 0.05), "a", first), (stop_from(9, 3.0, -0.1), "b", second)):
        assert writer.trajectory(plan, frame, expected.source) == expected
