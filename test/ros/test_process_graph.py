"""Sim, planner and controller as processes: they get ready, drive, and leave nothing behind."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from threading import Event

import pytest
from specdrive_ros.errors import WorkFailed
from specdrive_ros.ros.domain import own_domain

pytest.importorskip("specdrive_ros.msg")
from rclpy.task import Future  # noqa: E402
from specdrive_ros.ros import process_graph  # noqa: E402
from specdrive_ros.ros.drive_listener import DriveListener  # noqa: E402
from specdrive_ros.ros.process_graph import Child, NodeProcess, ProcessGraph, end_all  # noqa: E402
from specdrive_ros.shapes import PICTURE_SIZE  # noqa: E402
from std_srvs.srv import Trigger  # noqa: E402

from .conftest import PATIENCE_S  # noqa: E402

PLANNER = """
import sys
sys.path.insert(0, sys.argv[1])
from small_world import ConstantVelocity
from specdrive_ros.ros.planner_node import PlannerNode
from specdrive_ros.ros.run_node import run_node
ConstantVelocity.cameras = ("rgb_front",)
make = lambda: PlannerNode(lambda settings: ConstantVelocity())
sys.exit(run_node(make, sys.argv[2:], PlannerNode.autostart))
"""
STUBBORN = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("up", flush=True)
while True:
    signal.pause()
"""
PARENT = """
import sys
from pathlib import Path
from specdrive_ros.ros.process_graph import Child
child = Child("child", [sys.executable, "-c", "import signal; signal.pause()"], {}, Path(sys.argv[1]))
print(child.process.pid, flush=True)
sys.stdin.read()
"""


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except FileNotFoundError:
        return False


def wait_until(condition) -> bool:
    deadline = time.monotonic() + PATIENCE_S
    while not condition() and time.monotonic() < deadline:
        Event().wait(0.01)
    return condition()


def test_domains_are_claimed_once(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # where nobody else claims
    with own_domain() as first, own_domain() as second:
        assert first != second
    with own_domain() as again:
        assert again == first


def test_a_stubborn_process_is_ended(tmp_path):
    child = Child("stubborn", [sys.executable, "-c", STUBBORN], dict(os.environ), tmp_path / "log")
    assert wait_until(lambda: "up" in child.log.read_text())
    end_all([child], patience=0.05)
    child.process.wait(PATIENCE_S)
    assert child.process.returncode == -signal.SIGKILL


def test_a_dead_process_is_reported_with_its_last_words(tmp_path):
    code = "import sys; print('all is well'); sys.exit('the engine fell out')"
    child = Child("planner", [sys.executable, "-c", code], dict(os.environ), tmp_path / "log")
    child.process.wait(PATIENCE_S)
    with pytest.raises(WorkFailed, match="planner ended with exit code 1(.|\n)*the engine fell out"):
        child.check_alive()


def test_no_process_outlives_a_parent_that_was_killed(tmp_path):
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path / "log")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    child = int(parent.stdout.readline())
    assert is_running(child)
    parent.kill()
    parent.communicate()
    assert wait_until(lambda: not is_running(child))


def test_parameters_and_remappings_on_the_command_line():
    process = NodeProcess("sim_node", {"a": True, "b": ["x:1", "y"], "c": 2.0}, {"~/in": "/out"})
    command = process.command()
    assert command[1:3] == ["-m", "specdrive_ros.ros.sim_node"]
    assert "a:=true" in command and 'b:=["x:1", "y"]' in command and "c:=2.0" in command
    assert "~/in:=/out" in command


def test_a_graph_that_cannot_start_says_why_and_leaves_nothing(tmp_path):
    graph = ProcessGraph([("cruise", 1)], model="nowhere", out_dir=tmp_path)
    with pytest.raises(WorkFailed, match="planner is unconfigured(.|\n)*nowhere"):
        with graph:
            graph.run(DriveListener(graph.context, on_cycle=print, on_scenario=print))
    assert all(child.process.poll() is not None for child in graph.children)


def test_a_client_that_is_never_answered_is_followed_by_another(graph, monkeypatch, tmp_path):
    monkeypatch.setattr(process_graph, "ANSWER_S", 0.2)
    graph.listener("sim").create_service(Trigger, "/sim/start", lambda _, answer: answer)
    drive = ProcessGraph([("cruise", 1)], out_dir=tmp_path)
    drive._node, drive._executor = graph.listener("drive"), graph.executor
    create, made = drive._node.create_client, []

    def create_client(*arguments):
        made.append(create(*arguments))
        if len(made) == 1:  # as if the server had missed the client's announcement
            monkeypatch.setattr(made[0], "call_async", lambda request: Future())
        return made[-1]

    monkeypatch.setattr(drive._node, "create_client", create_client)
    assert isinstance(drive._ask(Trigger, "/sim/start", time.monotonic() + PATIENCE_S), Trigger.Response)
    assert len(made) >= 2


class ConstantVelocityProcess(NodeProcess):
    """The planner's process with the planner of `test_planner_node` in place of a model."""

    def command(self) -> list[str]:
        arguments = super().command()
        begin = arguments.index("--ros-args")
        return [sys.executable, "-c", PLANNER, str(Path(__file__).parent), *arguments[begin:]]


def test_drives_a_scenario_over_dds(tmp_path):
    cycles, events = [], []
    graph = ProcessGraph([("cruise", 1)], out_dir=tmp_path, seconds=4.0)
    graph.processes["planner"] = ConstantVelocityProcess(**vars(graph.processes["planner"]))
    with graph:
        listener = DriveListener(graph.context, on_cycle=cycles.append, on_scenario=events.append)
        graph.run(listener, timeout_s=PATIENCE_S)
        listener.close()
    assert [event["event"] for event in events if event["event"] != "label"] == [
        "start", "hand_over", "outcome", "finished",
    ]
    assert cycles and all(cycle.rgb.shape == (*PICTURE_SIZE, 3) for cycle in cycles)
    assert all(len(cycle.plan.xyz) == 64 for cycle in cycles)
    planned = [cycle for cycle in cycles if cycle.source == "planned"]  # a busy machine has others beside them
    assert planned and all(cycle.plan.reasoning for cycle in planned)
    assert 1.5 < planned[0].time_s < 10 and planned[0].scenario["name"] == "cruise"
    assert planned[0].plan.stage_ms["total"] > 0 and planned[0].pose.speed_mps > 0
    assert events[-2]["distance_m"] > 1.0, "the planner's trajectories moved the car"
    assert {child.process.returncode for child in graph.children} == {0}
    for child in graph.children:
        assert "Traceback" not in child.last_words()
