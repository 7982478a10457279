"""What a process uses: memory, threads, open files, processor time. Reads /proc; Linux only."""

import os
from dataclasses import dataclass
from pathlib import Path

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
MIB = 2**20
_STEAL = 8  # column of /proc/stat's first line


@dataclass(frozen=True)
class Usage:
    """A snapshot of a process."""

    memory_mib: float  # resident
    threads: int
    files: int
    cpu_s: float  # since the process began
    waited_s: float = 0.0  # runnable but not scheduled, summed over its threads; 0 if Linux does not tell


def usage_of(pid: int) -> Usage:
    """Snapshot of the process `pid`. Raises FileNotFoundError if it has ended."""
    folder = Path(f"/proc/{pid}")
    resident = int((folder / "statm").read_text().split()[1])
    fields = (folder / "stat").read_text().rpartition(")")[2].split()
    return Usage(
        memory_mib=resident * PAGE_BYTES / MIB,
        threads=int(fields[17]),
        files=len(os.listdir(folder / "fd")),
        cpu_s=(int(fields[11]) + int(fields[12])) / TICKS_PER_S,
        waited_s=sum(waited_s(pid).values()),
    )


def waited_s(pid: int) -> dict[int, float]:
    """Thread id -> seconds it was runnable but not scheduled, for the threads alive now."""
    waited = {}
    for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        try:
            waited[int(path.parent.name)] = int(path.read_text().split()[1]) / 1e9
        except (OSError, IndexError):  # it has ended in the meantime
            continue
    return waited


def stolen_s() -> float:
    """Seconds for which a virtual machine's processors ran another machine instead (steal time), summed since boot."""
    try:
        return int(Path("/proc/stat").read_text().split(maxsplit=_STEAL + 1)[_STEAL]) / TICKS_PER_S
    except (OSError, IndexError, ValueError):
        return 0.0
