"""The drive's processes: sim, planner and controller, each separate, over DDS in a domain of their own.

    with ProcessGraph([("cruise", 3)], model="mini", out_dir=out) as graph:
        graph.run(DriveListener(graph.context, on_cycle=show, on_scenario=note))

Starts them, waits until the graph reports that they are ready, starts the sim and serves the listener until the last
scenario has ended. A process that dies ends the drive, with its last output in the error. None of them outlives this
process, however it ends. Does not know what is done with what they publish.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from lifecycle_msgs.msg import State
from lifecycle_msgs.srv import GetState
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from std_srvs.srv import Trigger

from specdrive_ros.errors import InputError, WorkFailed
from specdrive_ros.installation import data_file
from specdrive_ros.ros.domain import DDS_PROFILE, dds_environment, own_domain
from specdrive_ros.ros.drive_listener import DriveListener

ROLE = "/carla/ego_vehicle"
CAR_INPUTS = {f"~/input/{name}": f"{ROLE}/{name}" for name in ("odometry", "vehicle_info")}
READY_TIMEOUT_S = 300.0  # a large model takes minutes to load; a process that dies is noticed at once
ANSWER_S = 2.0
CATCH_UP_S = 10.0  # at most, to receive what was sent before the end; a planner sends diagnostics twice a second
LAST_LINES = 15
GRACE_S = {signal.SIGINT: 10.0, signal.SIGTERM: 5.0, signal.SIGKILL: 20.0}  # half a second is usual
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None)


@dataclass(frozen=True)
class NodeProcess:
    """One node to start: its module in `specdrive_ros.ros`, parameters and remappings."""

    module: str
    parameters: dict[str, object]
    remappings: dict[str, str]

    def command(self) -> list[str]:
        arguments = [sys.executable, "-m", f"specdrive_ros.ros.{self.module}", "--ros-args"]
        for name, value in self.parameters.items():
            arguments += ["-p", f"{name}:={_yaml(value)}"]
        for inside, outside in self.remappings.items():
            arguments += ["-r", f"{inside}:={outside}"]
        return arguments


def _yaml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_yaml(element) for element in value) + "]"
    return f'"{value}"' if isinstance(value, str) else str(value)


class Child:
    """A running node process and its log; leads a process group, so that its own children end with it."""

    def __init__(self, name: str, command: Sequence[str], environment: dict[str, str], log: Path):
        self.name, self.log = name, log
        parent = os.getpid()
        with log.open("wb") as sink:
            self.process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=lambda: _end_with_parent(parent),
            )

    def check_alive(self) -> None:
        """Raises WorkFailed with its last output if the process has ended."""
        if self.process.poll() is not None:
            ended = _how_ended(self.process.returncode)
            raise WorkFailed(f"{self.name} {ended}: {self.last_words()} (all: {self.log})")

    def last_words(self) -> str:
        lines = self.log.read_text(errors="replace").strip().splitlines()[-LAST_LINES:]
        return "\n".join(lines) or "it said nothing"

    def send(self, number: signal.Signals) -> None:
        try:
            os.killpg(self.process.pid, number)
        except ProcessLookupError:
            pass  # the whole group has ended


def _end_with_parent(parent: int) -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        os._exit(1)  # the parent ended before the request was made


def _how_ended(code: int) -> str:
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def end_all(children: Sequence[Child], patience: float = 1.0) -> None:
    """Sends SIGINT, SIGTERM, then SIGKILL to every process group, waiting `GRACE_S` times `patience` after each."""
    for number, grace_s in GRACE_S.items():
        running = [child for child in children if child.process.poll() is None]
        if not running:
            return
        for child in running:
            child.send(number)
        _wait(running, time.monotonic() + patience * grace_s)


def _wait(children: Sequence[Child], deadline_s: float) -> None:
    for child in children:
        try:
            child.process.wait(max(0.0, deadline_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            return


class ProcessGraph:
    """Sim, planner and controller as processes; a context manager.

    scenarios: (family, seed) in the order to drive.
    model:     name or folder of a checkpoint, run on `runtime` with `draft`; `seed` is the planner's.
    out_dir:   the processes' logs go to its `log/`.
    seconds:   ends each scenario after this long; None lets the world decide.
    deadline_ms: of a cycle, from image to trajectory.
    appearance: how the worlds look, `train` or `held_out`.
    cameras:   of the car, as the model wants them.
    output:    the message the controller sends, `ackermann` or `carla`.
    processes: what is started, by name; may be changed before the context is entered.
    Raises InputError for wrong arguments, WorkFailed if a process dies or does not get ready.
    """

    def __init__(
        self,
        scenarios: Sequence[tuple[str, int]],
        *,
        model: str | Path = "mini",
        out_dir: Path,
        runtime: str = "onnxruntime",
        draft: str = "none",
        seed: int = 0,
        seconds: float | None = None,
        deadline_ms: float = 100.0,
        appearance: str = "train",
        cameras: Sequence[str] = ("rgb_front",),
        output: str = "ackermann",
    ):
        if not scenarios:
            raise InputError("drive: no scenarios; name at least one")
        self.log_dir = Path(out_dir) / "log"
        self.context = Context()
        self.children: list[Child] = []
        self.processes = {
            "sim": _sim(scenarios, seconds, appearance, cameras),
            "planner": _planner(model, runtime, draft, seed, deadline_ms, cameras),
            "controller": _controller(output),
        }
        self._stack = ExitStack()

    def __enter__(self) -> "ProcessGraph":
        with ExitStack() as stack:
            domain = stack.enter_context(own_domain())
            environment = dds_environment(domain, data_file(DDS_PROFILE))
            self.log_dir.mkdir(parents=True, exist_ok=True)
            stack.callback(lambda: end_all(self.children))
            self._start(environment | {"ROS_LOG_DIR": str(self.log_dir)})
            stack.enter_context(_environment(environment))
            self.context.init(args=[], domain_id=domain)
            stack.callback(self.context.try_shutdown)
            self._node = Node("drive", context=self.context, use_global_arguments=False)
            stack.callback(self._node.destroy_node)
            self._executor = SingleThreadedExecutor(context=self.context)
            self._executor.add_node(self._node)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exception) -> None:
        self._stack.close()

    def _start(self, environment: dict[str, str]) -> None:
        for name, process in self.processes.items():
            log = self.log_dir / f"{name}.log"
            self.children.append(Child(name, process.command(), os.environ | environment, log))

    def run(self, listener: DriveListener, timeout_s: float | None = None) -> None:
        """Starts the scenarios once everything is ready and serves the listener until the last one has ended.

        Raises WorkFailed if a process dies, is not ready in time, or `timeout_s` passes.
        """
        self._executor.add_node(listener.node)
        try:
            self.wait_until_ready(listener)
            self._spin(lambda: listener.finished, timeout_s or float("inf"), "the last scenario to end")
            self._spin_for(lambda: listener.caught_up, CATCH_UP_S)
            listener.hand_on_rest()
        finally:
            self._executor.remove_node(listener.node)

    def wait_until_ready(self, listener: DriveListener, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Waits until the planner is active, the listener matched and the sim started: by state and graph, not by
        time."""
        deadline = time.monotonic() + timeout_s
        state = self._ask(GetState, "/planner/get_state", deadline).current_state
        if state.id != State.PRIMARY_STATE_ACTIVE:
            said = self._child("planner").last_words()
            raise WorkFailed(f"planner is {state.label}, must be active: {said}")
        self._spin(lambda: listener.matched, deadline - time.monotonic(), "the planner's topics")
        answer = self._ask(Trigger, "/sim/start", deadline)
        while not answer.success:
            if time.monotonic() > deadline:
                raise WorkFailed(f"sim: not ready in {timeout_s:.0f} s: {answer.message}")
            self._executor.spin_once(timeout_sec=0.05)
            answer = self._ask(Trigger, "/sim/start", deadline)

    def _ask(self, kind: type, service: str, deadline_s: float):
        """The answer of a service whose request may safely be made twice.

        It may be repeated because a server that has not discovered the client yet sends its answer to nobody. Each
        time it is a new client, hence discovered anew: a server that has missed one's endpoints goes on missing them.
        """
        while True:
            client = self._node.create_client(kind, service)
            try:
                self._spin(client.service_is_ready, deadline_s - time.monotonic(), service)
                future = client.call_async(kind.Request())
                if self._spin_for(future.done, ANSWER_S):
                    return future.result()
            finally:
                self._node.destroy_client(client)
            if time.monotonic() > deadline_s:
                raise WorkFailed(f"{service} does not answer; see {self.log_dir}")

    def _spin(self, done: Callable[[], bool], timeout_s: float, what: str) -> None:
        if not self._spin_for(done, timeout_s):
            raise WorkFailed(f"waited {timeout_s:.0f} s for {what}; see {self.log_dir}")

    def _spin_for(self, done: Callable[[], bool], timeout_s: float) -> bool:
        """Serves the nodes until `done` or the timeout; returns whether done. Raises WorkFailed if a process has
        died."""
        deadline = time.monotonic() + timeout_s
        while not done():
            for child in self.children:
                child.check_alive()
            if time.monotonic() > deadline:
                return False
            self._executor.spin_once(timeout_sec=0.1)
        return True

    def _child(self, name: str) -> Child:
        return next(child for child in self.children if child.name == name)


def _environment(variables: dict[str, str]) -> ExitStack:
    """Sets variables of this process for the duration of the context: its own DDS participant needs them."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    stack = ExitStack()
    for name, value in before.items():
        stack.callback(os.environ.pop, name, None) if value is None else stack.callback(
            os.environ.__setitem__, name, value
        )
    return stack


def _sim(
    scenarios: Sequence[tuple[str, int]], seconds: float | None, appearance: str, cameras: Sequence[str]
) -> NodeProcess:
    named = [f"{family}:{seed}" for family, seed in scenarios]
    parameters = {"scenarios": named, "appearance": appearance, "cameras": list(cameras), "autostart": False}
    if seconds is not None:
        parameters["max_seconds"] = float(seconds)
    return NodeProcess("sim_node", parameters, {})


def _planner(
    model: str | Path, runtime: str, draft: str, seed: int, deadline_ms: float, cameras: Sequence[str]
) -> NodeProcess:
    inputs = {f"~/input/{camera}/image": f"{ROLE}/{camera}/image" for camera in cameras}
    return NodeProcess(
        "planner_node",
        {
            "model": str(model),
            "runtime": runtime,
            "draft": draft,
            "seed": seed,
            "deadline_ms": float(deadline_ms),
            "use_sim_time": True,
            "autostart": True,
        },
        inputs | CAR_INPUTS,
    )


def _controller(output: str) -> NodeProcess:
    return NodeProcess(
        "controller_node",
        {"output": output, "use_sim_time": True},
        {
            "~/input/trajectory": "/planner/output/trajectory",
            **CAR_INPUTS,
            "~/output/ackermann_cmd": f"{ROLE}/ackermann_cmd",
            "~/output/vehicle_control_cmd": f"{ROLE}/vehicle_control_cmd",
        },
    )
