"""How every node of ours ends: Ctrl-C and SIGTERM are no errors, wrong parameters are one line."""

import signal
import sys
from collections.abc import Callable, Sequence

import rclpy
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions

from specdrive_ros.errors import InputError

SIGNALS = (signal.SIGINT, signal.SIGTERM)
LONGEST_SPIN_S = 0.1  # how late a signal is noticed


class _Stopped(BaseException):
    """A signal asked the process to end."""


class _StopRequest:
    """The first signal is noted in `made`, the following are ignored.

    While `interrupts` it also raises `_Stopped` where the main thread is: loading a model takes long. An import of
    compiled code may turn that into an exception of its own and go on, so `made` is asked as well. A spinning
    executor is not interrupted: an exception in the middle of rclpy's own code ends in other ways than planned.
    """

    def __init__(self):
        self.made = False
        self.interrupts = True
        for number in SIGNALS:
            signal.signal(number, self._take)

    def _take(self, number: int, frame: object) -> None:
        self.made = True
        self.ignore_signals()
        if self.interrupts:
            raise _Stopped

    def ignore_signals(self) -> None:
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)


def run_node(
    make: Callable[[], Node], arguments: Sequence[str] | None, begin: Callable = lambda node: None
) -> int:
    """Spins one node until a signal; returns the exit code.

    begin: called with the node before it spins. A node's `close` runs while it can still publish.
    """
    stop = _StopRequest()
    node = None
    try:
        rclpy.init(args=arguments, signal_handler_options=SignalHandlerOptions.NO)
        node = make()
        begin(node)
        executor = SingleThreadedExecutor()
        executor.add_node(node)
        stop.interrupts = False
        while rclpy.ok() and not stop.made:
            executor.spin_once(timeout_sec=LONGEST_SPIN_S)
    except (_Stopped, ExternalShutdownException):
        pass
    except InputError as error:
        print(error, file=sys.stderr, flush=True)
        return 2
    finally:
        stop.ignore_signals()
        if node is not None:
            node.close()
            node.destroy_node()
        rclpy.try_shutdown()
    return 0
