"""What a process holds: memory, threads, open files, processor time. Reads /proc; Linux only."""

import os
from dataclasses import dataclass
from pathlib import Path

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
MIB = 2**20


@dataclass(frozen=True)
class Usage:
    """One look at a process."""

    memory_mib: float  # resident
    threads: int
    files: int
    cpu_s: float  # since it began


def usage_of(pid: int) -> Usage:
    """Raises FileNotFoundError where the process has ended."""
    folder = Path(f"/proc/{pid}")
    resident = int((folder / "statm").read_text().split()[1])
    fields = (folder / "stat").read_text().rpartition(")")[2].split()
    return Usage(
        memory_mib=resident * PAGE_BYTES / MIB,
        threads=int(fields[17]),
        files=len(os.listdir(folder / "fd")),
        cpu_s=(int(fields[11]) + int(fields[12])) / TICKS_PER_S,
    )
