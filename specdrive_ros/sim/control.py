"""Control laws of the expert: accelerations (m/s²) that keep a speed, follow, stop, or brake at once.

Speeds in m/s, gaps in m from bumper to bumper. Knows no facts and remembers nothing.
"""

import math

from specdrive_ros.sim.ego import EgoState, clip
from specdrive_ros.sim.traffic import STANDING_MPS, idm_acceleration

A_MAX_MPS2 = 1.7
BRAKE_LIMIT_MPS2 = 3.5
HARD_BRAKE_MPS2 = 5.0
EMERGENCY_BRAKE_MPS2 = 7.0
COMFORT_JERK_MPS3 = 4.0
CURVE_LATERAL_MPS2 = 1.9
CURVE_BRAKE_MPS2 = 1.3
STOP_GAP_M = 1.8
EMERGENCY_GAP_M = 1.5


def keep_speed(speed: float, wanted: float) -> float:
    """Towards the wanted speed (m/s), unlimited by anything ahead."""
    if speed > wanted:
        return max(-1.2, 0.8 * (wanted - speed))
    return min(A_MAX_MPS2, 0.8 * (wanted - speed))


def approach(speed: float, allowed: float) -> float:
    """Towards a speed (m/s) that must not be exceeded."""
    return clip(1.5 * (allowed - speed), -BRAKE_LIMIT_MPS2, A_MAX_MPS2)


def follow(speed: float, wanted: float, gap: float, closing: float) -> float:
    """Follows a vehicle `gap` metres ahead that we approach at `closing` m/s (IDM)."""
    if speed < STANDING_MPS and gap < 3.0:
        return -0.8
    return idm_acceleration(
        speed, wanted, gap, closing, a_max=A_MAX_MPS2, comfort=2.0, headway_s=1.4, gap_min=2.5
    )


def stop_at(speed: float, wanted: float, gap: float) -> float:
    """Stops `STOP_GAP_M` before something standing `gap` metres ahead (IDM)."""
    if gap < STOP_GAP_M + 0.6 and speed < 1.0:
        return -0.8
    return idm_acceleration(
        speed, wanted, gap, speed, a_max=A_MAX_MPS2, comfort=2.2, headway_s=0.5, gap_min=STOP_GAP_M
    )


def braking_needed(speed: float, gap: float) -> float:
    """The deceleration (m/s²) that stops `EMERGENCY_GAP_M` before something."""
    return speed * speed / (2 * max(gap - EMERGENCY_GAP_M, 0.3))


def brake_at_once(speed: float, wanted: float, gap: float) -> float:
    """Stops before something that has appeared, as hard as necessary."""
    needed = braking_needed(speed, gap)
    return stop_at(speed, wanted, gap) if needed < 2.5 else -min(1.15 * needed + 0.5, EMERGENCY_BRAKE_MPS2)


def speed_before(target: float, distance_m: float) -> float:
    """The speed from which gentle braking reaches `target` after a distance."""
    return math.sqrt(target**2 + 2 * CURVE_BRAKE_MPS2 * max(distance_m, 0.0))


def comfortable(acceleration: float, ego: EgoState) -> float:
    """Limits jerk; brakes harder than comfortable only on demand; at standstill, 0 instead of braking."""
    if ego.speed == 0.0 and acceleration <= 0:
        return 0.0
    step = 0.05 * COMFORT_JERK_MPS3 * (2.5 if acceleration < -BRAKE_LIMIT_MPS2 else 1.0)
    return clip(
        clip(acceleration, -EMERGENCY_BRAKE_MPS2, A_MAX_MPS2),
        ego.acceleration - step,
        ego.acceleration + step,
    )
