"""One session of a simulator: what it has perceived so far, and the plan at an instant. No gRPC, no protobuf.

Instants are the simulator's clock in nanoseconds. Poses are those of the rig (x forward, y left, z up, the origin
below the rear axle, so `base_link`) in the simulator's own fixed frame. The same is checked as in AlpaSim's driver:
the poses span the history, the frames follow each other at 10 Hz, each inference has its own seed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock

import numpy as np

from specdrive_ros.alpasim.planners import Planners
from specdrive_ros.alpasim.refusal import NotReady
from specdrive_ros.alpasim.route import distance_to_route
from specdrive_ros.errors import InputError
from specdrive_ros.geometry import out_of_frame, quaternion_from_yaw, quaternion_product
from specdrive_ros.observation.history import OdometryHistory, Pose
from specdrive_ros.observation.images import BadImage, decode_compressed
from specdrive_ros.observation.observation import Observation
from specdrive_ros.observation.refusal import Reason, Refusal
from specdrive_ros.observation.synchronisation import ObservationBuilder
from specdrive_ros.plan import Plan
from specdrive_ros.safety.fallback import stop_from
from specdrive_ros.safety.stand_in import StandIn
from specdrive_ros.shapes import (
    FRAME_STEP_S,
    FRAMES_PER_CAMERA,
    HISTORY_TIMES_S,
    NANOSECONDS,
    WAYPOINT_TIMES_S,
)

STOP, REFUSE = "stop", "refuse"  # the answer while a session is too young to plan
OLDEST_FRAMES_S = 0.5  # maximum age at the instant a plan is asked for
OLDEST_POSE_S = 0.1  # likewise
EARLY_S = FRAME_STEP_S  # frames and poses may be this much newer than that instant
FRAMES_SPAN_S = (FRAMES_PER_CAMERA - 1) * FRAME_STEP_S + EARLY_S  # from a session's first frame
HISTORY_SPAN_S = float(-HISTORY_TIMES_S[0]) + EARLY_S  # from its first input
ROUTE_SPAN = slice(0, 30)  # waypoints compared with the route: three seconds
WAITING = (Reason.NOTHING_NEW, Reason.NOT_SYNCHRONISED, Reason.NOT_YET)  # the last plan still holds
OF_FRAMES = (Reason.MISSING_FRAMES, Reason.CAMERA_MISSING, Reason.NOT_SYNCHRONISED)


@dataclass(frozen=True)
class Answer:
    """A trajectory in the simulator's frame, beginning with the rig at the requested instant.

    stamps_ns: [K] int64, ascending; xyz: [K, 3] m; quaternions: [K, 4] (x, y, z, w).
    source:    planned, repeated (no frame came since), republished, stop or warming_up; `note` says why.
    plan:      what it was made from.
    scalars:   figures for people to look at.
    """

    stamps_ns: np.ndarray
    xyz: np.ndarray
    quaternions: np.ndarray
    source: str
    note: str
    plan: Plan
    scalars: dict[str, float] = field(default_factory=dict)


class DriveSession:
    """cameras: the simulator's name -> the model's, for those that the model uses; the `ignored` ones are accepted and
    dropped.

    seed: of the session; the n-th inference uses seed + n. until_ready: `stop` or `refuse`.
    """

    def __init__(
        self,
        name: str,
        cameras: Mapping[str, str],
        ignored: Sequence[str],
        planners: Planners,
        *,
        seed: int = 0,
        until_ready: str = STOP,
    ):
        self.name, self._cameras, self._ignored = name, dict(cameras), frozenset(ignored)
        self._planners, self._planner = planners, planners.take()
        self._seed, self._until_ready = seed, until_ready
        self._builder = ObservationBuilder(planners.model_cameras, repeat_missing=False, history=OdometryHistory())
        self._stand_in = StandIn()
        self._speed_mps = 0.0
        self._route: np.ndarray | None = None
        self._first_input_ns: int | None = None
        self._first_frame_ns: int | None = None
        self._newest_frame_ns: int | None = None
        self._latest: tuple[Plan, str, str] | None = None
        self._lock = Lock()
        self.inferences = 0
        self.answers: dict[str, int] = {}

    @property
    def rejected(self) -> dict[str, int]:
        """Reason -> number of inputs that were refused or replaced."""
        return self._builder.rejected

    def close(self) -> None:
        """Waits for a plan in progress."""
        with self._lock:
            self._planners.give_back(self._planner)

    # Inputs

    def add_picture(self, camera: str, stamp_ns: int, content: bytes) -> None:
        """Takes a JPEG or PNG, stamped with the end of its exposure. Raises InputError if it is invalid or
        undeclared."""
        if camera in self._ignored:
            return
        if camera not in self._cameras:
            known = ", ".join(sorted({*self._cameras, *self._ignored}))
            raise InputError(f"camera {camera!r} was not declared in start_session; declared: {known}")
        try:
            rgb = decode_compressed("", content)
        except BadImage as error:
            with self._lock:
                self._builder.reject_frame(str(error.fault))
            raise InputError(f"camera {camera!r}: {error}") from None
        with self._lock:
            self._note_input(stamp_ns, frame=True)
            if self._builder.add_frame(self._cameras[camera], stamp_ns, rgb) is Reason.CLOCK_JUMP:
                self._begin_anew(stamp_ns)

    def add_poses(
        self, stamps_ns: Sequence[int], xyz: np.ndarray, quaternions: np.ndarray, speeds_mps: Sequence[float | None]
    ) -> None:
        """Takes poses [N] of the rig, oldest first; one with a known stamp replaces it. All or none are taken
        (InputError)."""
        for stamp_ns, position, quaternion in zip(stamps_ns, xyz, quaternions, strict=True):
            if not (np.isfinite(position).all() and np.isfinite(quaternion).all()):
                raise InputError(f"pose at {stamp_ns // 1000} us: has values that are no numbers")
            if not np.linalg.norm(quaternion) > 0.5:
                raise InputError(f"pose at {stamp_ns // 1000} us: its quaternion is not of unit length")
        with self._lock:
            for stamp_ns, *sample in zip(stamps_ns, xyz, quaternions, speeds_mps, strict=True):
                self._note_input(stamp_ns)
                if self._builder.add_odometry(stamp_ns, *sample) is Reason.CLOCK_JUMP:
                    self._begin_anew(stamp_ns)

    def set_route(self, stamp_ns: int, points: np.ndarray) -> None:
        """Takes points [M, 3] in the rig frame at that instant. Ignored before the first pose, since their place is
        unknown."""
        if not np.isfinite(points).all():
            raise InputError(f"route at {stamp_ns // 1000} us: has values that are no numbers")
        with self._lock:
            pose = self._builder.history.pose_at(stamp_ns)
            known = pose is not None and len(points) >= 2
            self._route = out_of_frame(points, pose.xyz, pose.rotation)[:, :2] if known else None

    def _note_input(self, stamp_ns: int, frame: bool = False) -> None:
        first = self._first_input_ns
        self._first_input_ns = stamp_ns if first is None else min(first, stamp_ns)
        if frame:
            first, newest = self._first_frame_ns, self._newest_frame_ns
            self._first_frame_ns = stamp_ns if first is None else min(first, stamp_ns)
            self._newest_frame_ns = stamp_ns if newest is None else max(newest, stamp_ns)

    def _begin_anew(self, stamp_ns: int) -> None:
        """Starts anew because the simulator's clock went back: nothing from before holds."""
        self._first_input_ns = self._first_frame_ns = self._newest_frame_ns = stamp_ns
        self._latest = self._route = None
        self._stand_in.forget()
        self._planner.forget()

    # Outputs

    def drive(self, now_ns: int) -> Answer:
        """The trajectory from an instant on. Raises NotReady with the reason if there can be none."""
        with self._lock:
            here = self._pose_at(now_ns)
            self._check_not_ahead(now_ns)
            answer = self._builder.newest()
            if isinstance(answer, Observation):
                self._check_fresh(answer.t0_ns, now_ns)
                self._latest = self._plan(answer)
                return self._answer(now_ns, here, *self._latest)
            if self._may_repeat(answer, now_ns):
                plan, source, note = self._latest
                return self._answer(now_ns, here, plan, "repeated" if source == "planned" else source, note)
            return self._without(answer, now_ns, here)

    def _pose_at(self, now_ns: int) -> Pose:
        newest_ns = self._builder.history.newest_ns
        if newest_ns is None:
            raise NotReady("NO_ODOMETRY: no ego motion has come; submit_egomotion_observation comes before drive")
        if (late_s := (now_ns - newest_ns) / NANOSECONDS) > OLDEST_POSE_S:
            raise NotReady(
                f"NOT_YET: the newest ego pose is {late_s:.2f} s older than time_now_us; at most {OLDEST_POSE_S:g} s"
            )
        return self._builder.history.pose_at(now_ns)

    def _check_not_ahead(self, now_ns: int) -> None:
        if self._newest_frame_ns is not None and self._newest_frame_ns > now_ns + EARLY_S * NANOSECONDS:
            early_s = (self._newest_frame_ns - now_ns) / NANOSECONDS
            raise InputError(f"time_now_us: is {early_s:.2f} s before the newest frame; a drive is never of the past")

    def _check_fresh(self, t0_ns: int, now_ns: int) -> None:
        if (age_s := (now_ns - t0_ns) / NANOSECONDS) > OLDEST_FRAMES_S:
            raise NotReady(
                f"STALE_FRAMES: the newest complete set of frames is {age_s:.2f} s older than time_now_us; "
                f"at most {OLDEST_FRAMES_S:g} s"
            )

    def _may_repeat(self, refusal: Refusal, now_ns: int) -> bool:
        """Whether the last plan still holds because no newer camera set is complete. Raises NotReady if it is too
        old."""
        if self._latest is None or refusal.reason not in WAITING:
            return False
        self._check_fresh(self._latest[0].t0_ns, now_ns)
        return True

    def _plan(self, observation: Observation) -> tuple[Plan, str, str]:
        """(plan, source, note): the model's plan, or a substitute if the checks refuse it."""
        plan = self._planners.plan(self._planner, observation, self._seed + self.inferences)
        self.inferences += 1
        if not plan.violations:
            self._stand_in.remember(plan)
            return plan, "planned", "; ".join(plan.warnings)
        substitute = self._stand_in.at(observation.t0_ns, observation.history)
        source = "republished" if substitute.republished else "stop"
        return substitute.plan, source, f"plan refused: {'; '.join(plan.violations)}"

    def _without(self, refusal: Refusal, now_ns: int, here: Pose) -> Answer:
        """While the session is young, a comfortable stop, unless refusing was asked for; later NotReady with the
        reason."""
        text = f"{refusal.reason}: {refusal.text}"
        if refusal.reason in OF_FRAMES:
            names = ", ".join(self._cameras)
            text += f"; {FRAMES_PER_CAMERA} frames {FRAME_STEP_S:g} s apart of each of {names} are needed"
        if self._until_ready == REFUSE or not self._warming_up(refusal.reason, now_ns):
            raise NotReady(text)
        stop = stop_from(now_ns, here.speed_mps, 0.0)
        return self._answer(now_ns, here, stop, "warming_up", text)

    def _warming_up(self, reason: Reason, now_ns: int) -> bool:
        """Whether this reason will go away by itself."""
        if reason in OF_FRAMES:
            return (now_ns - self._first_frame_ns) / NANOSECONDS <= FRAMES_SPAN_S
        waits = reason in (Reason.TOO_SHORT, Reason.CLOCK_JUMP)
        return waits and (now_ns - self._first_input_ns) / NANOSECONDS <= HISTORY_SPAN_S

    def _answer(self, now_ns: int, here: Pose, plan: Plan, source: str, note: str) -> Answer:
        """The plan in the simulator's frame: the rig at `now_ns`, then the later waypoints at their own times."""
        self.answers[source] = self.answers.get(source, 0) + 1
        then = here if plan.t0_ns == now_ns else self._builder.history.pose_at(plan.t0_ns)
        stamps_ns = plan.t0_ns + np.round(WAYPOINT_TIMES_S * NANOSECONDS).astype(np.int64)
        ahead = stamps_ns > now_ns
        xyz = out_of_frame(plan.xyz[ahead], then.xyz, then.rotation)
        turned = quaternion_product(then.quaternion, quaternion_from_yaw(plan.yaw[ahead]))
        return Answer(
            np.concatenate([[now_ns], stamps_ns[ahead]]),
            np.vstack([here.xyz, xyz]),
            np.vstack([here.quaternion, turned]),
            source,
            note,
            plan,
            self._scalars(plan, now_ns, xyz),
        )

    def _scalars(self, plan: Plan, now_ns: int, xyz: np.ndarray) -> dict[str, float]:
        scalars = {
            "t0_age_s": (now_ns - plan.t0_ns) / NANOSECONDS,
            "reasoning_tokens": float(len(plan.token_ids)),
            "target_passes": float(plan.target_passes),
        }
        if self._route is not None and len(xyz):
            scalars["route_distance_m"] = distance_to_route(xyz[ROUTE_SPAN, :2], self._route)
        return scalars | {f"{stage}_ms": milliseconds for stage, milliseconds in plan.stage_ms.items()}


def match_cameras(declared: Sequence[str], wanted: Sequence[str], given: Mapping[str, str]) -> dict[str, str]:
    """The simulator's name -> the model's. Raises NotReady if a camera of the model is not among the declared ones.

    given: pairs of names that differ; otherwise the names are equal, or there is one camera on each side.
    """
    by_model = {model: simulator for simulator, model in given.items()}
    if len(declared) == len(wanted) == 1 and not given:
        return {declared[0]: wanted[0]}
    matched = {by_model.get(name, name): name for name in wanted}
    if missing := sorted(set(matched) - set(declared)):
        raise NotReady(
            f"camera {', '.join(missing)}: not declared; declared are {', '.join(sorted(declared)) or 'none'}; "
            f"serve with --camera DECLARED=NAME for each of the model's {', '.join(wanted)}"
        )
    return matched
