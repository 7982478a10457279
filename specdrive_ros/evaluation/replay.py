"""Plans over recorded bags, offline and deterministic: the same bag, model and seed give the same plans.

Messages go through the same observation code as on the car, in the order of their stamps; time is the recording's,
never the machine's. Knows no model: anything with `cameras` and `plan` will do.
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import cv2
import numpy as np

from specdrive_ros.errors import InputError
from specdrive_ros.evaluation.bags import Bag, BagMessage
from specdrive_ros.evaluation.displacement import OdometryTrace, constant_velocity, displacements
from specdrive_ros.evaluation.pictures import PICTURE_WIDTH
from specdrive_ros.evaluation.recording import DriveRecording, RecordedPose
from specdrive_ros.evaluation.replay_sources import Sources
from specdrive_ros.evaluation.report import PICTURES_PER_REPORT, ReportCycle
from specdrive_ros.geometry import yaw_from_quaternion
from specdrive_ros.observation.images import BadImage, ImageFault, decode_message
from specdrive_ros.observation.observation import Observation
from specdrive_ros.observation.refusal import Reason, Refusal
from specdrive_ros.observation.synchronisation import ObservationBuilder
from specdrive_ros.plan import Plan
from specdrive_ros.shapes import FRAME_STEP_S, NANOSECONDS, WAYPOINT_TIMES_S

FRESH_S = 0.2  # an image older than two frame steps is not what the car sees now
NOTHING_RECORDED = Refusal(Reason.NO_FRAMES, "nothing was recorded when a plan was due")
FRAME_STEP_NS = round(FRAME_STEP_S * NANOSECONDS)
LATE_FRAME_NS = FRAME_STEP_NS * 3 // 2  # after this the next frame is not late but missing
RECORDED_AS = {"role": "", "map_frame": "odom", "ego_frame": "base_link"}


class Planner(Protocol):
    """What a replay needs of a model."""

    cameras: Sequence[str]

    def plan(self, observation: Observation) -> Plan: ...


@dataclass(frozen=True)
class ReplayOptions:
    """every_s: interval at which plans are due; seconds: use only this much of the bag's beginning; max_frame_age_s:
    how old an image may be if no newer one arrives; None means 0.2 s, or any age for a bag with single images.
    """

    every_s: float = 0.5
    seconds: float | None = None
    max_frame_age_s: float | None = None

    def __post_init__(self):
        if not self.every_s > 0:
            raise InputError(f"--every {self.every_s:g}: must be a time in seconds above 0")
        if self.seconds is not None and not self.seconds > 0:
            raise InputError(f"--seconds {self.seconds:g}: must be a time in seconds above 0")
        if self.max_frame_age_s is not None and not self.max_frame_age_s >= 0:
            raise InputError(f"--max-frame-age {self.max_frame_age_s:g}: must be a time in seconds from 0")


@dataclass(frozen=True)
class PlannedCycle:
    """One plan, its baseline, and the image it was made from (reduced, or None once dropped)."""

    time_s: float
    plan: Plan
    baseline_xyz: np.ndarray
    rgb: np.ndarray | None
    repeated_frames: int
    frame_age_s: float

    @property
    def violated(self) -> tuple[str, ...]:
        """Names of the checks that the plan fails."""
        return tuple(text.partition(":")[0] for text in self.plan.violations)


@dataclass
class BagReplay:
    """The results for one bag. `refused` counts due instants without a plan, by reason."""

    name: str
    cycles: list[PlannedCycle] = field(default_factory=list)
    trace: OdometryTrace = field(default_factory=OdometryTrace)
    refused: Counter[str] = field(default_factory=Counter)
    refusal_text: str = ""
    frames: int = 0
    odometry: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def errors(self) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Per plan, [n] metres: displacements of the plan, and of constant velocity."""
        futures = [self.trace.future(cycle.plan.t0_ns) for cycle in self.cycles]
        ours = [displacements(c.plan.xyz, future) for c, future in zip(self.cycles, futures)]
        baseline = [displacements(c.baseline_xyz, future) for c, future in zip(self.cycles, futures)]
        return ours, baseline

    def report_cycles(self) -> list[ReportCycle]:
        rows = []
        for cycle in self.cycles:
            future = self.trace.future(cycle.plan.t0_ns)
            note = _cycle_note(cycle)
            rows.append(ReportCycle(self.name, cycle.time_s, cycle.rgb, None, cycle.plan, note, future))
        return rows


def _cycle_note(cycle: PlannedCycle) -> str:
    notes = list(cycle.plan.violations)
    if cycle.frame_age_s > FRESH_S:
        notes.append(f"picture held, {cycle.frame_age_s:.1f} s old")
    elif cycle.repeated_frames:
        notes.append(f"{cycle.repeated_frames} frames repeated")
    return "; ".join(notes)


def replay_bag(
    bag: Bag,
    sources: Sources,
    planner: Planner,
    options: ReplayOptions,
    *,
    recording: DriveRecording | None = None,
    on_plan: Callable[[PlannedCycle], None] = lambda cycle: None,
    pictures: int = PICTURES_PER_REPORT,
) -> BagReplay:
    """Plans over one bag, front to back. Memory: the frames of one observation, the odometry, `pictures` images."""
    replaying = _Replaying(bag, sources, planner, options, recording, on_plan, pictures)
    for message in bag.messages(sources.topics):
        if not replaying.take(message):
            break
    return replaying.finish()


def due_plans(bag: Bag, sources: Sources, options: ReplayOptions) -> int:
    """Number of plans that fall due in this bag."""
    first_ns, last_ns = bag.span(sources.topics)
    seconds = (last_ns - first_ns) / NANOSECONDS
    return int(min(seconds, options.seconds or seconds) / options.every_s) + 1


class _Replaying:
    """The replay of one bag: takes messages in order; plans once one is due and all messages of that instant are
    in."""

    def __init__(
        self,
        bag: Bag,
        sources: Sources,
        planner: Planner,
        options: ReplayOptions,
        recording: DriveRecording | None,
        on_plan: Callable[[PlannedCycle], None],
        pictures: int,
    ):
        self.bag, self.sources, self.planner, self.recording = bag, sources, planner, recording
        self.on_plan, self.pictures, self.keep_every = on_plan, pictures, 1
        self.result = BagReplay(bag.name, notes=[f"bag {bag.name}: {line}" for line in bag.damage])
        self.builder = ObservationBuilder(planner.cameras)
        self.begin_ns, last_ns = bag.span(sources.topics)
        self.result.seconds = (last_ns - self.begin_ns) / NANOSECONDS
        self.every_ns = round(options.every_s * NANOSECONDS)
        seconds = self.result.seconds if options.seconds is None else options.seconds
        self.end_ns = self.begin_ns + round(seconds * NANOSECONDS)
        self.max_frame_age_s = self._max_frame_age(options)
        self.now_ns = self.due_ns = self.begin_ns
        self.decode_ms: dict[str, float] = {}
        self.refusal = NOTHING_RECORDED
        self.frame_ns: int | None = None
        self.bad_image = ""

    def _max_frame_age(self, options: ReplayOptions) -> float:
        stills = [t.name for t in self.bag.topics if t.name in self.sources.cameras and t.count == 1]
        for topic in stills:
            self._note(f"{topic} has a single image in {self.result.seconds:.1f} s")
        if options.max_frame_age_s is not None:
            return options.max_frame_age_s
        if len(stills) < len(self.sources.cameras):
            return FRESH_S
        self._note("that image is held for every plan, however old: what is measured is how the motion "
                   f"goes on, not what is seen (--max-frame-age {FRESH_S} refuses held images)")
        return float("inf")

    def _note(self, text: str) -> None:
        self.result.notes.append(f"bag {self.bag.name}: {text}")

    def take(self, message: BagMessage) -> bool:
        """Takes a message; returns False once nothing more of this bag matters."""
        if message.stamp_ns > self.now_ns:
            self._plan_if_due()
            self.now_ns = message.stamp_ns
        if message.topic == self.sources.odometry:
            self._take_odometry(message)
        elif message.stamp_ns <= self.end_ns:
            self._take_frame(message)
        return message.stamp_ns <= self.end_ns + round(WAYPOINT_TIMES_S[-1] * NANOSECONDS) + FRAME_STEP_NS

    def finish(self) -> BagReplay:
        self._plan_if_due()
        if self.due_ns <= min(self.now_ns, self.end_ns):
            self._refuse()
        result, builder = self.result, self.builder
        result.frames, result.odometry = builder.frames_received, builder.odometry_received
        result.rejected = Counter(builder.rejected) + self.bag.rejected
        self._note_what_was_missing()
        return result

    def _take_odometry(self, message: BagMessage) -> None:
        xyz, quaternion, speed = odometry_sample(message.message)
        refused = self.builder.add_odometry(message.stamp_ns, xyz, quaternion, speed)
        if refused not in (Reason.NOT_FINITE, Reason.ZERO_QUATERNION):
            self.result.trace.add(message.stamp_ns, xyz, quaternion / np.linalg.norm(quaternion))

    def _take_frame(self, message: BagMessage) -> None:
        camera = self.sources.cameras[message.topic]
        begun = time.perf_counter()
        try:
            rgb = decode_message(message.message)
        except BadImage as bad:
            self.builder.reject_frame(bad.fault)
            self.bad_image = str(bad)
            return
        self.frame_ns = message.stamp_ns
        self.decode_ms[camera] = 1e3 * (time.perf_counter() - begun)
        self.builder.add_frame(camera, message.stamp_ns, rgb)

    def _plan_if_due(self) -> None:
        while self.due_ns + self.every_ns <= min(self.now_ns, self.end_ns):
            self._refuse()
        if not self.due_ns <= self.now_ns <= self.end_ns:
            return
        answer = self._observe()
        if isinstance(answer, Observation):
            self._plan(answer)
            self.due_ns += self.every_ns
            self.refusal = NOTHING_RECORDED
        else:
            self.refusal = answer

    def _observe(self) -> Observation | Refusal:
        """A new set of images; if frames stop coming, the last images, if fresh enough."""
        answer = self.builder.newest()
        frames_stay_out = self.frame_ns is not None and self.now_ns - self.frame_ns > LATE_FRAME_NS
        if isinstance(answer, Observation) or not frames_stay_out:
            return answer
        return self.builder.held_at(self.now_ns, self.max_frame_age_s)

    def _refuse(self) -> None:
        """Lets a due instant pass without a plan, for the latest reason."""
        self.result.refused[str(self.refusal.reason)] += 1
        self.result.refusal_text = self.refusal.text
        self.due_ns += self.every_ns

    def _plan(self, observation: Observation) -> None:
        begun = time.perf_counter()
        plan = self.planner.plan(observation)
        decode_ms = sum(self.decode_ms.values())
        total_ms = decode_ms + 1e3 * (time.perf_counter() - begun)
        plan = replace(plan, stage_ms={**plan.stage_ms, "decode": decode_ms, "total": total_ms})
        camera = self.planner.cameras[0]
        stamps = observation.frame_stamps_ns[camera]
        cycle = PlannedCycle(
            time_s=(observation.t0_ns - self.begin_ns) / NANOSECONDS,
            plan=plan,
            baseline_xyz=constant_velocity(observation.history),
            rgb=_small(observation.frames[camera][-1]),
            repeated_frames=observation.repeated_frames,
            frame_age_s=float(observation.t0_ns - stamps[-1]) / NANOSECONDS,
        )
        self._record(cycle, observation)
        self.on_plan(cycle)
        self.result.cycles.append(self._with_or_without_picture(cycle))

    def _record(self, cycle: PlannedCycle, observation: Observation) -> None:
        if self.recording is None:
            return
        xyz, quaternion = self.result.trace.pose_at(observation.t0_ns)
        yaw = float(yaw_from_quaternion(quaternion))
        pose = RecordedPose(xyz[0], xyz[1], yaw, observation.history.speed_mps)
        self.recording.write_cycle(cycle.rgb, cycle.plan, pose)

    def _with_or_without_picture(self, cycle: PlannedCycle) -> PlannedCycle:
        """Keeps images evenly spread: when there are too many, drops every second one."""
        cycles = self.result.cycles
        if len(cycles) // self.keep_every >= self.pictures:
            self.keep_every *= 2
            for index, old in enumerate(cycles):
                cycles[index] = old if index % self.keep_every == 0 else replace(old, rgb=None)
        return cycle if len(cycles) % self.keep_every == 0 else replace(cycle, rgb=None)

    def _note_what_was_missing(self) -> None:
        result = self.result
        bad_images = sum(result.rejected[str(fault)] for fault in ImageFault)
        if bad_images:
            self._note(f"{bad_images} of {result.frames} images were refused; the last: {self.bad_image}")
        repeated = sum(cycle.repeated_frames > 0 for cycle in result.cycles)
        if repeated:
            self._note(f"{repeated} of {len(result.cycles)} plans stand on repeated frames")
        failed = Counter(name for cycle in result.cycles for name in cycle.violated)
        for name, count in sorted(failed.items()):
            self._note(f"{count} of {len(result.cycles)} plans fail the check {name}: not fit to drive")
        if not result.cycles:
            reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(result.refused.items()))
            self._note(f"no plan was possible ({reasons or 'nothing fell due'}): {result.refusal_text}")


def odometry_sample(message: object) -> tuple[np.ndarray, np.ndarray, float | None]:
    """Position [3] m, quaternion [4] (x, y, z, w) and forward speed in m/s of a nav_msgs/Odometry.

    The speed is None for an all-zero twist: either it was never filled in or the car stands, and positions tell which.
    """
    position, turn = message.pose.pose.position, message.pose.pose.orientation
    linear = message.twist.twist.linear
    speed = None if linear.x == linear.y == linear.z == 0.0 else linear.x
    return np.array([position.x, position.y, position.z]), np.array([turn.x, turn.y, turn.z, turn.w]), speed


def _small(rgb: np.ndarray) -> np.ndarray:
    """Reduced to the report's width at most, so that the images of a long replay fit in memory."""
    scale = PICTURE_WIDTH / rgb.shape[1]
    return rgb if scale >= 1 else cv2.resize(rgb, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
