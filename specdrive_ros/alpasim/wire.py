"""Converts the contract's messages to arrays and back. Checks their contents; knows no sessions and no gRPC.

Stamps are microseconds on the wire and nanoseconds here; quaternions are (x, y, z, w).
"""

import pickle
from collections.abc import Mapping, Sequence

import numpy as np
from carla_driver_interface.protocol import (
    CarlaDriveDebugInfo,
    DriveSessionRequest,
    Pose,
    PoseAtTime,
    Quat,
    RolloutCameraImage,
    RolloutEgoTrajectory,
    Route,
    Trajectory,
    Vec3,
    pack_debug_info,
)

from specdrive_ros.alpasim.session import Answer
from specdrive_ros.errors import InputError

NANOSECONDS_PER_US = 1000
LATEST_US = (2**63 - 1) // NANOSECONDS_PER_US // 2  # far enough below the limit of an int64 to be added to
ALPASIM, CARLA = "alpasim", "carla"
CLIENTS = (ALPASIM, CARLA)  # they read different things from the answer's free bytes


def stamp_ns(microseconds: int, name: str) -> int:
    if not 0 <= microseconds <= LATEST_US:
        raise InputError(f"{name}: {microseconds} us; must be from 0 to {LATEST_US}")
    return int(microseconds) * NANOSECONDS_PER_US


def declared_cameras(request: DriveSessionRequest) -> list[str]:
    """The names of a session's cameras. Raises InputError if one is empty or repeated."""
    names = [camera.logical_id for camera in request.rollout_spec.vehicle.available_cameras]
    if len(set(names)) < len(names) or not all(names):
        raise InputError(f"available_cameras: {', '.join(map(repr, names))}; must be different names")
    return names


def picture_stamp(image: RolloutCameraImage.CameraImage) -> int:
    """The end of the exposure, nanoseconds. Raises InputError if it is before the start."""
    if image.frame_end_us < image.frame_start_us:
        raise InputError(f"frame_end_us: {image.frame_end_us} is before frame_start_us {image.frame_start_us}")
    return stamp_ns(image.frame_end_us, "frame_end_us")


def poses(message: RolloutEgoTrajectory) -> tuple[list[int], np.ndarray, np.ndarray, list[float | None]]:
    """stamps [N] ns, xyz [N, 3] m, quaternions [N, 4], forward speeds [N] m/s (all None without dynamic states).
    Raises InputError if the lengths differ or the stamps do not ascend."""
    samples, states = message.trajectory.poses, message.dynamic_states
    if states and len(states) != len(samples):
        raise InputError(f"dynamic_states: {len(states)} for {len(samples)} poses; must be one each, or none")
    stamps = [stamp_ns(sample.timestamp_us, "timestamp_us") for sample in samples]
    if any(later <= earlier for earlier, later in zip(stamps, stamps[1:])):
        raise InputError("trajectory.poses: their timestamps must rise")
    xyz = np.array([[p.pose.vec.x, p.pose.vec.y, p.pose.vec.z] for p in samples], np.float64).reshape(-1, 3)
    turns = [[p.pose.quat.x, p.pose.quat.y, p.pose.quat.z, p.pose.quat.w] for p in samples]
    speeds = [float(state.linear_velocity.x) for state in states] if states else [None] * len(samples)
    return stamps, xyz, np.array(turns, np.float64).reshape(-1, 4), speeds


def route_points(route: Route) -> np.ndarray:
    """[M, 3] m in the rig frame."""
    return np.array([[point.x, point.y, point.z] for point in route.waypoints], np.float64).reshape(-1, 3)


def trajectory(answer: Answer) -> Trajectory:
    message = Trajectory()
    for stamp, xyz, quaternion in zip(answer.stamps_ns, answer.xyz, answer.quaternions, strict=True):
        x, y, z, w = map(float, quaternion)
        pose = Pose(vec=Vec3(x=float(xyz[0]), y=float(xyz[1]), z=float(xyz[2])), quat=Quat(x=x, y=y, z=z, w=w))
        message.poses.append(PoseAtTime(pose=pose, timestamp_us=int(stamp) // NANOSECONDS_PER_US))
    return message


def debug_bytes(client: str, name: str, seconds: float, answer: Answer, cameras: Sequence[str]) -> bytes:
    """What people look at afterwards: a pickled dict of plain values for AlpaSim, a message for CARLA's runner."""
    scalars = {**answer.scalars, f"source_{answer.source}": 1.0}
    if client == CARLA:
        return pack_debug_info(CarlaDriveDebugInfo(policy_name=name, inference_seconds=seconds, scalars=scalars))
    return pickle.dumps(
        {
            "policy_name": name,
            "inference_seconds": float(seconds),
            "scalars": _plain(scalars),
            "reasoning_text": answer.plan.reasoning,
            "source": answer.source,
            "note": answer.note,
            "cameras": list(cameras),
        }
    )


def _plain(scalars: Mapping[str, float]) -> dict[str, float]:
    """Python's own numbers, so that unpickling needs no NumPy."""
    return {str(key): float(value) for key, value in scalars.items()}
