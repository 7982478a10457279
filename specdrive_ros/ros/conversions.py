"""Messages to the package's arrays and back, and nothing else.

Opens no sockets and keeps no state, so that tests need only the message classes. Stamps are exact integer nanoseconds
on both sides.
"""

from collections.abc import Mapping

import numpy as np
from builtin_interfaces.msg import Duration, Time
from geometry_msgs.msg import PoseStamped, Quaternion
from nav_msgs.msg import Odometry, Path
from std_msgs.msg import Header

from specdrive_ros.controller import EgoTrajectory, PoseSample
from specdrive_ros.decoding.statistics import accepted_length, routine_share
from specdrive_ros.errors import InputError
from specdrive_ros.msg import CycleStats, Reasoning, Trajectory, TrajectoryPoint
from specdrive_ros.plan import Plan
from specdrive_ros.shapes import NANOSECONDS, WAYPOINT_STEP_S

STAGES = ("total", "wait", "decode", "vision", "prefill", "draft", "verify", "action", "check", "publish")
WAYPOINT_STEP_NS = round(WAYPOINT_STEP_S * NANOSECONDS)
NANOSECONDS_PER_MS = 1_000_000
EARLIEST_NS, LATEST_NS = -(2**31) * NANOSECONDS, 2**31 * NANOSECONDS - 1  # range of an int32 of seconds
LARGEST_COUNT = 2**16 - 1  # of a uint16 field


def nanoseconds(stamp: Time | Duration) -> int:
    return stamp.sec * NANOSECONDS + stamp.nanosec


def stamp(time_ns: int) -> Time:
    seconds, rest = _whole_seconds(time_ns)
    return Time(sec=seconds, nanosec=rest)


def duration(time_ns: int) -> Duration:
    seconds, rest = _whole_seconds(time_ns)
    return Duration(sec=seconds, nanosec=rest)


def _whole_seconds(time_ns: int) -> tuple[int, int]:
    """(seconds, nanoseconds), limited to a message's range: the age of a nonsensical stamp may exceed it."""
    return divmod(min(max(int(time_ns), EARLIEST_NS), LATEST_NS), NANOSECONDS)


def duration_from_ms(milliseconds: float) -> Duration:
    return duration(round(milliseconds * NANOSECONDS_PER_MS))


def header(time_ns: int, frame_id: str) -> Header:
    return Header(stamp=stamp(time_ns), frame_id=frame_id)


def yaw_quaternion(yaw: float) -> Quaternion:
    return Quaternion(z=float(np.sin(yaw / 2)), w=float(np.cos(yaw / 2)))


def yaw_of(quaternion: Quaternion) -> float:
    """Heading about z, rad. Raises InputError for a quaternion of norm zero or with NaN."""
    x, y, z, w = quaternion.x, quaternion.y, quaternion.z, quaternion.w
    norm = x * x + y * y + z * z + w * w
    if not norm > 1e-6:  # NaN too
        raise InputError(f"orientation ({x}, {y}, {z}, {w}): no rotation; must be a unit quaternion")
    return float(np.arctan2(2 * (w * z + x * y) / norm, 1 - 2 * (y * y + z * z) / norm))


def odometry_arrays(message: Odometry) -> tuple[int, np.ndarray, np.ndarray, float]:
    """(stamp ns, xyz [3] m, quaternion [4] x y z w, forward speed m/s) as in the message."""
    position, turn = message.pose.pose.position, message.pose.pose.orientation
    xyz = np.array([position.x, position.y, position.z])
    quaternion = np.array([turn.x, turn.y, turn.z, turn.w])
    return nanoseconds(message.header.stamp), xyz, quaternion, message.twist.twist.linear.x


def pose_sample(message: Odometry) -> PoseSample:
    """The planar pose the controller works with. Raises InputError for an unset orientation."""
    pose = message.pose.pose
    return PoseSample(
        stamp_ns=nanoseconds(message.header.stamp),
        x=pose.position.x,
        y=pose.position.y,
        yaw=yaw_of(pose.orientation),
        speed_mps=message.twist.twist.linear.x,
    )


class TrajectoryWriter:
    """Fills the same message again and again: making 64 new points costs more than everything else in a cycle.

    What it returns is valid until the next call.
    """

    def __init__(self, waypoints: int):
        self._points = [
            TrajectoryPoint(time_from_start=duration((row + 1) * WAYPOINT_STEP_NS)) for row in range(waypoints)
        ]
        self._trajectory = Trajectory(points=self._points)

    def trajectory(self, plan: Plan, frame_id: str, source: int) -> Trajectory:
        """The plan as a message; waypoint k is at exactly t0 + 0.1 (k + 1) s."""
        half = plan.yaw / 2
        columns = (*plan.xyz.T, np.sin(half), np.cos(half), plan.speed_mps, plan.acceleration, plan.curvature)
        rows = zip(*(np.asarray(column, np.float64).tolist() for column in columns), strict=True)
        for point, (x, y, z, turn_z, turn_w, speed, acceleration, curvature) in zip(self._points, rows, strict=True):
            position, turn = point.pose.position, point.pose.orientation
            position.x, position.y, position.z, turn.z, turn.w = x, y, z, turn_z, turn_w
            point.longitudinal_velocity_mps = speed
            point.acceleration_mps2, point.curvature_per_m = acceleration, curvature
        self._trajectory.header, self._trajectory.source = header(plan.t0_ns, frame_id), source
        return self._trajectory


def trajectory_message(plan: Plan, frame_id: str, source: int) -> Trajectory:
    """The plan as a new message; waypoint k is at exactly t0 + 0.1 (k + 1) s."""
    return TrajectoryWriter(len(plan.xyz)).trajectory(plan, frame_id, source)


def path_message(trajectory: Trajectory) -> Path:
    """The same waypoints for rviz; each pose is stamped with the time it is planned for."""
    t0_ns = nanoseconds(trajectory.header.stamp)
    frame_id = trajectory.header.frame_id
    poses = [
        PoseStamped(header=header(t0_ns + nanoseconds(point.time_from_start), frame_id), pose=point.pose)
        for point in trajectory.points
    ]
    return Path(header=trajectory.header, poses=poses)


def ego_trajectory(message: Trajectory) -> EgoTrajectory:
    """The trajectory in the form the controller follows. Raises InputError for an unset orientation."""
    poses = [point.pose for point in message.points]
    return EgoTrajectory(
        t0_ns=nanoseconds(message.header.stamp),
        times_s=np.array([nanoseconds(point.time_from_start) / NANOSECONDS for point in message.points]),
        xy=np.array([(pose.position.x, pose.position.y) for pose in poses]).reshape(-1, 2),
        yaw=np.array([yaw_of(pose.orientation) for pose in poses]),
        speed_mps=np.array([point.longitudinal_velocity_mps for point in message.points]),
    )


def reasoning_message(plan: Plan, frame_id: str) -> Reasoning:
    """The plan's reasoning as a message; accepted length and routine share as in `decoding/statistics.py`."""
    tokens = len(plan.token_ids)
    return Reasoning(
        header=header(plan.t0_ns, frame_id),
        text=plan.reasoning,
        tokens=min(tokens, LARGEST_COUNT),
        target_passes=min(plan.target_passes, LARGEST_COUNT),
        accepted_length=accepted_length(tokens, plan.target_passes),
        routine_share=routine_share(tokens, plan.target_passes),
        truncated=plan.truncated,
    )


def plan_of(trajectory: Trajectory, reasoning: Reasoning | None, stage_ms: Mapping[str, float]) -> Plan:
    """A plan rebuilt from what was published. Only the number of token ids is known, so all of them are 0."""
    points = trajectory.points
    positions = [point.pose.position for point in points]
    speed = np.array([point.longitudinal_velocity_mps for point in points])
    reasoning = reasoning or Reasoning()
    return Plan(
        t0_ns=nanoseconds(trajectory.header.stamp),
        reasoning=reasoning.text,
        token_ids=(0,) * reasoning.tokens,
        xyz=np.array([(position.x, position.y, position.z) for position in positions]).reshape(-1, 3),
        yaw=np.array([yaw_of(point.pose.orientation) for point in points]),
        speed_mps=speed,
        acceleration=np.array([point.acceleration_mps2 for point in points]),
        curvature=np.array([point.curvature_per_m for point in points]),
        v0_mps=float(speed[0] - points[0].acceleration_mps2 * WAYPOINT_STEP_S) if points else 0.0,
        truncated=reasoning.truncated,
        target_passes=reasoning.target_passes,
        stage_ms=dict(stage_ms),
    )


def set_stages(message: CycleStats, stage_ms: Mapping[str, float]) -> None:
    """Fills in the durations of the stages that were timed; the others stay zero."""
    for stage in STAGES:
        if stage in stage_ms:
            setattr(message, stage, duration_from_ms(stage_ms[stage]))


def stages_ms(message: CycleStats) -> dict[str, float]:
    return {stage: nanoseconds(getattr(message, stage)) / NANOSECONDS_PER_MS for stage in STAGES}
