"""Pure pursuit and speed loop: it tracks, it uses the pose of t0, it stops when it should."""

import numpy as np
import pytest
from specdrive_ros.controller import (
    ControllerConfig,
    EgoTrajectory,
    PoseSample,
    PoseTrack,
    TrajectoryController,
)
from specdrive_ros.errors import InputError
from specdrive_ros.shapes import NANOSECONDS, WAYPOINT_TIMES_S

TICK_NS = NANOSECONDS // 20


def straight(t0_ns: int, speed: float = 10.0) -> EgoTrajectory:
    distance = speed * WAYPOINT_TIMES_S
    return EgoTrajectory(
        t0_ns, WAYPOINT_TIMES_S, np.stack([distance, 0 * distance], 1), 0 * distance, np.full(64, speed)
    )


def arc(t0_ns: int, curvature: float, speed: float = 8.0) -> EgoTrajectory:
    yaw = curvature * speed * WAYPOINT_TIMES_S
    xy = np.stack([np.sin(yaw), 1 - np.cos(yaw)], 1) / curvature
    return EgoTrajectory(t0_ns, WAYPOINT_TIMES_S, xy, yaw, np.full(64, speed))


def drive(controller: TrajectoryController, state: list[float], ticks: int, start_ns: int) -> np.ndarray:
    """[ticks, 4] x, y, yaw, speed of a kinematic car that obeys."""
    rows = []
    for tick in range(ticks):
        now = start_ns + tick * TICK_NS
        controller.observe(PoseSample(now, *state), now)
        command = controller.command(now, now)
        x, y, yaw, speed = state
        speed = max(0.0, speed + command.acceleration_mps2 * 0.05)
        yaw += command.curvature_per_m * speed * 0.05
        state[:] = [x + speed * np.cos(yaw) * 0.05, y + speed * np.sin(yaw) * 0.05, yaw, speed]
        rows.append(list(state))
    return np.array(rows)


def lenient(**changes) -> ControllerConfig:
    return ControllerConfig(trajectory_timeout_s=100.0, trajectory_max_age_s=100.0, **changes)


@pytest.mark.parametrize("curvature", [0.02, -0.02, 0.08, -0.08])
def test_tracks_an_arc(curvature):
    controller = TrajectoryController(lenient())
    controller.observe(PoseSample(0, 5.0, -3.0, 0.4, 8.0), 0)
    controller.accept(arc(0, curvature), 0)
    rows = drive(controller, [5.0, -3.0, 0.4, 8.0], 100, 0)
    centre = np.array([5.0, -3.0]) + np.array([-np.sin(0.4), np.cos(0.4)]) / curvature
    radius = np.hypot(*(rows[:, :2] - centre).T)
    assert np.abs(radius - 1 / abs(curvature)).max() < 0.35
    assert abs(rows[-1, 3] - 8.0) < 0.2


def test_returns_to_the_path_from_beside_it():
    controller = TrajectoryController(lenient())
    controller.observe(PoseSample(0, 0.0, 0.0, 0.0, 10.0), 0)
    controller.accept(straight(0), 0)
    rows = drive(controller, [0.0, 1.0, 0.0, 10.0], 100, 1)
    assert abs(rows[-1, 1]) < 0.1 and abs(rows[-1, 2]) < 0.02


def test_reaches_the_speed_asked_for():
    controller = TrajectoryController(lenient())
    controller.observe(PoseSample(0, 0.0, 0.0, 0.0, 4.0), 0)
    controller.accept(straight(0, speed=10.0), 0)
    rows = drive(controller, [0.0, 0.0, 0.0, 4.0], 120, 0)
    assert abs(rows[-1, 3] - 10.0) < 0.1
    assert np.diff(rows[:, 3]).max() / 0.05 <= 3.0 + 1e-9


def test_trajectory_is_placed_at_the_pose_of_its_t0_not_at_the_newest():
    """Turning left with a straight plan of 0.3 s ago: the goal is where that plan pointed."""
    late, fresh = TrajectoryController(lenient()), TrajectoryController(lenient())
    poses = [PoseSample(tick * TICK_NS, 10.0 * tick * 0.05, 0.0, 0.05 * tick, 10.0) for tick in range(7)]
    for controller in (late, fresh):
        for pose in poses:
            controller.observe(pose, pose.stamp_ns)
    late.accept(straight(0), poses[-1].stamp_ns)
    fresh.accept(straight(poses[-1].stamp_ns), poses[-1].stamp_ns)
    now = poses[-1].stamp_ns
    assert late.command(now, now).curvature_per_m < -0.02  # steer back to the old plan's line
    assert abs(fresh.command(now, now).curvature_per_m) < 1e-6


def test_a_plan_with_an_old_t0_is_not_started_late():
    """The speed wanted is that of the time since t0, not of the plan's beginning."""
    controller = TrajectoryController(lenient(speed_preview_s=0.1))
    speeds = np.linspace(10.0, 3.6, 64)
    plan = EgoTrajectory(0, WAYPOINT_TIMES_S, straight(0).xy, np.zeros(64), speeds)
    for tick in range(11):
        controller.observe(PoseSample(tick * TICK_NS, 0.5 * tick, 0.0, 0.0, 10.0), tick * TICK_NS)
    controller.accept(plan, 10 * TICK_NS)
    command = controller.command(10 * TICK_NS, 10 * TICK_NS)
    assert command.speed_mps == pytest.approx(np.interp(0.6, WAYPOINT_TIMES_S, speeds), abs=1e-6)


def test_stops_when_nothing_has_come_yet():
    controller = TrajectoryController()
    assert "odometry" in controller.command(0, 0).stop_reason
    controller.observe(PoseSample(0, 0.0, 0.0, 0.0, 5.0), 0)
    command = controller.command(0, 0)
    assert "no trajectory" in command.stop_reason
    assert command.speed_mps == 0.0 and command.acceleration_mps2 < 0


@pytest.mark.parametrize(
    "now_s, steady_s, word",
    [(0.4, 0.4, ""), (0.4, 0.7, "no trajectory for"), (1.2, 0.3, "old")],
)
def test_stops_when_trajectories_stop_coming_or_are_old(now_s, steady_s, word):
    controller = TrajectoryController()
    controller.observe(PoseSample(0, 0.0, 0.0, 0.0, 5.0), 0)
    controller.accept(straight(0), 0)
    now, steady = round(now_s * NANOSECONDS), round(steady_s * NANOSECONDS)
    controller.observe(PoseSample(now, 5.0 * now_s, 0.0, 0.0, 5.0), steady)
    reason = controller.command(now, steady).stop_reason
    assert word in reason if word else not reason


def test_stops_without_odometry():
    controller = TrajectoryController(lenient())
    controller.observe(PoseSample(0, 0.0, 0.0, 0.0, 5.0), 0)
    controller.accept(straight(0), 0)
    assert "no odometry for" in controller.command(0, NANOSECONDS).stop_reason


def test_keeps_steering_along_the_last_path_while_it_stops():
    controller = TrajectoryController(ControllerConfig(trajectory_timeout_s=0.2))
    controller.observe(PoseSample(0, 0.0, 0.0, 0.0, 8.0), 0)
    controller.accept(arc(0, 0.05), 0)
    rows = drive(controller, [0.0, 0.0, 0.0, 8.0], 120, 0)
    radius = np.hypot(rows[:, 0], rows[:, 1] - 20.0)
    assert rows[-1, 3] == 0.0
    assert np.abs(radius - 20.0).max() < 0.5


def test_a_teleport_or_a_new_clock_ends_the_plan():
    for jump in (PoseSample(TICK_NS, 80.0, 0.0, 0.0, 5.0), PoseSample(-5 * NANOSECONDS, 0.0, 0.0, 0.0, 5.0)):
        controller = TrajectoryController(lenient())
        controller.observe(PoseSample(0, 0.0, 0.0, 0.0, 5.0), 0)
        controller.accept(straight(0), 0)
        controller.observe(jump, 1)
        assert "no trajectory" in controller.command(jump.stamp_ns, 1).stop_reason


def test_refuses_what_cannot_be_followed():
    controller = TrajectoryController()
    with pytest.raises(InputError, match="no odometry"):
        controller.accept(straight(0), 0)
    controller.observe(PoseSample(NANOSECONDS, 0.0, 0.0, 0.0, 5.0), 0)
    with pytest.raises(InputError, match="begins"):
        controller.accept(straight(0), 0)
    with pytest.raises(InputError, match="ends"):
        controller.accept(straight(2 * NANOSECONDS), 0)
    nan = EgoTrajectory(NANOSECONDS, WAYPOINT_TIMES_S, np.full((64, 2), np.nan), np.zeros(64), np.zeros(64))
    with pytest.raises(InputError, match="not finite"):
        controller.accept(nan, 0)
    controller.accept(straight(NANOSECONDS), 0)
    with pytest.raises(InputError, match="older"):
        controller.accept(straight(NANOSECONDS - TICK_NS), 0)
    with pytest.raises(InputError, match="not finite"):
        controller.observe(PoseSample(2 * NANOSECONDS, np.nan, 0.0, 0.0, 5.0), 0)


def test_track_interpolates_across_the_turn_of_the_angle():
    track = PoseTrack()
    track.append(PoseSample(0, 0.0, 0.0, np.pi - 0.1, 1.0))
    track.append(PoseSample(100, 1.0, 0.0, -np.pi + 0.1, 1.0))
    x, _, yaw = track.at(50)
    assert x == pytest.approx(0.5) and np.cos(yaw) == pytest.approx(-1.0)


def test_late_and_repeated_odometry_is_dropped():
    track = PoseTrack()
    for stamp, x in ((0, 0.0), (100, 1.0), (50, 1.5), (100, 1.5)):
        track.append(PoseSample(stamp, x, 0.0, 0.0, 1.0))
    assert track.newest.x == 1.0 and track.at(50)[0] == pytest.approx(0.5)


def test_config_names_the_wrong_value():
    with pytest.raises(InputError, match="lookahead_time_s: -1"):
        ControllerConfig(lookahead_time_s=-1)
