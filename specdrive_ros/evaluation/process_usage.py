"""What a process uses: memory, threads, open files, processor time. Reads /proc; Linux only."""

import os
from dataclasses import dataclass
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
KIB_PER_MIB = 1024
_STEAL = 8  # column of /proc/stat's first line


@dataclass(frozen=True)
class Usage:
    """A snapshot of a process."""

    memory_mib: float  # resident, its own and of files
    shared_memory_mib: float  # resident in segments of shared memory, of which DDS has one for each sender
    threads: int
    files: int
    cpu_s: float  # since the process began
    waited_s: float = 0.0  # runnable but not scheduled, summed over its threads; 0 if Linux does not tell


def usage_of(pid: int) -> Usage:
    """Snapshot of the process `pid`. Raises FileNotFoundError if it has ended."""
    folder = Path(f"/proc/{pid}")
    resident = {"RssAnon": 0, "RssFile": 0, "RssShmem": 0} | _resident_kib(folder / "status")
    fields = (folder / "stat").read_text().rpartition(")")[2].split()
    return Usage(
        memory_mib=(resident["RssAnon"] + resident["RssFile"]) / KIB_PER_MIB,
        shared_memory_mib=resident["RssShmem"] / KIB_PER_MIB,
        threads=int(fields[17]),
        files=len(os.listdir(folder / "fd")),
        cpu_s=(int(fields[11]) + int(fields[12])) / TICKS_PER_S,
        waited_s=sum(waited_s(pid).values()),
    )


def _resident_kib(status: Path) -> dict[str, int]:
    """RssAnon, RssFile and RssShmem of Linux's /proc/PID/status (proc_pid_status(5)), KiB; nothing of a process that
    has just died."""
    rows = (line.partition(":") for line in status.read_text().splitlines() if line.startswith("Rss"))
    return {name: int(value.split()[0]) for name, _, value in rows}


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
