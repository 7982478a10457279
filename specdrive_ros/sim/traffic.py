"""Other road users: vehicles under the intelligent driver model (IDM), signals, standing things.

Vehicles are on a reference line (arc length and offset) and move along it in either direction. Knows nothing about the
ego's controls, images or labels.

IDM: Treiber, Hennecke, Helbing, "Congested traffic states in empirical observations and microscopic simulations",
     2000.
"""

import math
from dataclasses import dataclass

from specdrive_ros.sim.road import Intersection, ReferenceLine

COLOURS = ("white", "black", "red", "blue", "yellow")
SIGNAL_COLOURS = ("red", "yellow", "green")
BRAKE_LIGHT_ON_MPS2 = -0.6
BRAKE_LIGHT_OFF_MPS2 = -0.25
BRAKE_LIGHT_HOLD_S = 0.6
STANDING_MPS = 0.3
INDICATES_FIRST_S = 0.9
LEAST_SHIFT_GAP_M = 4.0
SHIFT_HEADWAY_S = 2.5  # more room if the ego approaches fast
BLINK_HZ = 1.6


def idm_acceleration(
    speed: float,
    wanted: float,
    gap: float,
    closing: float,
    *,
    a_max: float = 1.6,
    comfort: float = 2.2,
    headway_s: float = 1.3,
    gap_min: float = 2.0,
) -> float:
    """Acceleration (m/s²) behind something `gap` m ahead, approached at `closing` m/s; gap inf is a free road."""
    free = 1.0 - (speed / max(wanted, 0.1)) ** 4
    if math.isinf(gap):
        return a_max * max(free, -1.5)
    dynamic = speed * headway_s + speed * closing / (2.0 * math.sqrt(a_max * comfort))
    desired = gap_min + max(0.0, dynamic)
    return a_max * (max(free, -1.5) - (desired / max(gap, 0.1)) ** 2)


@dataclass(frozen=True)
class BodySize:
    """The box around a vehicle, thing or person, metres."""

    length_m: float
    width_m: float
    height_m: float


SIZES = {
    "car": BodySize(4.4, 1.85, 1.5),
    "van": BodySize(5.3, 2.0, 2.3),
    "truck": BodySize(7.5, 2.4, 3.1),
    "cones": BodySize(1.6, 1.0, 0.9),
    "box": BodySize(1.4, 1.3, 1.2),
    "pedestrian": BodySize(0.5, 0.6, 1.75),
    "child": BodySize(0.4, 0.5, 1.25),
    "cyclist": BodySize(1.7, 0.6, 1.75),
    "dog": BodySize(0.9, 0.35, 0.7),
    "ball": BodySize(0.5, 0.5, 0.5),
}


@dataclass(frozen=True)
class LaneShift:
    """A vehicle's plan to move over to offset `to_d` ahead of the ego, or well behind it.

    It begins once the vehicle is past `begin_s` and less than `begin_gap_m` ahead of the ego's front. Until then, the
    vehicle does not drive beyond `end_s`, where its lane ends.
    """

    from_d: float
    to_d: float
    duration_s: float
    begin_gap_m: float = math.inf
    begin_s: float = -math.inf
    end_s: float = math.inf

    def may_begin(self, s: float, ego_gap_m: float, closing_mps: float) -> bool:
        least = LEAST_SHIFT_GAP_M + SHIFT_HEADWAY_S * max(closing_mps, 0.0)
        ahead = least <= ego_gap_m <= max(self.begin_gap_m, least + 2.0)
        return s >= self.begin_s and (ahead or ego_gap_m < -20.0)

    def offset(self, since_s: float) -> float:
        """The offset this many seconds after the indicator came on."""
        done = min(max((since_s - INDICATES_FIRST_S) / self.duration_s, 0.0), 1.0)
        if done == 1.0:
            return self.to_d
        return self.from_d + (self.to_d - self.from_d) * 0.5 * (1 - math.cos(math.pi * done))


@dataclass
class Vehicle:
    """A vehicle on a line. direction: +1 along the line, -1 against it. `phases`: (time s, wanted speed)."""

    id: int
    kind: str
    colour: str
    line: ReferenceLine
    s: float
    d: float
    speed: float
    direction: int = 1
    phases: tuple[tuple[float, float], ...] = ()
    deceleration_mps2: float = 2.0
    parked: bool = False
    acceleration: float = 0.0
    braking: bool = False
    braking_since_s: float = -10.0
    shift: LaneShift | None = None
    shift_since_s: float = math.inf
    hazard_lights: bool = False

    @property
    def moving_over(self) -> bool:
        """Whether it is indicating or moving to another lane."""
        return self.shift is not None and self.shift_since_s < math.inf and self.d != self.shift.to_d

    @property
    def indicates(self) -> tuple[bool, bool]:
        """Which indicators are on, left and right of the vehicle."""
        if self.hazard_lights:
            return True, True
        to_left = self.moving_over and (self.shift.to_d > self.shift.from_d) == (self.direction > 0)
        return to_left, self.moving_over and not to_left

    @property
    def size(self) -> BodySize:
        return SIZES[self.kind]

    def pose(self) -> tuple[float, float, float]:
        """x, y (m), yaw (rad) of the body's centre in the map."""
        x, y, heading = self.line.pose(self.s, self.d)
        return x, y, heading if self.direction > 0 else heading + math.pi

    def wanted_speed(self, time_s: float) -> float:
        wanted = self.phases[0][1]
        for start, speed in self.phases:
            if time_s >= start:
                wanted = speed
        return wanted

    def move_over(self, ego_gap_m: float, ego_speed_mps: float, time_s: float) -> None:
        """Follows the planned change of lane. ego_gap_m: from the ego's front to the vehicle's rear."""
        if self.shift is None:
            return
        if self.shift_since_s == math.inf and self._may_shift(ego_gap_m, ego_speed_mps):
            self.shift_since_s = time_s
        if self.shift_since_s < math.inf:
            self.d = self.shift.offset(time_s - self.shift_since_s)

    def _may_shift(self, ego_gap_m: float, ego_speed_mps: float) -> bool:
        return self.shift.may_begin(self.s, ego_gap_m, ego_speed_mps - self.speed)

    def advance(self, gap: float, closing: float, time_s: float, dt: float) -> None:
        """One IDM step; for a phase slower than the current speed it brakes at `deceleration_mps2`."""
        if self.parked:
            return
        wanted = self.wanted_speed(time_s)
        acceleration = idm_acceleration(self.speed, max(wanted, self.speed, 0.1), gap, closing)
        acceleration = min(acceleration, _towards(self.speed, wanted, self.deceleration_mps2))
        acceleration = max(acceleration, -7.0)
        self.acceleration += min(max(acceleration - self.acceleration, -12.0 * dt), 8.0 * dt)
        before = self.speed
        self.speed = max(0.0, self.speed + self.acceleration * dt)
        if self.speed == 0.0:
            self.acceleration = max(self.acceleration, 0.0)
        self.s += self.direction * 0.5 * (before + self.speed) * dt
        self._set_brake_light(time_s, wanted)

    def _set_brake_light(self, time_s: float, wanted: float) -> None:
        standing = self.speed < STANDING_MPS and self.acceleration < 0.3
        if self.acceleration < BRAKE_LIGHT_ON_MPS2 or standing:
            if not self.braking:
                self.braking_since_s = time_s
            self.braking = True
        elif self.acceleration > BRAKE_LIGHT_OFF_MPS2 and time_s - self.braking_since_s >= BRAKE_LIGHT_HOLD_S:
            self.braking = False


def _towards(speed: float, wanted: float, deceleration: float) -> float:
    if speed > wanted:
        return -min(deceleration, 2.0 * (speed - wanted) + 0.3)
    return 1.8 * (1.0 - (speed / max(wanted, 0.1)) ** 4)


@dataclass(frozen=True)
class Obstacle:
    """Something that stands in the ego's lane or beside the road: parked vehicle, cones, box, person.

    A vehicle standing where others drive has its hazard lights on, as the law demands; at mini's image size, moving
    and standing vehicles would otherwise look alike until they are near.
    """

    id: int
    kind: str
    colour: str
    s: float
    d: float
    x: float
    y: float
    yaw: float
    hazard_lights: bool = False

    @property
    def indicates(self) -> tuple[bool, bool]:
        """Which indicators are on, left and right of the vehicle."""
        return self.hazard_lights, self.hazard_lights

    @property
    def size(self) -> BodySize:
        return SIZES[self.kind]

    def pose(self) -> tuple[float, float, float]:
        """x, y (m), yaw (rad) of the body's centre in the map."""
        return self.x, self.y, self.yaw


@dataclass(frozen=True)
class Signal:
    """Cycles through green, yellow, red; `offset_s` is the position of time zero in the cycle.

    arrow: its lamps are arrows pointing straight on, for the ego's lane.
    """

    id: int
    green_s: float
    yellow_s: float
    red_s: float
    offset_s: float
    arrow: bool = False

    @property
    def cycle_s(self) -> float:
        return self.green_s + self.yellow_s + self.red_s

    def colour(self, time_s: float) -> str:
        phase = (time_s + self.offset_s) % self.cycle_s
        if phase < self.green_s:
            return "green"
        return "yellow" if phase < self.green_s + self.yellow_s else "red"

    def red_time_left_s(self, time_s: float) -> float:
        """Seconds of red left; 0 while the signal is not red."""
        phase = (time_s + self.offset_s) % self.cycle_s
        return self.cycle_s - phase if phase >= self.green_s + self.yellow_s else 0.0

    def cross_open(self, time_s: float) -> bool:
        """Whether cross traffic may enter: the signal has been red for us for a moment and stays red for a while."""
        left = self.red_time_left_s(time_s)
        return 3.0 < left < self.red_s - 1.0


@dataclass(frozen=True)
class StopSign:
    """Beside the stop line of an all-way stop: every vehicle halts, then goes in order of arrival."""

    id: int
    crossing: Intersection
