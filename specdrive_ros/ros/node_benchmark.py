"""The planner as a process over DDS, fed in real time and observed from outside: latency, gaps, memory.

    measure_node("mini", minutes=10, faults=True, log_dir=out)

Latency is measured outside: from handing the image to DDS to receiving the trajectory with its stamp from DDS. ROS's
own share is that minus the stages that the planner reports and the wait for its previous cycle. With faults, each is
on for FAULT_S, then off for as long. `waited_s` is how long the planner's threads waited for a processor that others
had: if it is large, the times say more about the machine. Does not know what a plan is.
"""

import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from types import MappingProxyType

from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node

from specdrive_ros.errors import WorkFailed
from specdrive_ros.evaluation.process_usage import Usage, usage_of
from specdrive_ros.installation import data_file
from specdrive_ros.msg import CycleStats, Trajectory
from specdrive_ros.quantiles import quantiles
from specdrive_ros.ros import qos
from specdrive_ros.ros.conversions import nanoseconds, stages_ms
from specdrive_ros.ros.domain import DDS_PROFILE, dds_environment, own_domain
from specdrive_ros.ros.fault_source import FAULTS, FaultSource
from specdrive_ros.ros.process_graph import Child, NodeProcess, end_all
from specdrive_ros.sim.recorded_drive import record_drive

FAULT_S = 5.0
WARM_UP_S = 10.0
READY_S = 120.0
LOOK_S = 1.0
SPIN_S = 0.05
DRIVEN_SEED, SHOWN_CAMERA, LAP_S = 0, "rgb_front", 16.0
KEPT_STAMPS = 600  # a minute
WORK = ("wait", "decode", "vision", "prefill", "draft", "verify", "action", "check")
SOURCES = {Trajectory.PLANNED: "planned", Trajectory.REPUBLISHED: "republished", Trajectory.STOP: "stop"}


@dataclass
class Heard:
    """What the planner published; times in milliseconds."""

    latency_ms: list[float] = field(default_factory=list)
    overhead_ms: list[float] = field(default_factory=list)
    gaps_ms: list[float] = field(default_factory=list)
    stages_ms: dict[str, list[float]] = field(default_factory=dict)
    sources: Counter = field(default_factory=Counter)
    late: int = 0
    cycles: int = 0


class Listener:
    """Takes trajectories and statistics; a cycle is complete when both have arrived."""

    def __init__(self, context: Context, source: FaultSource):
        self.node = Node("benchmark_listener", context=context, use_global_arguments=False)
        self.heard = Heard()
        self._source, self._last_ns = source, None
        self._came: dict[int, float] = {}  # stamp -> ms until its first trajectory, whatever its source
        self._planned: dict[int, float] = {}  # … until the model's own plan
        self.node.create_subscription(Trajectory, "/planner/output/trajectory", self._take, qos.deep(qos.output()))
        self.node.create_subscription(CycleStats, "/planner/output/cycle_stats", self._note, qos.deep(qos.output()))

    def forget(self) -> None:
        """Discards everything so far as warm-up."""
        self.heard, self._last_ns = Heard(), None

    def _take(self, message: Trajectory) -> None:
        now_ns, stamp_ns = time.monotonic_ns(), nanoseconds(message.header.stamp)
        if self._last_ns is not None:
            self.heard.gaps_ms.append((now_ns - self._last_ns) / 1e6)
        self._last_ns = now_ns
        self.heard.sources[SOURCES[message.source]] += 1
        sent_ns = self._source.sent_ns.get(stamp_ns)
        if sent_ns is None:
            return
        latency_ms = (now_ns - sent_ns) / 1e6
        if stamp_ns not in self._came:
            self._came[stamp_ns] = latency_ms
            self.heard.latency_ms.append(latency_ms)
        if message.source == Trajectory.PLANNED:
            self._planned[stamp_ns] = latency_ms
        for kept in (self._came, self._planned):
            while len(kept) > KEPT_STAMPS:
                del kept[next(iter(kept))]

    def _note(self, message: CycleStats) -> None:
        self.heard.cycles += 1
        self.heard.late += message.late
        latency_ms = self._planned.get(nanoseconds(message.header.stamp))
        if latency_ms is not None and message.fallback_reason == CycleStats.NONE:
            stages = stages_ms(message)
            self.heard.overhead_ms.append(latency_ms - sum(stages[stage] for stage in WORK))
            for stage, ms in stages.items():
                self.heard.stages_ms.setdefault(stage, []).append(ms)


def measure_node(
    model: str,
    *,
    minutes: float,
    faults: bool,
    log_dir: Path,
    runtime: str = "onnxruntime",
    draft: str = "none",
    noise: bool = False,
    cameras: Sequence[str] = ("rgb_front",),
    parameters: Mapping[str, object] = MappingProxyType({}),
    module: str = "planner_node",
    on_second: Callable[[int], None] = lambda second: None,
) -> dict:
    """The document of `bench node --json`. Raises WorkFailed if the planner dies or does not get ready.

    noise: as images, instead of a drive: the worst case for drafts, as no sentence is like the one before.
    parameters: further ones of the planner node.
    """
    drive = None if noise else record_drive("cruise", DRIVEN_SEED, SHOWN_CAMERA, LAP_S)
    with ExitStack() as stack:
        domain = stack.enter_context(own_domain())
        environment = os.environ | dds_environment(domain, data_file(DDS_PROFILE))
        os.environ.update(dds_environment(domain, data_file(DDS_PROFILE)))
        context = Context()
        context.init(args=[], domain_id=domain)
        stack.callback(context.try_shutdown)
        topics = [f"/planner/input/{camera}/image" for camera in cameras]
        source = FaultSource(
            topics, "/planner/input/odometry", drive=drive, context=context, use_global_arguments=False
        )
        listener = Listener(context, source)
        executor = SingleThreadedExecutor(context=context)
        for node in (source, listener.node):
            executor.add_node(node)
            stack.callback(node.destroy_node)
        log_dir.mkdir(parents=True, exist_ok=True)
        own = {"model": model, "runtime": runtime, "draft": draft, "autostart": True}
        command = NodeProcess(module, {**parameters, **own}, {}).command()
        began = time.monotonic()
        child = Child("planner", command, environment, log_dir / "planner.log")
        stack.callback(end_all, [child])
        _spin(executor, child, lambda: bool(listener.heard.cycles), READY_S)
        active_s = time.monotonic() - began
        _spin(executor, child, lambda: listener.heard.sources["planned"] > 0, READY_S)
        _spin_for(executor, child, WARM_UP_S)
        listener.forget()
        looks = _soak(executor, child, source, minutes * 60, faults, on_second)
        document = _document(model, listener.heard, looks, active_s, faults, _exit_s(executor, child))
        return document | {"images": "noise" if noise else "drive", "parameters": dict(parameters)}


def _soak(executor, child: Child, source: FaultSource, seconds: float, faults: bool, on_second) -> list[Usage]:
    """Runs for `seconds` and takes a snapshot of the planner's process once a second."""
    looks, names = [usage_of(child.process.pid)], list(FAULTS)
    began = time.monotonic()
    while (passed := time.monotonic() - began) < seconds:
        turn, on = divmod(int(passed / FAULT_S), 2)
        wanted = {names[turn % len(names)]} if faults and on else set()
        if wanted != source.faults:
            source.set_faults(*wanted)
        _spin_for(executor, child, min(LOOK_S, seconds - passed))
        looks.append(usage_of(child.process.pid))
        on_second(int(passed))
    source.set_faults()
    return looks


def _spin(executor, child: Child, done: Callable[[], bool], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while not done():
        child.check_alive()
        if time.monotonic() > deadline:
            raise WorkFailed(f"the planner says nothing after {timeout_s:.0f} s: {child.last_words()}")
        executor.spin_once(timeout_sec=SPIN_S)


def _spin_for(executor, child: Child, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        executor.spin_once(timeout_sec=SPIN_S)  # always the same: another timeout restarts at the first topic
    child.check_alive()


def _exit_s(executor, child: Child) -> float:
    """Seconds from SIGINT to the end of the process."""
    began = time.monotonic()
    child.process.send_signal(2)
    child.process.wait(30.0)
    return time.monotonic() - began


def _document(
    model: str, heard: Heard, looks: Sequence[Usage], active_s: float, faults: bool, exit_s: float
) -> dict:
    first, last = looks[0], looks[-1]
    return {
        "version": 1,
        "model": model,
        "faults": sorted(FAULTS) if faults else [],
        "latency_ms": _quantiles(heard.latency_ms),
        "ros_overhead_ms": _quantiles(heard.overhead_ms),
        "stages_ms": {stage: _quantiles(values) for stage, values in heard.stages_ms.items()},
        "silence_ms": _quantiles(heard.gaps_ms),
        "messages": sum(heard.sources.values()),
        "lost": heard.cycles - sum(heard.sources.values()),
        "sources": dict(heard.sources),
        "late": heard.late,
        "start_to_active_s": round(active_s, 2),
        "sigint_to_exit_s": round(exit_s, 3),
        "memory_mib": _course([look.memory_mib for look in looks]),
        "shared_memory_mib": _course([look.shared_memory_mib for look in looks]),
        "threads": {"first": first.threads, "last": last.threads},
        "files": {"first": first.files, "last": last.files},
        "waited_s": round(last.waited_s - first.waited_s, 2),
        "cpu_s_per_cycle": round((last.cpu_s - first.cpu_s) / max(1, heard.cycles), 4),
    }


def _course(values: Sequence[float]) -> dict[str, float]:
    """First, last and largest of what was seen once a second, and what the median grew by from the first to the last
    tenth: the memory of a picture or two comes and goes."""
    tenth = max(1, len(values) // 10)
    growth = median(values[-tenth:]) - median(values[:tenth])
    course = {"first": values[0], "last": values[-1], "growth": growth, "max": max(values)}
    return {name: round(value, 2) for name, value in course.items()}


def _quantiles(values: Sequence[float]) -> dict[str, float]:
    return quantiles(values, digits=2) if values else {}
