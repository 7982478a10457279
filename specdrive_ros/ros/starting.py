"""A signal that comes before a node can take care of it: while Python still imports rclpy and the runtimes.

Nothing is open then, so the process just ends, without a traceback. Standard library only.
"""

import os
import signal


def end_quietly_on_signals() -> None:
    """Until `run_node` has its own handlers."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: os._exit(0))
