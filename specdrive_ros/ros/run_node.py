"""How every node of ours ends: Ctrl-C and SIGTERM are no errors, wrong parameters are one line."""

import os
import signal
import sys
from collections.abc import Callable, Sequence

from threading import Event, Thread

import rclpy
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions

from specdrive_ros.errors import InputError
from specdrive_ros.ros.log_folder import with_logging_that_works

SIGNALS = (signal.SIGINT, signal.SIGTERM)
LONGEST_SPIN_S = 0.1  # how late a signal is noticed
LONGEST_END_S = 0.9  # from the signal; then the process ends as it is


class _Stopped(BaseException):
    """A signal asked the process to end."""


class _StopRequest:
    """The first signal is noted in `made`, the following are ignored.

    While `interrupts` it also raises `_Stopped` where the main thread is: loading a model takes long. An import of
    compiled code may turn that into an exception of its own and go on, so `made` is asked as well. A spinning
    executor is not interrupted: an exception in the middle of rclpy's own code ends in other ways than planned.
    Python calls no handler while compiled code runs or a callback loads a model, so a thread of its own reads the
    signal's number from a pipe, and ends the process where the main thread does not get to it in time.
    """

    def __init__(self):
        self.made = False
        self.interrupts = True
        self._ended = Event()
        self._wake_up, self._written = os.pipe()
        os.set_blocking(self._written, False)
        signal.set_wakeup_fd(self._written, warn_on_full_buffer=False)
        for number in SIGNALS:
            signal.signal(number, self._take)
        Thread(target=self._end_in_time, name="end in time", daemon=True).start()

    def _end_in_time(self) -> None:
        os.read(self._wake_up, 1)
        if not self._ended.wait(LONGEST_END_S):
            os._exit(0)

    def has_ended(self) -> None:
        """All was closed in time."""
        self._ended.set()
        signal.set_wakeup_fd(-1)
        os.write(self._written, b"\0")  # the thread ends, too

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

    begin: called with the node before it spins. A node's `close` runs while it can still publish; it returns False
    where a thread of the node could not be ended.
    """
    stop = _StopRequest()
    node = None
    try:
        arguments, complaint = with_logging_that_works(sys.argv if arguments is None else arguments)
        if complaint:
            print(complaint, file=sys.stderr, flush=True)
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
        closed = _close(node)
        rclpy.try_shutdown()
        stop.has_ended()
    if not closed:
        sys.stdout.flush()
        os._exit(0)  # a thread is in compiled code that will not come back in time
    return 0


def _close(node: Node | None) -> bool:
    """False where something of the node still runs and cannot be waited for."""
    if node is None:
        return True
    if node.close() is False:
        return False
    node.destroy_node()
    return True
