"""How every node of ours ends: Ctrl-C and SIGTERM are no errors, wrong parameters are one line."""

import os
import re
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Thread
from typing import NoReturn

import rclpy
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions

from specdrive_ros.errors import InputError
from specdrive_ros.ros.log_folder import with_logging_that_works

SIGNALS = (signal.SIGINT, signal.SIGTERM)
LONGEST_SPIN_S = 0.1  # between two looks at the context
LONGEST_END_S = 0.5  # from the signal; then the process ends as it is, which takes a busy machine some tenths, too


class _Stopped(BaseException):
    """A signal asked the process to end."""


class _StopRequest:
    """The first signal is noted in `made`, the following are ignored.

    After `interrupt` it also raises `_Stopped` where the main thread is: loading a model takes long. An import of
    compiled code may turn that into an exception of its own and go on, so `made` is asked as well. A spinning
    executor is not interrupted: an exception in the middle of rclpy's own code ends in other ways than planned.
    Python calls no handler while compiled code runs or a callback loads a model, so a thread of its own reads the
    signal's number from a pipe, wakes the executor, and ends the process where the main thread does not in time.
    """

    def __init__(self):
        self.made = False
        self.interrupts = False
        self.wake: Callable[[], None] = lambda: None
        self._wake_up, self._written = os.pipe()
        os.set_blocking(self._written, False)
        signal.set_wakeup_fd(self._written, warn_on_full_buffer=False)
        for number in SIGNALS:
            signal.signal(number, self._take)
        Thread(target=self._end_in_time, name="end in time", daemon=True).start()

    def _end_in_time(self) -> None:
        os.read(self._wake_up, 1)
        with suppress(Exception):  # an executor that is just being taken down: the process has to end all the same
            self.wake()
        time.sleep(LONGEST_END_S)
        os._exit(0)

    def _take(self, number: int, frame: object) -> None:
        self.made = True
        self.ignore_signals()
        if self.interrupts:
            raise _Stopped

    def interrupt(self) -> None:
        """From now on a signal raises here; one that has come already does so at once."""
        self.interrupts = True
        if self.made:
            raise _Stopped

    def ignore_signals(self) -> None:
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)


def run_node(
    make: Callable[[], Node], arguments: Sequence[str] | None, begin: Callable = lambda node: None
) -> NoReturn:
    """Spins one node until a signal, then ends the process: with 0, or with 2 and a line for wrong parameters.

    begin: called with the node before it spins. A node's `close` runs while it can still publish; it returns False
    where a thread of the node could not be ended.
    """
    code = 0
    stop = _StopRequest()
    node = None
    try:
        try:
            stop.interrupt()
            arguments, complaint = with_logging_that_works(sys.argv if arguments is None else arguments)
            if complaint:
                print(complaint, file=sys.stderr, flush=True)
            _begin_ros(arguments)
            node = make()
            begin(node)
            _spin(node, stop)
        except InputError as error:
            code = 2
            print(error, file=sys.stderr, flush=True)
            stop.interrupts = False
    except (_Stopped, ExternalShutdownException):  # also one that came while the line was printed
        pass
    finally:
        stop.ignore_signals()
        _close(node)
        rclpy.try_shutdown()
    _end(code)


def _begin_ros(arguments: Sequence[str]) -> None:
    """Raises InputError for arguments and parameter files that ROS cannot read, less the place in its own sources."""
    try:
        rclpy.init(args=arguments, signal_handler_options=SignalHandlerOptions.NO)
    except RuntimeError as error:
        raise InputError(re.sub(r", at \S+:\d+", "", str(error))) from None


def _spin(node: Node, stop: _StopRequest) -> None:
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    stop.wake = lambda: executor.create_task(lambda: None)  # woken without work to do it would wait on
    stop.interrupts = False
    while rclpy.ok() and not stop.made:
        executor.spin_once(timeout_sec=LONGEST_SPIN_S)


def _close(node: Node | None) -> None:
    """A node of which something still runs that cannot be waited for is left as it is."""
    if node is not None and node.close() is not False:
        node.destroy_node()


def _end(code: int) -> NoReturn:
    """All is closed that others could notice. Taking networks and modules apart is left out: nobody needs it, a busy
    machine takes a second for it, and a thread may be in compiled code that does not come back.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
