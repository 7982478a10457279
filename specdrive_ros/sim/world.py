"""One driving scene that moves in time: ego, traffic, signal, the expert's view of it, how it ends.

Deterministic: the same scene and the same commands give the same states. Knows nothing about images (`camera.render`
reads it), ROS, or who drives.
"""

import math
from dataclasses import dataclass, field

import numpy as np

from specdrive_ros.errors import InputError
from specdrive_ros.sim.ego import (
    CENTRE_FROM_AXLE_M,
    FRONT_FROM_AXLE_M,
    LENGTH_M,
    WIDTH_M,
    Command,
    EgoState,
    move,
)
from specdrive_ros.sim.expert import Expert, Intent, PassPath, plan_pass
from specdrive_ros.sim.labels import Label, Labeller
from specdrive_ros.sim.pinhole import CAMERAS, PinholeCamera
from specdrive_ros.sim.road import Intersection, Road
from specdrive_ros.sim.scenery import Scenery
from specdrive_ros.sim.traffic import STANDING_MPS, Obstacle, Signal, StopSign, Vehicle
from specdrive_ros.sim.walkers import Walker

STEP_RANGE_S = (0.001, 0.2)
STOP_SIGN_ZONE_M = 5.0
LEAST_STAND_S = 0.5
ARRIVING_MPS = 2.0
WALKER_BERTH_M = 2.5  # distance that other vehicles keep from people crossing the road


@dataclass(frozen=True)
class Outcome:
    """How a scenario ended. name: success, collision, red_light, stop_sign, off_road or timeout."""

    name: str
    why: str


@dataclass
class Scene:
    """Everything a world starts from. Offsets `d` are relative to the road's reference line, left positive."""

    family: str
    seed: int
    road: Road
    lane_d: float
    wanted_mps: float
    start_s: float
    start_d: float
    start_heading_error: float
    start_speed_mps: float
    goal_s: float
    time_limit_s: float
    scenery: Scenery
    vehicles: list[Vehicle] = field(default_factory=list)
    obstacles: list[Obstacle] = field(default_factory=list)
    signal: Signal | None = None
    signal_intersection: Intersection | None = None
    walkers: list[Walker] = field(default_factory=list)
    stop_sign: StopSign | None = None
    free_lanes: bool = False  # the driver may choose among the lanes of its direction


class World:
    """A running scene. `step` moves it; everything else only reads."""

    def __init__(self, scene: Scene):
        self.scene = scene
        self.road = scene.road
        self.wanted_mps = scene.wanted_mps
        self.vehicles = scene.vehicles
        self.obstacles = scene.obstacles
        self.walkers = scene.walkers
        self.stop_sign = scene.stop_sign
        self.signal = scene.signal
        self.signal_intersection = scene.signal_intersection
        self.cameras: dict[str, PinholeCamera] = CAMERAS
        self.time_s = 0.0
        self.steps = 0
        x, y, heading = self.road.line.pose(scene.start_s, scene.start_d)
        self.ego = EgoState(
            x,
            y,
            heading + scene.start_heading_error,
            scene.start_speed_mps,
            0.0,
            self.road.line.curvature_at(scene.start_s),
        )
        self.ego_s, self.ego_d = scene.start_s, scene.start_d
        self.pass_paths: tuple[PassPath, ...] = _pass_paths(scene)
        self.stood_at_sign_s = 0.0
        self._expert = Expert(scene.lane_d)
        self._labeller = Labeller(scene.seed)
        self._outcome: Outcome | None = None
        self._look()

    @property
    def lane_d(self) -> float:
        """Offset of the lane that the ego is in or keeps to."""
        return self._expert.lane_d

    @property
    def intent(self) -> Intent:
        """What the expert would do now, and why."""
        return self._intent

    def step(self, dt: float, command: Command) -> None:
        """Moves the world by dt seconds (0.05 in driving). The first outcome is final. Raises InputError for other
        steps."""
        if not STEP_RANGE_S[0] <= dt <= STEP_RANGE_S[1]:
            raise InputError(
                f"world step of {dt} s: it must lie between {STEP_RANGE_S[0]} and {STEP_RANGE_S[1]} s"
            )
        front_before = self.ego_s + FRONT_FROM_AXLE_M
        self._move_vehicles(dt)
        for walker in self.walkers:
            walker.advance(walker.s - front_before, self.ego.speed, dt)
        self.ego = move(self.ego, command, dt)
        self.ego_s, self.ego_d = self.road.line.locate(self.ego.x, self.ego.y, self.ego_s)
        self.time_s += dt
        self.steps += 1
        self._count_standing(dt)
        if self._outcome is None:
            self._outcome = self._judge(front_before)
        self._look()

    def expert_command(self) -> Command:
        """The expert driver's command now."""
        return self._intent.command

    def label(self) -> Label:
        """What the expert would say now, and what the front camera shows."""
        if self._label is None:
            self._label = self._labeller.describe(self, self._intent)
        return self._label

    def outcome(self) -> Outcome | None:
        """How the scenario ended; None while it runs."""
        return self._outcome

    def _look(self) -> None:
        self._intent = self._expert.consider(self)
        self._labeller.consider(self, self._intent)
        self._label: Label | None = None

    def _move_vehicles(self, dt: float) -> None:
        moving = [v for v in self.vehicles if not v.parked]
        gaps = [self._gap_ahead(v) for v in moving]
        for vehicle, (gap, closing) in zip(moving, gaps):
            ego_gap = vehicle.s - 0.5 * vehicle.size.length_m - self.ego_s - FRONT_FROM_AXLE_M
            vehicle.move_over(ego_gap, self.ego.speed, self.time_s)
            vehicle.advance(gap, closing, self.time_s, dt)

    def _count_standing(self, dt: float) -> None:
        """Counts how long the ego has stood before the line of the stop sign."""
        if self.stop_sign is None:
            return
        gap = self.stop_sign.crossing.s_stop_m - self.ego_s - FRONT_FROM_AXLE_M
        if 0 <= gap < STOP_SIGN_ZONE_M and self.ego.speed < STANDING_MPS:
            self.stood_at_sign_s += dt

    def _gap_ahead(self, vehicle: Vehicle) -> tuple[float, float]:
        """Gap (m) and closing speed (m/s) to what a vehicle must not run into; (inf, 0) if free."""
        own_front = vehicle.direction * vehicle.s + 0.5 * vehicle.size.length_m
        best, closing = math.inf, 0.0
        for s_back, d, width, speed in self._bodies_for(vehicle):
            if abs(d - vehicle.d) > 0.5 * (width + vehicle.size.width_m):
                continue
            gap = s_back - own_front
            if -1.0 < gap < best:
                best, closing = gap, vehicle.speed - speed
        stop = self._stop_ahead(vehicle, own_front)
        if stop < best:
            best, closing = stop, vehicle.speed
        return best, closing

    def _bodies_for(self, vehicle: Vehicle):
        """(rear end, offset, width, speed) of others on the line, in the vehicle's direction of travel."""
        for other in self.vehicles:
            if other is vehicle or other.line is not vehicle.line:
                continue
            speed = other.speed * other.direction * vehicle.direction
            yield vehicle.direction * other.s - 0.5 * other.size.length_m, other.d, other.size.width_m, speed
        for walker in self.walkers:
            if walker.moving and not walker.arrived and vehicle.line is walker.line:
                yield vehicle.direction * walker.s - WALKER_BERTH_M, walker.d, 2 * WALKER_BERTH_M, 0.0
        if vehicle.line is self.road.line:
            centre = self.ego_s + CENTRE_FROM_AXLE_M
            yield (
                vehicle.direction * centre - 0.5 * LENGTH_M,
                self.ego_d,
                WIDTH_M,
                self.ego.speed * vehicle.direction,
            )

    def _stop_ahead(self, vehicle: Vehicle, own_front: float) -> float:
        """Distance to where the vehicle must stop: a closed stop line or the end of its lane; inf if there is none."""
        if vehicle.shift is not None and vehicle.shift_since_s == math.inf:
            gap = vehicle.shift.end_s - own_front
            return gap + 1.0 if vehicle.speed**2 / (2 * max(gap, 0.1)) > 1.0 else math.inf
        if self.signal is not None:
            line, closed = self._signal_for(vehicle)
        elif self.stop_sign is not None and vehicle.line is self.stop_sign.crossing.cross:
            line, closed = self._cross_line(vehicle, self.stop_sign.crossing), self._ego_has_the_way()
        else:
            return math.inf
        gap = line - own_front
        can_stop = vehicle.speed**2 / (2 * max(gap, 0.1)) < 3.0
        return gap + 1.0 if closed and gap > 0 and can_stop else math.inf

    def _signal_for(self, vehicle: Vehicle) -> tuple[float, bool]:
        """The vehicle's stop line at the signal and whether it is closed."""
        crossing = self.signal_intersection
        if vehicle.line is self.road.line:
            line = crossing.s_stop_m if vehicle.direction > 0 else -crossing.s_oncoming_stop_m
            return line, self.signal.colour(self.time_s) != "green"
        if vehicle.line is crossing.cross:
            return self._cross_line(vehicle, crossing), not self.signal.cross_open(self.time_s)
        return math.inf, False

    def _cross_line(self, vehicle: Vehicle, crossing: Intersection) -> float:
        return vehicle.direction * 0.5 * crossing.cross.length_m - self.road.edge_m - 3.0

    def _ego_has_the_way(self) -> bool:
        """At the stop sign the ego goes next once it has nearly stopped, until it has left the crossing."""
        crossing, front = self.stop_sign.crossing, self.ego_s + FRONT_FROM_AXLE_M
        inside = crossing.s_stop_m < front and self.ego_s < crossing.s_end_m + 2.0
        arrives = crossing.s_stop_m - STOP_SIGN_ZONE_M < front and self.ego.speed < ARRIVING_MPS
        return inside or arrives or self.stood_at_sign_s > 0.0

    def _judge(self, front_before: float) -> Outcome | None:
        return (
            self._judge_collision()
            or self._judge_red_light(front_before)
            or self._judge_stop_sign(front_before)
            or self._judge_off_road()
            or self._judge_end()
        )

    def _judge_collision(self) -> Outcome | None:
        ego = self.ego
        x = ego.x + CENTRE_FROM_AXLE_M * math.cos(ego.yaw)
        y = ego.y + CENTRE_FROM_AXLE_M * math.sin(ego.yaw)
        body = (x, y, ego.yaw, LENGTH_M, WIDTH_M)
        for other in (*self.vehicles, *self.obstacles, *self.walkers):
            ox, oy, oyaw = other.pose()
            if (ox - x) ** 2 + (oy - y) ** 2 > 64.0:
                continue
            if boxes_overlap(body, (ox, oy, oyaw, other.size.length_m, other.size.width_m)):
                return Outcome(
                    "collision",
                    f"touched the {other.colour} {other.kind} at {ego.speed:.1f} m/s, "
                    f"{self.time_s:.1f} s after the start",
                )
        return None

    def _judge_red_light(self, front_before: float) -> Outcome | None:
        if self.signal is None or self.signal.colour(self.time_s) != "red":
            return None
        line = self.signal_intersection.s_stop_m
        if front_before <= line < self.ego_s + FRONT_FROM_AXLE_M:
            return Outcome(
                "red_light", f"crossed the stop line at {self.ego.speed:.1f} m/s while the light was red"
            )
        return None

    def _judge_stop_sign(self, front_before: float) -> Outcome | None:
        if self.stop_sign is None or self.stood_at_sign_s >= LEAST_STAND_S:
            return None
        if front_before <= self.stop_sign.crossing.s_stop_m < self.ego_s + FRONT_FROM_AXLE_M:
            return Outcome(
                "stop_sign",
                f"crossed the stop line at {self.ego.speed:.1f} m/s, having stood before it for "
                f"{self.stood_at_sign_s:.1f} s of the {LEAST_STAND_S} s that the stop sign asks for",
            )
        return None

    def _judge_off_road(self) -> Outcome | None:
        if self.road.in_intersection(self.ego_s):
            return None
        heading_error = self.ego.yaw - self.road.line.heading_at(self.ego_s)
        edge = self.road.edge_m if self.ego_d > 0 else self.road.right_edge_m(self.ego_s)
        reach = 0.5 * WIDTH_M * abs(math.cos(heading_error)) + abs(self.ego_d) - edge
        if reach > 0:
            return Outcome(
                "off_road",
                f"a wheel was {reach:.2f} m beyond the edge of the road at {self.ego.speed:.1f} m/s",
            )
        return None

    def _judge_end(self) -> Outcome | None:
        driven = self.ego_s - self.scene.start_s
        if self.ego_s >= self.scene.goal_s:
            return Outcome("success", f"reached the goal after {driven:.0f} m in {self.time_s:.1f} s")
        if self.time_s >= self.scene.time_limit_s:
            left = self.scene.goal_s - self.ego_s
            return Outcome("timeout", f"{left:.0f} m short of the goal after {self.time_s:.1f} s")
        return None


def _pass_paths(scene: Scene) -> tuple[PassPath, ...]:
    paths = [plan_pass(o, scene.lane_d, scene.road.edge_m, scene.wanted_mps) for o in scene.obstacles]
    return tuple(sorted((p for p in paths if p is not None), key=lambda p: p.obstacle.s))


def boxes_overlap(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    """Whether two oriented boxes (x, y, yaw, length, width) overlap (separating axes)."""
    offset = np.array([b[0] - a[0], b[1] - a[1]])
    axes = [
        np.array([math.cos(yaw), math.sin(yaw)])
        for yaw in (a[2], a[2] + math.pi / 2, b[2], b[2] + math.pi / 2)
    ]
    for axis in axes:
        reach = sum(
            0.5 * box[3] * abs(axis @ axes[i]) + 0.5 * box[4] * abs(axis @ axes[i + 1])
            for box, i in ((a, 0), (b, 2))
        )
        if abs(offset @ axis) > reach:
            return False
    return True
