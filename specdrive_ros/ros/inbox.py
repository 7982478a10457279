"""Where callbacks leave messages for the worker: bounded, never blocking, newest kept.

Callbacks only store references here; decoding and inference are done by the worker. Knows no message types.
"""

import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from threading import Condition

KEPT_LOST = 1024  # stamps of discarded messages, remembered so that they can be counted


@dataclass(frozen=True)
class Arrival:
    """A message, its own stamp, and its time of arrival on the steady clock."""

    message: object
    stamp_ns: int
    steady_ns: int


@dataclass(frozen=True)
class Batch:
    """What arrived since the worker last looked.

    was_reset: everything before belongs to a clock or scene that is over.
    arrivals:  input name -> messages, oldest first.
    lost_ns:   input name -> stamps of messages displaced by newer ones.
    """

    was_reset: bool
    arrivals: dict[str, list[Arrival]]
    lost_ns: dict[str, list[int]]


class Inbox:
    """One bounded queue per input; the oldest message is discarded first.

    capacities: input name -> maximum number of waiting messages.
    """

    def __init__(self, capacities: dict[str, int]):
        self._queues = {name: deque(maxlen=most) for name, most in capacities.items()}
        self._lost_ns = {name: deque(maxlen=KEPT_LOST) for name in capacities}
        self._changed = Condition()
        self._closed = False
        self._reset = False

    def put(self, name: str, message: object, stamp_ns: int) -> bool:
        """Adds a message; returns True if the oldest one was discarded for it."""
        with self._changed:
            queue = self._queues[name]
            overflows = len(queue) == queue.maxlen
            if overflows:
                self._lost_ns[name].append(queue[0].stamp_ns)
            queue.append(Arrival(message, stamp_ns, time.monotonic_ns()))
            self._changed.notify()
        return overflows

    def reset(self) -> None:
        """Discards what is waiting, since its clock or scene is over, and tells the worker."""
        with self._changed:
            self._empty()
            self._reset = True
            self._changed.notify()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()

    def take(self, timeout_s: float | None = None) -> Batch | None:
        """Waits at most `timeout_s` for messages or a reset; an empty batch after that. None once closed."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._closed or self._reset or any(self._queues.values()), timeout_s
            )
            if self._closed:
                return None
            was_reset, self._reset = self._reset, False
            arrivals = {name: list(queue) for name, queue in self._queues.items()}
            lost_ns = {name: list(stamps) for name, stamps in self._lost_ns.items()}
            self._empty()
            return Batch(was_reset, arrivals, lost_ns)

    def waiting(self, names: Iterable[str]) -> bool:
        """Whether a message of one of these inputs waits."""
        with self._changed:
            return any(self._queues[name] for name in names)

    def _empty(self) -> None:
        for queue in (*self._queues.values(), *self._lost_ns.values()):
            queue.clear()
