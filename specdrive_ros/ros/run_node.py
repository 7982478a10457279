"""How every node of ours ends: Ctrl-C and SIGTERM are not errors, wrong parameters give one line."""

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
LONGEST_SPIN_S = 0.1  # between two checks of the context
LONGEST_END_S = 0.5  # from the signal on; then the process exits as it is, which takes a busy machine some tenths more


class _Stopped(BaseException):
    """A signal asked the process to end."""


class _StopRequest:
    """Records the first signal in `made`; later ones are ignored.

    After `interrupt` it also raises `_Stopped` in the main thread, because loading a model takes long. An import of
    compiled code may turn that into an exception of its own and go on, so `made` is checked as well. A spinning
    executor is not interrupted: an exception in the middle of rclpy's own code ends in unplanned ways. Python calls no
    handler while compiled code runs or a callback loads a model, so a separate thread reads the signal's number from a
    pipe, wakes the executor, and ends the process if the main thread does not in time.
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
        with suppress(Exception):  # the executor may just be shutting down: the process has to end all the same
            self.wake()
        time.sleep(LONGEST_END_S)
        os._exit(0)

    def _take(self, number: int, frame: object) -> None:
        self.made = True
        self.ignore_signals()
        if self.interrupts:
            raise _Stopped

    def interrupt(self) -> None:
        """From now on a signal raises `_Stopped`; one that has already come does so at once."""
        self.interrupts = True
        if self.made:
            raise _Stopped

    def ignore_signals(self) -> None:
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)


def run_node(
    make: Callable[[], Node], arguments: Sequence[str] | None, begin: Callable = lambda node: None
) -> NoReturn:
    """Spins one node until a signal, then ends the process: with 0, or with 2 and one line for wrong parameters.

    begin: called with the node before it spins. A node's `close` runs while it can still publish; it returns False if
           a thread of the node could not be ended.
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
    except (_Stopped, ExternalShutdownException):  # also one that came while the line was being printed
        pass
    finally:
        stop.ignore_signals()
        _close(node)
        rclpy.try_shutdown()
    _end(code)


def _begin_ros(arguments: Sequence[str]) -> None:
    """Raises InputError for arguments and parameter files that ROS cannot read, without the location in its own
    sources."""
    try:
        rclpy.init(args=arguments, signal_handler_options=SignalHandlerOptions.NO)
    except RuntimeError as error:
        raise InputError(re.sub(r", at \S+:\d+", "", str(error))) from None


def _spin(node: Node, stop: _StopRequest) -> None:
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    stop.wake = lambda: executor.create_task(lambda: None)  # woken without work to do, it would keep waiting
    stop.interrupts = False
    while rclpy.ok() and not stop.made:
        executor.spin_once(timeout_sec=LONGEST_SPIN_S)


def _close(node: Node | None) -> None:
    """A node with a thread that cannot be waited for is not destroyed."""
    if node is not None and node.close() is not False:
        node.destroy_node()


def _end(code: int) -> NoReturn:
    """Ends the process at once; everything visible to others is closed. Networks and modules are not torn down: nobody
    needs it, a busy machine takes a second for it, and a thread may be in compiled code that does not return.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
