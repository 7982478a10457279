"""A thread that acts when something begun is not over in time, and again and again until it is.

The one who works cannot keep a deadline by himself: a network that hangs does not look at the clock. The clock is the
steady one. Knows nothing of plans.
"""

import time
from collections.abc import Callable
from threading import Condition, Thread

from specdrive_ros.shapes import NANOSECONDS


class DeadlineWatch:
    """act: called from the watch's thread, never while `end` has returned and nothing was begun since."""

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
        """Acts at `due_ns` and every `repeat_ns` after it, unless `end` comes first."""
        with self._changed:
            self._due_ns, self._repeat_ns, self._acted = due_ns, repeat_ns, 0
            self._changed.notify()

    def end(self) -> int:
        """It is over. Returns how often the watch acted; an act in progress is waited for."""
        with self._changed:
            self._due_ns = None
            return self._acted

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()  # an act takes milliseconds, and it holds on to what it acts on

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
