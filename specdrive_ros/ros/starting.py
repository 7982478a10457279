"""Handles signals that come before a node can: while Python still imports rclpy and the runtimes.

Nothing is open then, so the process simply ends, without a traceback. Standard library only.
"""

import os
import signal


def end_quietly_on_signals() -> None:
    """Exits on SIGINT and SIGTERM until `run_node` installs its own handlers."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: os._exit(0))
