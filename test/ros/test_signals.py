"""SIGINT at any moment of a node's life: it ends soon, with exit code 0 and without a traceback."""

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

pytest.importorskip("specdrive_ros.msg")

from .own_time import OwnTime  # noqa: E402

ENDS_WITHIN_S = 5.0  # of its own time; a second is what is promised
LOOK_S = 0.02
HANGS = """
import hashlib, sys, time
sys.path.insert(0, {folder!r})
from small_world import ConstantVelocity
from specdrive_ros.ros.planner_node import PlannerNode
from specdrive_ros.ros.run_node import run_node

class Hangs(ConstantVelocity):
    def warm_up(self, cycles):
        print("WARM-UP", flush=True)
        if "warm-up" in sys.argv:
            hashlib.pbkdf2_hmac("sha256", b"", b"", 10**9)  # compiled code that looks at no signal
        return [{{}}]

    def plan(self, observation):
        print("PLANNING", flush=True)
        time.sleep(30.0)

def load(settings):
    print("LOADING", flush=True)
    if "load" in sys.argv:
        time.sleep(30.0)
    return Hangs()

Hangs.cameras = ("rgb_front",)
arguments = ["--ros-args", "-p", "autostart:=true"]
sys.exit(run_node(lambda: PlannerNode(load), arguments, PlannerNode.autostart))
"""
STARTS = """
from specdrive_ros.ros.starting import end_quietly_on_signals
end_quietly_on_signals()
print("UP", flush=True)
import runpy
runpy.run_module("specdrive_ros.ros.{module}", run_name="__main__")
"""


SPINS_LONG = """
import atexit, sys, time
sys.path.insert(0, {folder!r})
from small_world import ConstantVelocity
from specdrive_ros.ros import run_node
from specdrive_ros.ros.planner_node import PlannerNode

{patch}

def begin(node):
    PlannerNode.autostart(node)
    print("READY", flush=True)

class Still(PlannerNode):  # no timer of it wakes the executor
    def create_timer(self, *arguments, **options):
        pass

arguments = ["--ros-args", "-p", "autostart:=true"]
run_node.run_node(lambda: Still(lambda settings: ConstantVelocity()), arguments, begin)
"""
NOT_ENDED_BY_TIME = "run_node.LONGEST_END_S = 60.0"


def ended_quietly(process) -> None:
    own = OwnTime(process.pid)
    process.send_signal(signal.SIGINT)
    while own.passed_s() < ENDS_WITHIN_S:
        try:
            process.wait(LOOK_S)
        except subprocess.TimeoutExpired:
            continue
        break
    assert process.poll() is not None, f"it still runs after {ENDS_WITHIN_S} s"
    output = process.communicate()[0]
    assert "Traceback" not in output and process.returncode == 0, output


def wait_for(process, words: str) -> None:
    for line in process.stdout:
        if words in line:
            return
    raise AssertionError(f"it ended before it said {words}")


@pytest.mark.parametrize(("moment", "words"), [("load", "LOADING"), ("warm-up", "WARM-UP")])
def test_while_it_configures(graph, moment, words):
    process = graph.start("-c", HANGS.format(folder=str(Path(__file__).parent)), moment)
    wait_for(process, words)
    ended_quietly(process)


def test_while_a_plan_hangs(graph):
    from specdrive_ros.ros.fault_source import FaultSource

    process = graph.start("-c", HANGS.format(folder=str(Path(__file__).parent)), "plan")
    graph.add(
        FaultSource(["/planner/input/rgb_front/image"], "/planner/input/odometry", size=(24, 32),
                    slow_motion=True, context=graph.context, use_global_arguments=False)
    )
    planning = threading.Event()

    def read() -> None:
        for line in process.stdout:
            if "PLANNING" in line:
                planning.set()
                return

    threading.Thread(target=read, daemon=True).start()
    assert graph.spin_until(planning.is_set)
    ended_quietly(process)


@pytest.mark.parametrize(
    "patch",
    [
        f"{NOT_ENDED_BY_TIME}; run_node.LONGEST_SPIN_S = 60.0",
        f"{NOT_ENDED_BY_TIME}; atexit.register(time.sleep, 60.0)",
    ],
    ids=["the executor is woken", "the interpreter is not taken apart"],
)
def test_what_is_not_waited_for(graph, patch):
    process = graph.start("-c", SPINS_LONG.format(folder=str(Path(__file__).parent), patch=patch))
    wait_for(process, "READY")
    graph.spin_for(0.5)  # it is in the executor by now
    ended_quietly(process)


@pytest.mark.parametrize("module", ["planner_node", "controller_node", "sim_node"])
@pytest.mark.parametrize("after_s", [0.15, 0.5, 1.0])
def test_while_it_starts(graph, module, after_s):
    """Python itself needs the first tenth of a second, in which a signal is still its own affair."""
    process = graph.start("-c", STARTS.format(module=module))
    wait_for(process, "UP")
    graph.spin_for(after_s)
    ended_quietly(process)


def test_the_handlers_are_the_first_that_a_node_module_does():
    """Whatever is imported before them is imported without them."""
    for node in ("planner", "controller", "sim"):
        module = sys.modules.get(f"specdrive_ros.ros.{node}_node") or __import__(
            f"specdrive_ros.ros.{node}_node", fromlist=["main"]
        )
        lines = Path(module.__file__).read_text().splitlines()
        imports = [line for line in lines if line.startswith(("import", "from", "if "))]
        assert imports[:2] == ["import sys", 'if __name__ == "__main__":  # a signal while rclpy is being imported']
