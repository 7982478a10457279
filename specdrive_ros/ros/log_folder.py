"""Where ROS writes its log files, and whether it can: a full disk must not keep a car's node from starting.

Standard library only.
"""

import os
from collections.abc import Sequence
from pathlib import Path

LEAST_BYTES = 1_000_000
CONSOLE_ONLY = ("--ros-args", "--disable-external-lib-logs")


def log_folder() -> Path:
    """The log folder, found as rcl_logging finds it."""
    if os.environ.get("ROS_LOG_DIR"):
        return Path(os.environ["ROS_LOG_DIR"]).expanduser()
    home = os.environ.get("ROS_HOME") or str(Path.home() / ".ros")
    return Path(home).expanduser() / "log"


def why_not_writable(folder: Path) -> str:
    """Empty if log files can be written, else the reason; makes the folder if it is missing."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        free = os.statvfs(folder)
    except OSError as error:
        return error.strerror or str(error)
    if not os.access(folder, os.W_OK):
        return "not writable"
    return "disk full" if free.f_bavail * free.f_frsize < LEAST_BYTES else ""


def with_logging_that_works(arguments: Sequence[str]) -> tuple[list[str], str]:
    """The arguments for rclpy, with log files turned off if there is no room for them, and a line that says so."""
    folder = log_folder()
    why_not = why_not_writable(folder)
    if not why_not:
        return list(arguments), ""
    return [*arguments, *CONSOLE_ONLY], f"no log files: {folder}: {why_not}; logging to the console only"
