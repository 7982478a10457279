"""Time that a process had, for bounds that must hold of our nodes and not of the machine they are tested on.

Linux counts for every thread how long it could have run and was not let, and for a virtual machine how long its
processors were lent to another. On a quiet machine that is next to nothing, so that a bound on own time is a bound on
time; where others keep the processors busy, their share does not count. Where Linux does not tell, all time counts.
"""

import os
import time
from pathlib import Path

STEAL = 8  # column of the first line of /proc/stat
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class OwnTime:
    """Begins when it is made. processes: whose waiting does not count; this one where none is named."""

    def __init__(self, *processes: int):
        self._processes = processes or (os.getpid(),)
        self._waited_s: dict[Path, float] = {}
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
        for process in self._processes:
            self._waited_s |= waited_s(process)


def waited_s(process: int) -> dict[Path, float]:
    """Thread -> seconds it could have run and was not let, of the threads that run now."""
    waited = {}
    for thread in Path(f"/proc/{process}/task").glob("*/schedstat"):
        try:
            waited[thread] = int(thread.read_text().split()[1]) / 1e9
        except (OSError, IndexError):  # it has ended meanwhile
            continue
    return waited


def stolen_s() -> float:
    """Of all processors of a virtual machine, since it started."""
    try:
        return int(Path("/proc/stat").read_text().split(maxsplit=STEAL + 1)[STEAL]) / TICKS_PER_S
    except (OSError, IndexError, ValueError):
        return 0.0
