"""What is driven when there is no plan: a comfortable stop along the present curvature.

Does not know why it is needed, and sees no obstacles.
"""

from dataclasses import dataclass

import numpy as np

from specdrive_ros.geometry import arc_end, yaw_from_matrix
from specdrive_ros.observation.observation import EgoHistory, Observation
from specdrive_ros.plan import Plan
from specdrive_ros.shapes import WAYPOINT_TIMES_S

DECELERATION_MPS2 = 2.0
CURVATURE_LIMIT_PER_M = 0.2
LATERAL_LIMIT_MPS2 = 9.0  # a curve that needs more must be a false reading: no tyre holds it
CURVATURE_SPAN = 5  # history steps the present curvature is taken from
STANDSTILL_M = 0.25  # with less travelled in that span, the curvature is unknown and taken as zero


@dataclass(frozen=True)
class Braking:
    """Poses and speeds of a braking car: xyz [n, 3] m, yaw [n] rad, speed_mps [n]."""

    xyz: np.ndarray
    yaw: np.ndarray
    speed_mps: np.ndarray


def comfortable_stop(observation: Observation) -> Plan:
    """Brakes to a standstill and stays there, without reasoning; also for a car that rolls backwards."""
    history = observation.history
    return stop_from(observation.t0_ns, history.speed_mps, present_curvature(history))


def stop_from(t0_ns: int, v0_mps: float, curvature: float) -> Plan:
    """The stop of a car with this speed and curvature (1/m, left positive)."""
    tightest = LATERAL_LIMIT_MPS2 / max(v0_mps**2, 1e-6)
    curvature = float(np.clip(curvature, -tightest, tightest))
    path = braking(WAYPOINT_TIMES_S, v0_mps, curvature)
    return Plan(
        t0_ns=t0_ns,
        reasoning="",
        token_ids=(),
        xyz=path.xyz,
        yaw=path.yaw,
        speed_mps=path.speed_mps,
        acceleration=accelerations(path.speed_mps, v0_mps),
        curvature=np.full_like(path.yaw, curvature),
        v0_mps=v0_mps,
    )


def braking(times_s: np.ndarray, v0_mps: float, curvature: float) -> Braking:
    """Where a car that begins to brake comfortably at time 0 is at each of `times_s` [n]."""
    braking_s = np.minimum(times_s, abs(v0_mps) / DECELERATION_MPS2)
    direction = np.sign(v0_mps)
    distance_m = v0_mps * braking_s - direction * DECELERATION_MPS2 * braking_s**2 / 2
    yaw = curvature * distance_m
    return Braking(arc_end(distance_m, yaw), yaw, v0_mps - direction * DECELERATION_MPS2 * braking_s)


def accelerations(speed_mps: np.ndarray, v0_mps: float) -> np.ndarray:
    """[64] m/s² between t0 and the first waypoint, then from waypoint to waypoint."""
    return np.diff(speed_mps, prepend=v0_mps) / np.diff(WAYPOINT_TIMES_S, prepend=0.0)


def present_curvature(history: EgoHistory) -> float:
    """Turned angle over travelled distance in the last half second, 1/m, left positive."""
    recent = slice(-CURVATURE_SPAN - 1, None)
    travelled_m = float(np.linalg.norm(np.diff(history.xyz[recent], axis=0), axis=1).sum())
    if travelled_m < STANDSTILL_M:
        return 0.0
    turned = -yaw_from_matrix(history.rotation[recent][0])  # the ego's own yaw at t0 is zero
    direction = 1.0 if history.speed_mps >= 0 else -1.0
    return float(np.clip(direction * turned / travelled_m, -CURVATURE_LIMIT_PER_M, CURVATURE_LIMIT_PER_M))
