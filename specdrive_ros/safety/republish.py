"""An earlier plan re-expressed at a later instant: same path over ground, same times, another origin.

The history says where the ego was when the plan was made; without odometry, the ego is assumed to be where the plan has
it by now. After the plan's last waypoint the car brakes comfortably along the last curvature.
"""

from dataclasses import replace

import numpy as np

from specdrive_ros.geometry import in_frame, out_of_frame, rotation_about_z, yaw_from_matrix
from specdrive_ros.observation.observation import EgoHistory
from specdrive_ros.plan import Plan
from specdrive_ros.safety.fallback import accelerations, braking
from specdrive_ros.shapes import HISTORY_TIMES_S, NANOSECONDS, WAYPOINT_TIMES_S

LONGEST_AGE_S = float(-HISTORY_TIMES_S[0])  # the history reaches no further back


def re_expressed(plan: Plan, t0_ns: int, history: EgoHistory) -> Plan:
    """The plan in the ego frame at `t0_ns`, at which `history` ends.

    Raises ValueError for a plan that is newer than `t0_ns`, or older than the history reaches.
    """
    age_s = (t0_ns - plan.t0_ns) / NANOSECONDS
    if not 0 <= age_s <= LONGEST_AGE_S:
        raise ValueError(f"a plan of {age_s:.2f} s ago cannot be re-expressed; 0 to {LONGEST_AGE_S} s can")
    origin = np.array([np.interp(-age_s, HISTORY_TIMES_S, column) for column in history.xyz.T])
    headings = np.unwrap(yaw_from_matrix(history.rotation))
    return _moved(plan, t0_ns, age_s, origin, float(np.interp(-age_s, HISTORY_TIMES_S, headings)))


def followed(plan: Plan, t0_ns: int) -> Plan:
    """The plan in the frame of a car that has followed it exactly up to `t0_ns`."""
    age_s = max(0.0, (t0_ns - plan.t0_ns) / NANOSECONDS)
    position, heading = pose_on(plan, age_s)
    origin = in_frame(np.zeros(3), position, rotation_about_z(heading))
    return _moved(plan, t0_ns, age_s, origin, -heading)


def pose_on(plan: Plan, age_s: float) -> tuple[np.ndarray, float]:
    """(xyz [3], yaw) of a car on the plan `age_s` after its t0, in the plan's frame."""
    times, xyz, yaw = _with_origin(plan)[:3]
    return np.array([np.interp(age_s, times, column) for column in xyz.T]), float(np.interp(age_s, times, yaw))


def motion_on(plan: Plan, age_s: float) -> tuple[float, float]:
    """(speed m/s, curvature 1/m) of a car on the plan `age_s` after its t0."""
    times, _, _, speed, curvature = _with_origin(plan)
    return float(np.interp(age_s, times, speed)), float(np.interp(age_s, times, curvature))


def _with_origin(plan: Plan) -> tuple[np.ndarray, ...]:
    """times [65], xyz [65, 3], yaw [65], speed [65], curvature [65] with t0 itself as row 0."""
    return (
        np.concatenate([[0.0], WAYPOINT_TIMES_S]),
        np.vstack([np.zeros((1, 3)), plan.xyz]),
        np.unwrap(np.concatenate([[0.0], plan.yaw])),
        np.concatenate([[plan.v0_mps], plan.speed_mps]),
        np.concatenate([plan.curvature[:1], plan.curvature]),
    )


def _moved(plan: Plan, t0_ns: int, age_s: float, origin: np.ndarray, heading: float) -> Plan:
    """origin, heading: pose of the plan's own frame in the new one."""
    times, xyz, yaw, speed, curvature = _with_origin(plan)
    wanted = WAYPOINT_TIMES_S + age_s
    inside = wanted <= times[-1] + 1e-9
    points = np.stack([np.interp(wanted, times, column) for column in xyz.T], axis=1)
    turned = np.interp(wanted, times, yaw)
    speeds, curvatures = np.interp(wanted, times, speed), np.interp(wanted, times, curvature)
    if not inside.all():
        tail = braking(wanted[~inside] - times[-1], float(speed[-1]), float(curvature[-1]))
        points[~inside] = out_of_frame(tail.xyz, xyz[-1], rotation_about_z(yaw[-1]))
        turned[~inside] = yaw[-1] + tail.yaw
        speeds[~inside], curvatures[~inside] = tail.speed_mps, curvature[-1]
    v0_mps = float(np.interp(age_s, times, speed))
    return replace(
        plan,
        t0_ns=int(t0_ns),
        xyz=out_of_frame(points, origin, rotation_about_z(heading)),
        yaw=turned + heading,
        speed_mps=speeds,
        acceleration=accelerations(speeds, v0_mps),
        curvature=curvatures,
        v0_mps=v0_mps,
        violations=(),
        warnings=(),
        stage_ms={},
    )
