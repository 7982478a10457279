"""The calls of `egodriver.EgodriverService`, each answered or refused with one status and one line.

`sessions.py` knows which sessions there are, `session.py` what happens within one.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from threading import Lock

import grpc
from carla_driver_interface.contract import CONTRACT_REVISION, ContractError, client_revision, contract_metadata
from carla_driver_interface.protocol import (
    ALPASIM_API_VERSION,
    DriveResponse,
    EgodriverServiceServicer,
    Empty,
    SessionRequestStatus,
    VersionId,
)

from specdrive_ros import __version__
from specdrive_ros.alpasim import wire
from specdrive_ros.alpasim.planners import Planners
from specdrive_ros.alpasim.refusal import NotReady, SessionExists, SessionExpired, TooManySessions, UnknownSession
from specdrive_ros.alpasim.session import STOP, DriveSession, match_cameras
from specdrive_ros.alpasim.sessions import LONGEST_NAME, Sessions
from specdrive_ros.errors import InputError

log = logging.getLogger(__name__)
IDLE_S = 600.0
STATUS = {
    NotReady: grpc.StatusCode.FAILED_PRECONDITION,
    UnknownSession: grpc.StatusCode.NOT_FOUND,
    SessionExpired: grpc.StatusCode.NOT_FOUND,
    SessionExists: grpc.StatusCode.ALREADY_EXISTS,
    TooManySessions: grpc.StatusCode.RESOURCE_EXHAUSTED,
    InputError: grpc.StatusCode.INVALID_ARGUMENT,
}


@dataclass(frozen=True)
class ServiceOptions:
    """name: of the driver, for logs; client: one of wire.CLIENTS; cameras: the simulator's name -> the model's;
    until_ready: stop or refuse; sessions: maximum number open at once; idle_s: a session without a call for this long
    is closed, 0: never."""

    name: str = "specdrive"
    client: str = wire.ALPASIM
    cameras: Mapping[str, str] = field(default_factory=dict)
    until_ready: str = STOP
    sessions: int = 8
    idle_s: float = IDLE_S


def _answered(call: Callable) -> Callable:
    """Turns errors into statuses; an unexpected one is INTERNAL and logged with its traceback."""

    @wraps(call)
    def answer(self, request, context):
        try:
            return call(self, request, context)
        except InputError as error:
            code, text = STATUS.get(type(error), STATUS[InputError]), " ".join(str(error).split())
            log.info("%s: %s: %s", call.__name__, code.name, text)
        except Exception as error:
            code, text = grpc.StatusCode.INTERNAL, f"{type(error).__name__}: {error}"
            log.exception("%s failed", call.__name__)
        with self.lock:
            self.refused[code.name] += 1
        context.abort(code, text)

    return answer


class DriverService(EgodriverServiceServicer):
    """Thread-safe. `refused` counts calls by their status."""

    def __init__(
        self,
        planners: Planners,
        options: ServiceOptions = ServiceOptions(),
        clock: Callable[[], float] = time.monotonic,
    ):
        self._planners, self._options = planners, options
        self._sessions = Sessions(options.sessions, options.idle_s, self._end, clock)
        self.lock = Lock()
        self.refused: Counter[str] = Counter()
        self.totals: Counter[str] = Counter()

    @_answered
    def get_version(self, request, context):
        context.send_initial_metadata(contract_metadata())
        version = VersionId(version_id=f"specdrive_ros-{__version__}-{self._options.name}", git_hash="unknown")
        version.grpc_api_version.CopyFrom(ALPASIM_API_VERSION)
        return version

    @_answered
    def start_session(self, request, context):
        name = request.session_uuid
        if not 0 < len(name) <= LONGEST_NAME:
            raise InputError(f"session_uuid: of {len(name)} characters; must be 1 to {LONGEST_NAME}")
        try:  # cameras' mounts, the only difference between revisions, are not used
            client_revision(context, CONTRACT_REVISION)
        except ContractError as error:
            raise NotReady(str(error)) from None
        declared = wire.declared_cameras(request)
        matched = match_cameras(declared, self._planners.model_cameras, self._options.cameras)
        self._open(name, matched, [each for each in declared if each not in matched], int(request.random_seed))
        log.info("session %s: begins, cameras %s", name, ", ".join(f"{k}={v}" for k, v in matched.items()))
        return SessionRequestStatus()

    def _open(self, name: str, cameras: dict[str, str], ignored: list[str], seed: int) -> None:
        def make() -> DriveSession:
            return DriveSession(name, cameras, ignored, self._planners, seed=seed,
                                until_ready=self._options.until_ready)

        self.expire()
        self._sessions.begin(name, make)
        with self.lock:
            self.totals["sessions"] += 1

    @_answered
    def close_session(self, request, context):
        self._sessions.close(request.session_uuid)
        return Empty()

    def _end(self, session: DriveSession) -> None:
        session.close()
        with self.lock:
            self.totals.update(session.answers)
        answers = ", ".join(f"{count} {source}" for source, count in session.answers.items()) or "no drives"
        refused = ", ".join(f"{reason} {count}" for reason, count in session.rejected.items())
        log.info("session %s: ends, %s%s", session.name, answers, f"; inputs refused: {refused}" if refused else "")

    def expire(self) -> None:
        """Closes sessions that nobody has called for too long."""
        if count := self._sessions.expire():
            with self.lock:
                self.totals["expired"] += count
            log.info("%d sessions closed after %g s without a call", count, self._options.idle_s)

    def close(self) -> None:
        """Closes all open sessions."""
        self._sessions.close_all()

    @_answered
    def submit_image_observation(self, request, context):
        image = request.camera_image
        with self._sessions.used(request.session_uuid) as session:
            session.add_picture(image.logical_id, wire.picture_stamp(image), image.image_bytes)
        return Empty()

    @_answered
    def submit_egomotion_observation(self, request, context):
        with self._sessions.used(request.session_uuid) as session:
            session.add_poses(*wire.poses(request))
        return Empty()

    @_answered
    def submit_route(self, request, context):
        stamp = wire.stamp_ns(request.route.timestamp_us, "route.timestamp_us")
        with self._sessions.used(request.session_uuid) as session:
            session.set_route(stamp, wire.route_points(request.route))
        return Empty()

    @_answered
    def submit_recording_ground_truth(self, request, context):
        """What the recorded driver did is ignored: using it would be cheating."""
        with self._sessions.used(request.session_uuid):
            return Empty()

    @_answered
    def drive(self, request, context):
        begun = time.monotonic()
        with self._sessions.used(request.session_uuid) as session:
            answer = session.drive(wire.stamp_ns(request.time_now_us, "time_now_us"))
        seconds = time.monotonic() - begun
        log.debug("session %s: %s %s %s", session.name, answer.source, answer.plan.reasoning, answer.note)
        options = self._options
        debug = wire.debug_bytes(options.client, options.name, seconds, answer, self._planners.model_cameras)
        return DriveResponse(
            trajectory=wire.trajectory(answer), debug_info=DriveResponse.DebugInfo(unstructured_debug_info=debug)
        )
