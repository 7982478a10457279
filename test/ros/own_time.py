"""Time that a process had, for bounds that must hold of our nodes and not of the machine they are tested on.

Linux counts for every thread how long it could have run and was not let, and for a virtual machine how long its
processors were lent to another. On a quiet machine that is next to nothing, so that a bound on own time is a bound on
time; where others keep the processors busy, their share does not count. Where Linux does not tell, all time counts.
"""

import os
import time

from specdrive_ros.evaluation.process_usage import stolen_s, waited_s


class OwnTime:
    """Begins when it is made. process: whose waiting does not count; this one where none is named."""

    def __init__(self, process: int | None = None):
        self._process = process or os.getpid()
        self._waited_s: dict[int, float] = {}
        self._look()
        self._before_s, self._stolen_s = dict(self._waited_s), stolen_s()
        self._begun_s = time.monotonic()

    def passed_s(self) -> float:
        """Seconds since the beginning, less what was waited for a processor."""
        self._look()
        waiting_s = sum(waited - self._before_s.get(thread, 0.0) for thread, waited in self._waited_s.items())
        return max(0.0, time.monotonic() - self._begun_s - waiting_s - (stolen_s() - self._stolen_s))

    def _look(self) -> None:
        """A thread that has ended keeps what it had waited by the last look."""
        self._waited_s |= waited_s(self._process)
