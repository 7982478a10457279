"""Which sessions are open, how many may be, and which are no longer used.

A simulator that dies closes no session. One without a call for `idle_s` is closed for it, so that its planner serves
the next; a later call to it is told so. Knows no gRPC.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock

from specdrive_ros.alpasim.refusal import SessionExists, SessionExpired, TooManySessions, UnknownSession
from specdrive_ros.alpasim.session import DriveSession

LONGEST_NAME = 200  # of a session
REMEMBERED = 1000  # names of sessions that were closed for lack of calls


@dataclass
class _Open:
    session: DriveSession
    used_s: float  # when its last call ended
    calls: int = 0  # calls in progress


class Sessions:
    """most: number that may be open at once; idle_s: time without a call after which a session is closed, 0: never.
    Thread-safe.

    end: closes a session; called without a lock. clock: seconds, steady.
    """

    def __init__(
        self,
        most: int,
        idle_s: float,
        end: Callable[[DriveSession], None],
        clock: Callable[[], float] = time.monotonic,
    ):
        self._most, self._idle_s, self._end, self._clock = most, idle_s, end, clock
        self._lock = Lock()
        self._open: dict[str, _Open] = {}
        self._expired: OrderedDict[str, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def begin(self, name: str, make: Callable[[], DriveSession]) -> None:
        """Opens a session. Raises SessionExists or TooManySessions."""
        with self._lock:
            if name in self._open:
                raise SessionExists(f"session {name}: is open already")
            if len(self._open) >= self._most:
                raise TooManySessions(f"session {name}: {len(self._open)} are open, the most there may be; "
                                      f"{self._remedy()}")
            self._open[name] = _Open(make(), self._clock())
            self._expired.pop(name, None)

    def _remedy(self) -> str:
        if not self._idle_s:
            return "close one"
        longest_s = self._clock() - min(each.used_s for each in self._open.values())
        return f"close one; without a call for {self._idle_s:g} s it is closed, the longest is so for {longest_s:.0f} s"

    @contextmanager
    def used(self, name: str) -> Iterator[DriveSession]:
        """The session for one call, during which it is never idle. Raises UnknownSession or SessionExpired."""
        with self._lock:
            if name not in self._open:
                raise self._unknown(name)
            opened = self._open[name]
            opened.calls += 1
        try:
            yield opened.session
        finally:
            with self._lock:
                opened.calls, opened.used_s = opened.calls - 1, self._clock()

    def close(self, name: str) -> None:
        """Closes a session. Raises UnknownSession or SessionExpired."""
        with self._lock:
            if name not in self._open:
                raise self._unknown(name)
            opened = self._open.pop(name)
        self._end(opened.session)

    def _unknown(self, name: str) -> UnknownSession:
        shown = repr(name[:LONGEST_NAME])
        if name in self._expired:
            return SessionExpired(f"session {shown}: was closed after {self._idle_s:g} s without a call; begin it anew")
        return UnknownSession(f"session {shown}: is not open; begin it first, close it once")

    def expire(self) -> int:
        """Closes sessions that nobody has called for too long; returns how many."""
        if not self._idle_s:
            return 0
        with self._lock:
            since_s = self._clock() - self._idle_s
            idle = [name for name, each in self._open.items() if not each.calls and each.used_s <= since_s]
            ended = [self._open.pop(name).session for name in idle]
            self._expired.update(dict.fromkeys(idle))
            while len(self._expired) > REMEMBERED:
                self._expired.popitem(last=False)
        for session in ended:
            self._end(session)
        return len(ended)

    def close_all(self) -> None:
        with self._lock:
            opened, self._open = list(self._open.values()), {}
        for each in opened:
            self._end(each.session)
