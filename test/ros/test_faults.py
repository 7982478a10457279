"""Every fault of the fault source while the node plans: it is never silent, it names the fault, and it recovers."""

import os
import threading

import numpy as np
import pytest

pytest.importorskip("specdrive_ros.msg")
from diagnostic_msgs.msg import DiagnosticArray  # noqa: E402
from nav_msgs.msg import Odometry  # noqa: E402
from sensor_msgs.msg import Image  # noqa: E402
from specdrive_ros.msg import CycleStats, Trajectory  # noqa: E402
from specdrive_ros.ros import qos  # noqa: E402
from specdrive_ros.ros.conversions import nanoseconds  # noqa: E402
from specdrive_ros.ros.fault_source import FAULTS, FaultSource  # noqa: E402
from specdrive_ros.shapes import NANOSECONDS  # noqa: E402

from .own_time import OwnTime  # noqa: E402
from .small_world import CAMERAS, SUCCESS, make_planner  # noqa: E402

FAULT_S = 1.5
LONGEST_SILENCE_S = 1.0  # of its own time; 0.2 s is usual
NAMED = {  # fault -> word of a status that names it
    "camera_silent": "nothing on",
    "camera_slow": "a second; must be",
    "camera_frozen": "the same picture",
    "camera_corrupt": "refused",
    "camera_encoding": "telepathy8",
    "camera_size": "size changed",
    "camera_duplicate": "twice",
    "camera_burst": "older than",
    "odometry_silent": "nothing on",
    "odometry_nan": "not finite",
    "odometry_zero_quaternion": "zero quaternion",
    "odometry_duplicate": "twice",
    "odometry_disorder": "older than",
    "odometry_jump": "odometry jumps",
    "clock_back": "jumped",
}


class Watch:
    """Listens to the planner from beside it: when trajectories come, of what source, and every status message."""

    def __init__(self, graph):
        self.node = graph.listener("watch")
        self.came: list[int] = []
        self.said: set[str] = set()
        self.longest_silence_s, self._silence = 0.0, OwnTime()
        self.node.create_subscription(Trajectory, "/planner/output/trajectory", self._take, qos.deep(qos.output()))
        self.node.create_subscription(CycleStats, "/planner/output/cycle_stats", self._note, qos.deep(qos.output()))
        self.node.create_subscription(DiagnosticArray, "/diagnostics", self._read, qos.deep(qos.output()))

    def forget(self) -> None:
        """From now on."""
        self.came.clear(), self.said.clear()
        self.longest_silence_s, self._silence = 0.0, OwnTime()

    def _take(self, message: Trajectory) -> None:
        self.came.append(message.source)
        self.longest_silence_s = max(self.longest_silence_s, self._silence.passed_s())
        self._silence = OwnTime()

    def _note(self, message: CycleStats) -> None:
        self.said.add(message.fallback_text)

    def _read(self, message: DiagnosticArray) -> None:
        self.said |= {status.message for status in message.status}

    def plans_since(self, index: int) -> bool:
        return Trajectory.PLANNED in self.came[index:]


@pytest.fixture
def driven(graph):
    """(graph, source, watch) with an active planner that plans."""
    limits = ("camera_min_hz:=4", "camera_stale_s:=0.8", "odometry_stale_s:=0.8")
    node, _ = make_planner(graph, "deadline_ms:=400", *limits)
    assert node.trigger_configure() == SUCCESS and node.trigger_activate() == SUCCESS
    topics = [f"/planner/input/{camera}/image" for camera in CAMERAS]
    source = graph.add(
        FaultSource(topics, "/planner/input/odometry", size=(24, 32), slow_motion=True, context=graph.context,
                    use_global_arguments=False)
    )
    watch = Watch(graph)
    assert graph.spin_until(lambda: source.matched and watch.plans_since(0))
    yield graph, source, watch
    node.close()


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_comes_and_goes(driven, fault):
    graph, source, watch = driven
    source.set_faults(fault)  # a burst keeps this thread busy, in which the watch listens
    watch.forget()
    graph.spin_for(FAULT_S)
    if fault in NAMED:
        named = graph.spin_until(lambda: any(NAMED[fault] in text for text in watch.said))
        assert named, sorted(watch.said)
    source.set_faults()
    index = len(watch.came)
    assert graph.spin_until(lambda: watch.plans_since(index)), "it plans again"
    assert watch.longest_silence_s < LONGEST_SILENCE_S


def test_in_slow_motion_no_stamp_is_late(graph):
    source = FaultSource(["/image"], "/odometry", slow_motion=True, context=graph.context, use_global_arguments=False)
    stamps = {"/image": [], "/odometry": []}
    for topic, kind in (("/image", Image), ("/odometry", Odometry)):
        take = lambda message, kept=stamps[topic]: kept.append(nanoseconds(message.header.stamp))  # noqa: E731
        graph.listener(f"of{topic.replace('/', '_')}").create_subscription(kind, topic, take, qos.deep(qos.output()))
    for _ in range(20):  # at once, as if none had been on time
        source._tick()
    assert graph.spin_until(lambda: len(stamps["/odometry"]) == 20 and len(stamps["/image"]) == 10)
    assert {*np.diff(stamps["/odometry"])} == {NANOSECONDS // 20}
    assert {*np.diff(stamps["/image"])} == {NANOSECONDS // 10}
    source.destroy_node()


def test_every_fault_is_expected_to_be_named_or_harmless():
    assert set(FAULTS) - set(NAMED) == {"camera_old"}, "half a second old is what stamp_max_age_s is for"


def test_threads_and_files_do_not_grow_with_lives(graph):
    others = set(threading.enumerate())  # such as the last of another test's node
    node, _ = make_planner(graph)
    counts = []
    for _ in range(6):
        assert node.trigger_configure() == SUCCESS and node.trigger_activate() == SUCCESS
        assert node.trigger_deactivate() == SUCCESS and node.trigger_cleanup() == SUCCESS
        graph.spin_for(0.1)
        names = [thread.name for thread in set(threading.enumerate()) - others]
        counts.append((names.count("planner worker"), names.count("deadline watch"), len(os.listdir("/proc/self/fd"))))
    assert counts[-1][:2] == (0, 0) and counts[-1][2] <= counts[1][2] + 2
