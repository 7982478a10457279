"""The calls of `egodriver.EgodriverService`, each answered or refused with one status and one line.

Keeps the sessions; what happens within one is `session.py`'s.
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
from specdrive_ros.alpasim.refusal import NotReady, SessionExists, TooManySessions, UnknownSession
from specdrive_ros.alpasim.session import STOP, DriveSession, match_cameras
from specdrive_ros.errors import InputError

log = logging.getLogger(__name__)
LONGEST_NAME = 200  # of a session
STATUS = {
    NotReady: grpc.StatusCode.FAILED_PRECONDITION,
    UnknownSession: grpc.StatusCode.NOT_FOUND,
    SessionExists: grpc.StatusCode.ALREADY_EXISTS,
    TooManySessions: grpc.StatusCode.RESOURCE_EXHAUSTED,
    InputError: grpc.StatusCode.INVALID_ARGUMENT,
}


@dataclass(frozen=True)
class ServiceOptions:
    """name: of what drives, for logs; client: of wire.CLIENTS; cameras: the simulator's name -> the model's;
    until_ready: stop or refuse; sessions: the most that are open at once.
    """

    name: str = "specdrive"
    client: str = wire.ALPASIM
    cameras: Mapping[str, str] = field(default_factory=dict)
    until_ready: str = STOP
    sessions: int = 8


def _answered(call: Callable) -> Callable:
    """Errors become statuses; what nobody expected is INTERNAL and logged with its traceback."""

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
    """Any number of threads. `refused` counts calls by their status."""

    def __init__(self, planners: Planners, options: ServiceOptions = ServiceOptions()):
        self._planners, self._options = planners, options
        self._sessions: dict[str, DriveSession] = {}
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
            raise InputError(f"session_uuid: of {len(name)} characters; should be 1 to {LONGEST_NAME}")
        try:  # cameras' mounts, the only thing in which revisions differ, are not looked at
            client_revision(context, CONTRACT_REVISION)
        except ContractError as error:
            raise NotReady(str(error)) from None
        declared = wire.declared_cameras(request)
        matched = match_cameras(declared, self._planners.model_cameras, self._options.cameras)
        self._open(name, matched, [each for each in declared if each not in matched], int(request.random_seed))
        log.info("session %s: begins, cameras %s", name, ", ".join(f"{k}={v}" for k, v in matched.items()))
        return SessionRequestStatus()

    def _open(self, name: str, cameras: dict[str, str], ignored: list[str], seed: int) -> None:
        with self.lock:
            if name in self._sessions:
                raise SessionExists(f"session {name}: is open already")
            if len(self._sessions) >= self._options.sessions:
                raise TooManySessions(f"session {name}: {len(self._sessions)} are open, which is the most; close one")
            self._sessions[name] = DriveSession(
                name, cameras, ignored, self._planners, seed=seed, until_ready=self._options.until_ready
            )
            self.totals["sessions"] += 1

    @_answered
    def close_session(self, request, context):
        with self.lock:
            session = self._sessions.pop(request.session_uuid, None)
        if session is None:
            raise _unknown(request.session_uuid)
        self._end(session)
        return Empty()

    def _end(self, session: DriveSession) -> None:
        session.close()
        with self.lock:
            self.totals.update(session.answers)
        answers = ", ".join(f"{count} {source}" for source, count in session.answers.items()) or "no drives"
        refused = ", ".join(f"{reason} {count}" for reason, count in session.rejected.items())
        log.info("session %s: ends, %s%s", session.name, answers, f"; inputs refused: {refused}" if refused else "")

    def close(self) -> None:
        """Ends what is open."""
        with self.lock:
            sessions, self._sessions = list(self._sessions.values()), {}
        for session in sessions:
            self._end(session)

    @_answered
    def submit_image_observation(self, request, context):
        image = request.camera_image
        session = self._session(request.session_uuid)
        session.add_picture(image.logical_id, wire.picture_stamp(image), image.image_bytes)
        return Empty()

    @_answered
    def submit_egomotion_observation(self, request, context):
        self._session(request.session_uuid).add_poses(*wire.poses(request))
        return Empty()

    @_answered
    def submit_route(self, request, context):
        stamp = wire.stamp_ns(request.route.timestamp_us, "route.timestamp_us")
        self._session(request.session_uuid).set_route(stamp, wire.route_points(request.route))
        return Empty()

    @_answered
    def submit_recording_ground_truth(self, request, context):
        """What the recorded driver did: a planner that looked at it would cheat."""
        self._session(request.session_uuid)
        return Empty()

    @_answered
    def drive(self, request, context):
        begun = time.monotonic()
        session = self._session(request.session_uuid)
        answer = session.drive(wire.stamp_ns(request.time_now_us, "time_now_us"))
        seconds = time.monotonic() - begun
        log.debug("session %s: %s %s %s", session.name, answer.source, answer.plan.reasoning, answer.note)
        options = self._options
        debug = wire.debug_bytes(options.client, options.name, seconds, answer, self._planners.model_cameras)
        return DriveResponse(
            trajectory=wire.trajectory(answer), debug_info=DriveResponse.DebugInfo(unstructured_debug_info=debug)
        )

    def _session(self, name: str) -> DriveSession:
        with self.lock:
            session = self._sessions.get(name)
        if session is None:
            raise _unknown(name)
        return session


def _unknown(name: str) -> UnknownSession:
    return UnknownSession(f"session {name[:LONGEST_NAME]!r}: is not open; begin it first, close it once")
