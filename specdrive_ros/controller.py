"""Follows a planned trajectory: pure pursuit for the path, a speed loop with preview for the timing.

A trajectory is given in the ego frame of *its own* t0. It is placed in the odometry frame with the pose at t0, not the
newest one: the car has moved on while the plan was made, and a plan placed at the newest pose would be late by just
that much. Without a fresh trajectory and fresh odometry, the car is braked along the last path. Knows nothing of ROS or
of pedals; time comes in as arguments.
"""

from collections import deque
from dataclasses import dataclass

import numpy as np

from specdrive_ros.errors import InputError
from specdrive_ros.geometry import in_frame, out_of_frame, rotation_about_z, wrap_angle
from specdrive_ros.shapes import NANOSECONDS

NO_TRAJECTORY = "no trajectory yet"
NO_ODOMETRY = "no odometry yet"
FURTHEST_M, FASTEST_MPS = 1e9, 200.0  # no place on Earth is further off, no car is faster


@dataclass(frozen=True)
class ControllerConfig:
    """Parameters of the controller. Lengths in m, times in s, accelerations in m/s², all positive."""

    trajectory_timeout_s: float = 0.5
    trajectory_max_age_s: float = 1.0
    odometry_timeout_s: float = 0.5
    lookahead_time_s: float = 0.7
    lookahead_min_m: float = 4.0
    lookahead_max_m: float = 25.0
    speed_preview_s: float = 0.5
    max_acceleration_mps2: float = 3.0
    max_deceleration_mps2: float = 8.0
    stop_deceleration_mps2: float = 2.5
    max_curvature_per_m: float = 0.2

    def __post_init__(self):
        for name, value in vars(self).items():
            if not (np.isfinite(value) and value > 0):
                raise InputError(f"controller parameter {name}: {value}; must be a number above 0")
        if self.lookahead_min_m > self.lookahead_max_m:
            raise InputError(
                f"controller parameter lookahead_min_m: {self.lookahead_min_m}; must not be above "
                f"lookahead_max_m, {self.lookahead_max_m}"
            )


@dataclass(frozen=True)
class PoseSample:
    """The rear axle in the odometry frame at a stamp: metres, radians, m/s along the heading."""

    stamp_ns: int
    x: float
    y: float
    yaw: float
    speed_mps: float


@dataclass(frozen=True)
class EgoTrajectory:
    """A trajectory to follow, in the ego frame (base_link) at t0_ns.

    times_s:   [N] after t0, rising
    xy:        [N, 2] metres
    yaw:       [N] radians
    speed_mps: [N] m/s along the heading
    """

    t0_ns: int
    times_s: np.ndarray
    xy: np.ndarray
    yaw: np.ndarray
    speed_mps: np.ndarray


@dataclass(frozen=True)
class ControlCommand:
    """What the car should do now.

    speed_mps:         speed to have one `speed_preview_s` from now.
    acceleration_mps2: signed acceleration that gets there.
    curvature_per_m:   of the rear axle's path, left positive.
    stop_reason:       why the car is being stopped; empty while a trajectory is followed.
    """

    speed_mps: float
    acceleration_mps2: float
    curvature_per_m: float
    stop_reason: str = ""


class PoseTrack:
    """The odometry of the last few seconds, in time order, to look up the pose at a t0."""

    KEEP_S = 5.0
    EXTRAPOLATE_S = 0.25
    CLOCK_BACK_S = 1.0  # older than the newest by more than this: a new clock, not a late message
    TELEPORT_M = 5.0  # farther than the speed explains by more than this: a new scene

    def __init__(self):
        self._samples: deque[PoseSample] = deque()

    @property
    def newest(self) -> PoseSample | None:
        return self._samples[-1] if self._samples else None

    def append(self, sample: PoseSample) -> bool:
        """Adds a sample; returns True if it started a new track. Late and repeated stamps are dropped.

        Raises InputError for numbers that are not finite or that no car can have.
        """
        values = (sample.x, sample.y, sample.yaw, sample.speed_mps)
        if not np.all(np.isfinite(values)):
            raise InputError(f"odometry at {sample.stamp_ns} ns: not finite; all of pose and twist must be")
        if max(abs(sample.x), abs(sample.y)) > FURTHEST_M or abs(sample.speed_mps) > FASTEST_MPS:
            raise InputError(f"odometry at {sample.stamp_ns} ns: no car is at {values[:2]} m with {values[3]} m/s")
        restarted = self._starts_anew(sample)
        if restarted:
            self._samples.clear()
        elif self._samples and sample.stamp_ns <= self._samples[-1].stamp_ns:
            return False
        self._samples.append(sample)
        while sample.stamp_ns - self._samples[0].stamp_ns > self.KEEP_S * NANOSECONDS:
            self._samples.popleft()
        return restarted

    def _starts_anew(self, sample: PoseSample) -> bool:
        last = self.newest
        if last is None:
            return False
        dt = (sample.stamp_ns - last.stamp_ns) / NANOSECONDS
        if dt < 0:
            return dt < -self.CLOCK_BACK_S
        moved = np.hypot(sample.x - last.x, sample.y - last.y)
        fastest = max(abs(sample.speed_mps), abs(last.speed_mps))
        return bool(moved > fastest * dt * 1.5 + self.TELEPORT_M)

    def at(self, stamp_ns: int) -> tuple[float, float, float]:
        """Pose (x, y, yaw) at a stamp: interpolated, or extrapolated a little past the newest sample.

        Raises InputError for a stamp that the track does not cover.
        """
        if not self._samples:
            raise InputError(f"no odometry to place a trajectory of {stamp_ns} ns in")
        first, last = self._samples[0], self._samples[-1]
        if stamp_ns < first.stamp_ns:
            missing = (first.stamp_ns - stamp_ns) / NANOSECONDS
            raise InputError(f"odometry begins {missing:.3f} s after the trajectory's stamp; must reach it")
        ahead_s = (stamp_ns - last.stamp_ns) / NANOSECONDS
        if ahead_s > self.EXTRAPOLATE_S:
            raise InputError(
                f"odometry ends {ahead_s:.3f} s before the trajectory's stamp; "
                f"must be {self.EXTRAPOLATE_S} s at most"
            )
        if ahead_s > 0:
            return _advance(last, self._yaw_rate(), ahead_s)
        return self._interpolate(stamp_ns)

    def _interpolate(self, stamp_ns: int) -> tuple[float, float, float]:
        origin = self._samples[0].stamp_ns
        times = np.array([sample.stamp_ns - origin for sample in self._samples], np.float64)
        rows = np.array([(sample.x, sample.y, sample.yaw) for sample in self._samples])
        rows[:, 2] = np.unwrap(rows[:, 2])
        x, y, yaw = (float(np.interp(stamp_ns - origin, times, column)) for column in rows.T)
        return x, y, yaw

    def _yaw_rate(self) -> float:
        if len(self._samples) < 2:
            return 0.0
        before, last = self._samples[-2], self._samples[-1]
        return float(wrap_angle(last.yaw - before.yaw)) / ((last.stamp_ns - before.stamp_ns) / NANOSECONDS)


def _advance(sample: PoseSample, yaw_rate: float, dt_s: float) -> tuple[float, float, float]:
    middle = sample.yaw + 0.5 * yaw_rate * dt_s
    step = sample.speed_mps * dt_s
    return (
        sample.x + step * float(np.cos(middle)),
        sample.y + step * float(np.sin(middle)),
        sample.yaw + yaw_rate * dt_s,
    )


@dataclass(frozen=True)
class _PlacedTrajectory:
    """A trajectory in the odometry frame; row 0 is t0 itself."""

    t0_ns: int
    times_s: np.ndarray
    xy: np.ndarray
    end_yaw: float
    speed_mps: np.ndarray


class TrajectoryController:
    """Odometry and trajectories in, commands out.

    `steady_ns` is a clock that never jumps, `now_ns` the clock of the stamps.
    """

    def __init__(self, config: ControllerConfig = ControllerConfig()):
        self.config = config
        self.reset()

    def reset(self) -> None:
        """Forgets track and trajectory: the clock or the scene has changed."""
        self._track = PoseTrack()
        self._placed: _PlacedTrajectory | None = None
        self._trajectory_arrived_ns: int | None = None
        self._odometry_arrived_ns: int | None = None
        self._curvature = 0.0

    def observe(self, sample: PoseSample, steady_ns: int) -> None:
        """Takes an odometry sample. Raises InputError for one that is not finite, and keeps the previous one."""
        if self._track.append(sample):
            self._placed = None
        self._odometry_arrived_ns = steady_ns

    def accept(self, trajectory: EgoTrajectory, steady_ns: int) -> None:
        """Takes a trajectory to follow from now on. Raises InputError for one that cannot be followed."""
        if not len(trajectory.times_s):
            raise InputError("trajectory: no points; must have at least one")
        arrays = (trajectory.times_s, trajectory.xy, trajectory.yaw, trajectory.speed_mps)
        if not all(np.all(np.isfinite(array)) for array in arrays):
            raise InputError("trajectory: a point is not finite; all of pose, time and speed must be")
        if np.abs(trajectory.xy).max() > FURTHEST_M or np.abs(trajectory.speed_mps).max() > FASTEST_MPS:
            raise InputError(f"trajectory: must stay within {FURTHEST_M:g} m and {FASTEST_MPS:g} m/s")
        if trajectory.times_s[0] <= 0 or np.any(np.diff(trajectory.times_s) <= 0):
            raise InputError("trajectory: times do not rise; each must be later than the one before")
        if self._placed is not None and trajectory.t0_ns < self._placed.t0_ns:
            raise InputError("trajectory: older than the one being followed; stamps must rise")
        self._placed = self._place(trajectory)
        self._trajectory_arrived_ns = steady_ns

    def _place(self, trajectory: EgoTrajectory) -> _PlacedTrajectory:
        x, y, yaw = self._track.at(trajectory.t0_ns)
        points = out_of_frame(np.vstack([np.zeros((1, 2)), trajectory.xy]), (x, y), rotation_about_z(yaw)[:2, :2])
        first_speed = trajectory.speed_mps[:1]
        return _PlacedTrajectory(
            t0_ns=trajectory.t0_ns,
            times_s=np.concatenate([[0.0], trajectory.times_s]),
            xy=points,
            end_yaw=yaw + float(trajectory.yaw[-1]),
            speed_mps=np.concatenate([first_speed, trajectory.speed_mps]),
        )

    def command(self, now_ns: int, steady_ns: int) -> ControlCommand:
        """The command for this instant: follows the trajectory, or stops and says why."""
        reason = self._stop_reason(now_ns, steady_ns)
        pose = self._pose_at(now_ns)
        if pose is not None and self._placed is not None:
            self._curvature = self._pursue(pose, self._track.newest.speed_mps)
        if reason:
            return self.stop(reason)
        return self._follow(now_ns)

    def stop(self, reason: str) -> ControlCommand:
        """A comfortable stop along the curve being driven."""
        return ControlCommand(0.0, -self.config.stop_deceleration_mps2, self._curvature, reason)

    def _stop_reason(self, now_ns: int, steady_ns: int) -> str:
        config = self.config
        if self._odometry_arrived_ns is None:
            return NO_ODOMETRY
        odometry_age = (steady_ns - self._odometry_arrived_ns) / NANOSECONDS
        if odometry_age > config.odometry_timeout_s:
            return f"no odometry for {odometry_age:.2f} s; limit {config.odometry_timeout_s} s"
        if self._placed is None:
            return NO_TRAJECTORY
        silence = (steady_ns - self._trajectory_arrived_ns) / NANOSECONDS
        if silence > config.trajectory_timeout_s:
            return f"no trajectory for {silence:.2f} s; limit {config.trajectory_timeout_s} s"
        age = (now_ns - self._placed.t0_ns) / NANOSECONDS
        if age > config.trajectory_max_age_s:
            return f"trajectory is {age:.2f} s old; limit {config.trajectory_max_age_s} s"
        return ""

    def _pose_at(self, now_ns: int) -> tuple[float, float, float] | None:
        newest = self._track.newest
        if newest is None:
            return None
        furthest = newest.stamp_ns + int(PoseTrack.EXTRAPOLATE_S * NANOSECONDS)
        return self._track.at(min(max(now_ns, newest.stamp_ns), furthest))

    def _follow(self, now_ns: int) -> ControlCommand:
        config, placed = self.config, self._placed
        preview = (now_ns - placed.t0_ns) / NANOSECONDS + config.speed_preview_s
        speed = float(np.interp(preview, placed.times_s, placed.speed_mps))
        wanted = (speed - self._track.newest.speed_mps) / config.speed_preview_s
        acceleration = float(np.clip(wanted, -config.max_deceleration_mps2, config.max_acceleration_mps2))
        return ControlCommand(speed, acceleration, self._curvature)

    def _pursue(self, pose: tuple[float, float, float], speed_mps: float) -> float:
        """Curvature of the arc from the rear axle to the point one lookahead along the path."""
        config = self.config
        wanted = abs(speed_mps) * config.lookahead_time_s
        lookahead = float(np.clip(wanted, config.lookahead_min_m, config.lookahead_max_m))
        x, y, yaw = pose
        goal = _point_ahead(self._placed, np.array([x, y]), lookahead)
        forward, left = in_frame(goal, (x, y), rotation_about_z(yaw)[:2, :2])
        if forward <= 0:
            return self._curvature
        curvature = 2.0 * left / (forward * forward + left * left)
        return float(np.clip(curvature, -config.max_curvature_per_m, config.max_curvature_per_m))


def _point_ahead(placed: _PlacedTrajectory, position: np.ndarray, distance_m: float) -> np.ndarray:
    """The point `distance_m` along the path from its point nearest to `position`.

    Past its end the path continues straight, so that a short (stopping) trajectory still steers.
    """
    starts, steps = placed.xy[:-1], np.diff(placed.xy, axis=0)
    lengths = np.hypot(steps[:, 0], steps[:, 1])
    offsets = np.sum((position - starts) * steps, axis=1)
    shares = np.clip(offsets / np.maximum(lengths**2, 1e-12), 0.0, 1.0)
    feet = starts + shares[:, None] * steps
    nearest = int(np.argmin(np.sum((feet - position) ** 2, axis=1)))
    along = np.concatenate([[0.0], np.cumsum(lengths)])
    wanted = along[nearest] + shares[nearest] * lengths[nearest] + distance_m
    if wanted > along[-1]:
        heading = np.array([np.cos(placed.end_yaw), np.sin(placed.end_yaw)])
        return placed.xy[-1] + (wanted - along[-1]) * heading
    return np.array([np.interp(wanted, along, placed.xy[:, axis]) for axis in (0, 1)])
