"""A thread that acts when a task is not finished in time, and repeatedly until it is.

The thread doing the work cannot watch its own deadline: a hanging network does not look at the clock. Uses the steady
clock. Knows nothing about plans.
"""

import time
from collections.abc import Callable
from threading import Condition, Thread

from specdrive_ros.shapes import NANOSECONDS


class DeadlineWatch:
    """act: called from the watch's thread, never between `end` and the next `begin`."""

    def __init__(self, act: Callable[[], None]):
        self._act = act
        self._changed = Condition()
        self._due_ns: int | None = None
        self._repeat_ns = 0
        self._acted = 0
        self._closed = False
        self._thread = Thread(target=self._watch, name="deadline watch", daemon=True)
        self._thread.start()

    def begin(self, due_ns: int, repeat_ns: int) -> None:
        """Acts at `due_ns` (steady clock) and every `repeat_ns` after it, unless `end` comes first."""
        with self._changed:
            self._due_ns, self._repeat_ns, self._acted = due_ns, repeat_ns, 0
            self._changed.notify()

    def end(self) -> int:
        """Ends the task. Returns how often the watch acted; waits for an act in progress."""
        with self._changed:
            self._due_ns = None
            return self._acted

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()  # an act takes milliseconds, and it needs the objects it acts on

    def _watch(self) -> None:
        with self._changed:
            while not self._closed:
                now_ns = time.monotonic_ns()
                if self._due_ns is None:
                    self._changed.wait()
                elif self._due_ns > now_ns:
                    self._changed.wait((self._due_ns - now_ns) / NANOSECONDS)
                else:
                    self._acted += 1
                    self._due_ns = now_ns + self._repeat_ns
                    self._act()
