"""Gives each process group a DDS domain of its own: programs on one machine, or parallel tests, must not hear each
other.

A domain id is claimed with a lock on a file, which the system releases when the process ends, however it ends. Only
claims made through this file are seen; DDS itself has no such register.
"""

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from specdrive_ros.errors import WorkFailed

DDS_PROFILE = Path("config") / "fastdds.xml"
PROFILE_VARIABLES = ("FASTDDS_DEFAULT_PROFILES_FILE", "FASTRTPS_DEFAULT_PROFILES_FILE")
FIRST_DOMAIN, LAST_DOMAIN = 2, 101  # above 101 the ports reach into Linux's ephemeral range


@contextmanager
def own_domain() -> Iterator[int]:
    """A domain id that nobody else has claimed, for the duration of the context. Raises WorkFailed if all are in
    use."""
    count = LAST_DOMAIN - FIRST_DOMAIN + 1
    for step in range(count):
        domain = FIRST_DOMAIN + (os.getpid() + step) % count
        claim = _claim(domain)
        if claim is not None:
            try:
                yield domain
            finally:
                os.close(claim)
            return
    raise WorkFailed(f"DDS domains {FIRST_DOMAIN} to {LAST_DOMAIN} are all in use; end another drive first")


def _claim(domain: int) -> int | None:
    path = Path(tempfile.gettempdir()) / f"specdrive_domain_{domain}.lock"
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError:
        return None  # it belongs to another user
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def dds_environment(domain: int, profile: Path) -> dict[str, str]:
    """Environment variables that put a process into a domain limited to this machine, with our Fast DDS profile.

    With its own defaults, Fast DDS silently loses images over half a megabyte; the profile has a larger shared-memory
    segment. A profile chosen by the user is kept.
    """
    variables = {"ROS_DOMAIN_ID": str(domain), "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST"}
    if not any(os.environ.get(name) for name in PROFILE_VARIABLES):
        variables[PROFILE_VARIABLES[0]] = str(profile)
    return variables
