"""Closed-loop driving of the embedded world: results of scenarios, and the offline loop.

`drive_offline` runs world, planner and controller in one thread on the world's own clock: no ROS, no waiting, the same
result every time. Training uses it to judge checkpoints. The drive over ROS fills the same `ScenarioResult`s, so both
end in the same summary, report and recording. Knows nothing about ROS.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from specdrive_ros.controller import EgoTrajectory, PoseSample, TrajectoryController
from specdrive_ros.errors import InputError
from specdrive_ros.evaluation.recording import DriveRecording, RecordedPose
from specdrive_ros.evaluation.report import PICTURES_PER_SCENARIO, ReportCycle, choose_cycles, scenario_key
from specdrive_ros.evaluation.summary import (
    build_summary,
    cycles_summary,
    inputs_summary,
    latency_summary,
    reasoning_summary,
)
from specdrive_ros.geometry import in_frame, quaternion_from_yaw, rotation_about_z
from specdrive_ros.observation.history import OdometryHistory
from specdrive_ros.observation.observation import EgoHistory, Observation
from specdrive_ros.observation.refusal import Refusal
from specdrive_ros.plan import Plan
from specdrive_ros.safety.fallback import comfortable_stop
from specdrive_ros.safety.plan_checks import check_plan
from specdrive_ros.shapes import FRAMES_PER_CAMERA, NANOSECONDS, WAYPOINT_TIMES_S
from specdrive_ros.sim.camera import render
from specdrive_ros.sim.pinhole import PinholeCamera, check_cameras
from specdrive_ros.sim.scenario import FAMILIES, choose_families, make_world
from specdrive_ros.sim.scenario_playback import PlaybackConfig, ScenarioPlayback
from specdrive_ros.sim.world import Command, World

LAST_SEED = 999_999


class Planner(Protocol):
    """Anything that makes a plan from an observation of its cameras."""

    cameras: Sequence[str]

    def plan(self, observation: Observation) -> Plan: ...


@dataclass(frozen=True, eq=False)
class DrivenCycle:
    """One planning cycle of a drive.

    time_s:    since the scenario began, at t0.
    rgb:       uint8 [H, W, 3], the newest frame of the first camera; None once dropped.
    pose:      x m, y m, yaw rad of the rear axle in the map at t0.
    speed_mps: at t0.
    source:    "planned", "republished" or "stop".
    note:      why the plan is not the planner's own; empty if it is.
    """

    time_s: float
    rgb: np.ndarray | None
    plan: Plan
    pose: tuple[float, float, float]
    speed_mps: float
    source: str = "planned"
    late: bool = False
    note: str = ""


@dataclass(frozen=True, eq=False)
class ScenarioResult:
    """How one scenario went. `outcome` is one of the contract's names, `why` explains it in words."""

    name: str
    seed: int
    outcome: str
    why: str
    distance_m: float
    duration_s: float
    cycles: tuple[DrivenCycle, ...]

    def summary_row(self) -> dict:
        return {
            "name": self.name,
            "seed": self.seed,
            "outcome": self.outcome,
            "distance_m": round(self.distance_m, 2),
            "why": self.why,
        }


def list_scenarios(
    names: Sequence[str], repeat: int, seed: int, every: Sequence[str] = FAMILIES
) -> list[tuple[str, int]]:
    """(family, world seed) to drive: the families in turn, `repeat` times; the n-th repeat has seed + n.

    Raises InputError for a name that is no family ("all" means `every`) and for seeds outside 0 … 999,999.
    """
    families = choose_families(names, every)
    if repeat < 1:
        raise InputError(f"--repeat {repeat}: must be 1 or more")
    if not 0 <= seed <= seed + repeat - 1 <= LAST_SEED:
        raise InputError(f"--seed {seed} with {repeat} repeats: seeds must stay within 0 and {LAST_SEED}")
    return [(family, seed + turn) for turn in range(repeat) for family in families]


@dataclass
class InputCounts:
    """Messages received and observations dropped; filled in while driving.

    rejected: input -> reason -> number of messages that the planner refused. Empty offline, where nothing is a
              message.
    """

    frames: int = 0
    odometry: int = 0
    dropped: int = 0
    rejected: dict[str, dict[str, int]] = field(default_factory=dict)


class DriveListener(Protocol):
    """Anything that follows a drive while it runs; `DriveLog` is one."""

    counts: InputCounts

    def on_event(self, event: dict) -> None:
        """Called for an event of `ScenarioPlayback`."""

    def on_cycle(self, cycle: DrivenCycle) -> None: ...


# The offline loop


def drive_offline(
    planner: Planner, family: str, seed: int, *, seconds: float | None = None, latency_s: float = 0.0
) -> ScenarioResult:
    """Drives one world to its end; see `drive_all_offline`."""
    log = DriveLog()
    drive_all_offline(planner, [(family, seed)], log, seconds=seconds, latency_s=latency_s)
    return log.results()[0]


def drive_all_offline(
    planner: Planner,
    scenarios: Sequence[tuple[str, int]],
    listener: DriveListener,
    *,
    seconds: float | None = None,
    latency_s: float = 0.0,
    make: Callable[[str, int], World] = make_world,
) -> None:
    """Drives one (family, seed) after another, each to its end.

    A plan is made every 0.1 s of world time and takes effect `latency_s` after its t0; while one is being made, the
    newest observation waits, as in the planner node. Time that the machine takes does not count.

    seconds: ends a scenario as a timeout after this much world time under the planner's command.
    make:    makes the world of a family and seed.
    Raises InputError if the planner wants a camera that the embedded world does not have.
    """
    check_cameras(planner.cameras)
    playback = ScenarioPlayback(scenarios, listener.on_event, PlaybackConfig(max_s=seconds or 0.0), make)
    car = None
    while not playback.finished:
        if car is None or car.world is not playback.world:
            car = _OfflineCar(planner, playback, latency_s, listener.counts)
        cycle = car.think()
        if cycle is not None:
            listener.on_cycle(cycle)
        car.act()


class _OfflineCar:
    """Sensors, planner and controller in one world, one tick at a time."""

    def __init__(self, planner: Planner, playback: ScenarioPlayback, latency_s: float, counts: InputCounts):
        self.planner, self.playback, self.latency_ns = planner, playback, round(latency_s * NANOSECONDS)
        self.counts, self.world = counts, playback.world
        self.begin_ns = playback.stamp_ns
        self.history = OdometryHistory()
        self.controller = TrajectoryController()
        self.frames = {name: deque(maxlen=FRAMES_PER_CAMERA) for name in planner.cameras}
        self.stamps_ns: deque[int] = deque(maxlen=FRAMES_PER_CAMERA)
        self.pending: Plan | None = None  # being made until t0 + latency

    def think(self) -> DrivenCycle | None:
        """Senses and, when due, plans; returns the cycle if one was planned."""
        now_ns = self.playback.stamp_ns
        self._sense(now_ns)
        self._accept_finished(now_ns)
        cycle = self._plan(now_ns) if self.playback.frame_due else None
        self._accept_finished(now_ns)
        return cycle

    def act(self) -> None:
        """Commands the car and advances one tick."""
        now_ns = self.playback.stamp_ns
        wanted = self.controller.command(now_ns, now_ns)
        self.playback.take_command(Command(wanted.acceleration_mps2, wanted.curvature_per_m))
        self.playback.tick()

    def _sense(self, now_ns: int) -> None:
        ego = self.world.ego
        self.controller.observe(PoseSample(now_ns, ego.x, ego.y, ego.yaw, ego.speed), now_ns)
        self.counts.odometry += 1
        self.history.add(now_ns, np.array([ego.x, ego.y, 0.0]), quaternion_from_yaw(ego.yaw), ego.speed)
        if self.playback.frame_due:
            self.stamps_ns.append(now_ns)
            self.counts.frames += len(self.frames)
            for name, frames in self.frames.items():
                frames.append(render(self.world, name))

    def _plan(self, now_ns: int) -> DrivenCycle | None:
        history = self.history.at(now_ns)
        if self.pending is not None or isinstance(history, Refusal):
            return None
        plan, fault = plan_or_stop(self.planner, self._observation(now_ns, history))
        self.pending = plan
        ego = self.world.ego
        rgb = next(iter(self.frames.values()))[-1]
        time_s = (now_ns - self.begin_ns) / NANOSECONDS
        source = "stop" if fault else "planned"
        return DrivenCycle(time_s, rgb, plan, (ego.x, ego.y, ego.yaw), ego.speed, source, note=fault)

    def _accept_finished(self, now_ns: int) -> None:
        if self.pending is not None and now_ns >= self.pending.t0_ns + self.latency_ns:
            self.controller.accept(ego_trajectory(self.pending), now_ns)
            self.pending = None

    def _observation(self, now_ns: int, history: EgoHistory) -> Observation:
        stamps = np.array(self.stamps_ns, np.int64)
        return Observation(
            t0_ns=now_ns,
            frames={name: np.stack(frames) for name, frames in self.frames.items()},
            frame_stamps_ns={name: stamps for name in self.frames},
            history=history,
        )


def plan_or_stop(planner: Planner, observation: Observation) -> tuple[Plan, str]:
    """(plan, fault): the planner's plan, or a comfortable stop and the plan's fault, as in the planner node."""
    begun = time.perf_counter()
    plan = planner.plan(observation)
    fault = check_plan(plan, observation)
    if fault:
        return comfortable_stop(observation), f"plan refused: {fault}"
    return replace(plan, stage_ms={"total": 1000 * (time.perf_counter() - begun)} | plan.stage_ms), ""


def ego_trajectory(plan: Plan) -> EgoTrajectory:
    """The plan in the form the controller takes."""
    return EgoTrajectory(plan.t0_ns, WAYPOINT_TIMES_S, plan.xyz[:, :2], plan.yaw, plan.speed_mps)


# The results


@dataclass
class _Scenario:
    """A scenario while it is being driven. `ended` is its outcome event."""

    name: str
    seed: int
    begin_ns: int
    cycles: list[DrivenCycle] = field(default_factory=list)
    ended: dict | None = None

    def let_go_of_pictures(self) -> None:
        """Keeps only images that the report may show: images take most of the memory of a long drive."""
        kept = set(choose_cycles([cycle.plan.reasoning for cycle in self.cycles], PICTURES_PER_SCENARIO))
        self.cycles = [
            cycle if index in kept else replace(cycle, rgb=None) for index, cycle in enumerate(self.cycles)
        ]

    def result(self) -> ScenarioResult:
        """The result; a scenario that was cut short counts as a timeout, and says so."""
        if self.ended is not None:
            ended = self.ended
            how = ended["outcome"], ended["why"], ended["distance_m"], ended["seconds"]
            return ScenarioResult(self.name, self.seed, *how, tuple(self.cycles))
        seconds = self.cycles[-1].time_s if self.cycles else 0.0
        driven = np.array([cycle.pose[:2] for cycle in self.cycles]).reshape(-1, 2)
        distance_m = float(np.hypot(*np.diff(driven, axis=0).T).sum())
        why = f"cut short after {seconds:.1f} s: the drive ended before the scenario did"
        return ScenarioResult(self.name, self.seed, "timeout", why, distance_m, seconds, tuple(self.cycles))


class DriveLog:
    """Collects a drive while it runs: writes the recording, and keeps results for summary and report.

    A cycle belongs to the scenario that contains its t0, even if it arrives after that scenario's end.
    """

    def __init__(self, recording: DriveRecording | None = None):
        self.recording = recording
        self.counts = InputCounts()
        self._scenarios: list[_Scenario] = []

    def on_event(self, event: dict) -> None:
        """Takes an event of `ScenarioPlayback`."""
        if event["event"] == "start":
            self._scenarios.append(_Scenario(event["name"], event["seed"], event["stamp_ns"]))
        elif event["event"] == "outcome":
            self._scenarios[-1].ended = event
            self._scenarios[-1].let_go_of_pictures()
        else:
            return
        if self.recording is not None:
            said = event.get("outcome", "start"), event.get("why", "")
            self.recording.write_scenario(
                event["stamp_ns"],
                ": ".join([scenario_key(event["name"], event["seed"]), *filter(None, said)]),
            )

    def on_cycle(self, cycle: DrivenCycle) -> None:
        t0_ns = cycle.plan.t0_ns
        scenario = next((one for one in reversed(self._scenarios) if one.begin_ns <= t0_ns), None)
        if scenario is not None:
            scenario.cycles.append(cycle)
        if self.recording is not None:
            pose = RecordedPose(*cycle.pose, cycle.speed_mps)
            self.recording.write_cycle(cycle.rgb, cycle.plan, pose, cycle.source)

    def results(self) -> list[ScenarioResult]:
        return [scenario.result() for scenario in self._scenarios]


def report_cycles(result: ScenarioResult, camera: PinholeCamera | None) -> list[ReportCycle]:
    """The scenario's cycles in the form the report shows, each with the path that was then driven."""
    key = scenario_key(result.name, result.seed)
    poses = np.array([(cycle.time_s, *cycle.pose) for cycle in result.cycles]).reshape(-1, 4)
    return [
        ReportCycle(
            key, cycle.time_s, cycle.rgb, camera, cycle.plan, cycle.note, driven_after(poses, index)
        )
        for index, cycle in enumerate(result.cycles)
    ]


def driven_after(poses: np.ndarray, index: int) -> np.ndarray:
    """[n, 3] metres in the ego frame at row `index`: where the rear axle was during the following 6.4 s.

    poses: [N, 4] time s, x m, y m, yaw rad.
    """
    time_s, x, y, yaw = poses[index]
    later = poses[index : np.searchsorted(poses[:, 0], time_s + WAYPOINT_TIMES_S[-1] + 1e-6)]
    xyz = np.column_stack([later[:, 1:3], np.zeros(len(later))])
    return in_frame(xyz, np.array([x, y, 0.0]), rotation_about_z(yaw))


def drive_summary(
    results: Sequence[ScenarioResult],
    counts: InputCounts,
    *,
    model: str,
    runtime: str,
    draft: str,
    seed: int,
) -> dict:
    """The contract's summary of a drive."""
    cycles = [cycle for result in results for cycle in result.cycles]
    planned = [cycle for cycle in cycles if cycle.source == "planned"]
    return build_summary(
        model=model,
        runtime=runtime,
        draft=draft,
        seed=seed,
        cycles=cycles_summary(
            observed=len(cycles) + counts.dropped,
            planned=len(planned),
            late=sum(cycle.late for cycle in cycles),
            republished=sum(cycle.source == "republished" for cycle in cycles),
            stop=sum(cycle.source == "stop" for cycle in cycles),
            dropped=counts.dropped,
        ),
        latency_ms=latency_summary([cycle.plan.stage_ms for cycle in planned]),
        reasoning=reasoning_summary(cycle.plan for cycle in planned),
        inputs=inputs_summary(
            frames=counts.frames, odometry=counts.odometry, rejected_by_input=counts.rejected or None
        ),
        scenarios=[result.summary_row() for result in results],
    )
