"""The soak in small: the real planner as a process, faults and all, and what is said of it."""

import mmap
import os
import re
import subprocess
import sys

import pytest

pytest.importorskip("specdrive_ros.msg")
from specdrive_ros.cli import bench_node  # noqa: E402
from specdrive_ros.errors import InputError, WorkFailed  # noqa: E402
from specdrive_ros.evaluation.process_usage import usage_of  # noqa: E402
from specdrive_ros.ros import node_benchmark  # noqa: E402
from specdrive_ros.ros.conversions import STAGES  # noqa: E402
from specdrive_ros.ros.fault_source import FAULTS  # noqa: E402


def test_a_short_soak(tmp_path, monkeypatch):
    monkeypatch.setattr(node_benchmark, "WARM_UP_S", 1.0)
    monkeypatch.setattr(node_benchmark, "FAULT_S", 0.5)
    document = node_benchmark.measure_node("mini", minutes=0.2, faults=True, log_dir=tmp_path,
                                           parameters={"action_steps_late": 2})
    assert document["parameters"] == {"action_steps_late": 2}
    assert document["faults"] == sorted(FAULTS)
    assert document["messages"] > 20 and abs(document["lost"]) <= 2
    assert document["silence_ms"]["max"] < 2000.0 + 1000 * document["waited_s"], "0.2 s is usual"
    assert set(STAGES) == set(document["stages_ms"])
    assert document["ros_overhead_ms"]["median"] < document["latency_ms"]["max"]
    assert document["latency_ms"]["median"] > 0 and document["start_to_active_s"] > 0
    assert document["threads"]["last"] <= document["threads"]["first"] + 2
    assert document["files"]["last"] <= document["files"]["first"] + 2
    assert all(isinstance(line, str) for line in bench_node.lines_of(document))
    assert "Traceback" not in (tmp_path / "planner.log").read_text()


def test_a_planner_that_cannot_start_is_said_with_its_last_words(tmp_path):
    with pytest.raises(WorkFailed, match="no such parameter|not a module|No module|ended"):
        node_benchmark.measure_node("mini", minutes=0.1, faults=False, log_dir=tmp_path, module="no_such_node")


def test_parameters_have_the_types_of_the_planner_s_own_table():
    found = bench_node.parameters_of(["action_steps_late=2", "deadline_ms=90", "deadline_policy=stop"])
    assert found == {"action_steps_late": 2, "deadline_ms": 90.0, "deadline_policy": "stop"}
    assert isinstance(found["deadline_ms"], float)


@pytest.mark.parametrize("pair, message", [
    ("deadline_ms", "must be NAME=VALUE with one of action_steps_late, "),
    ("no_such=1", "must be NAME=VALUE with one of"),
    ("model=other", "must be NAME=VALUE with one of"),  # has an argument of its own
    ("deadline_policy=hurry", "parameter deadline_policy: 'hurry'; must be one of off, shorten, republish, stop"),
    ("action_steps_late=}", "action_steps_late=}: cannot be read; must be int from 0 to"),
    ("action_steps_late=", "parameter action_steps_late: None; must be int from 0 to"),
])
def test_parameters_that_the_planner_would_refuse(pair, message):
    with pytest.raises(InputError, match=re.escape(message)):
        bench_node.parameters_of([pair])


def test_usage_of_this_process():
    usage = usage_of(os.getpid())
    assert usage.memory_mib > 10 and usage.threads >= 1 and usage.files >= 3 and usage.cpu_s > 0 and usage.waited_s >= 0
    with pytest.raises(FileNotFoundError):
        usage_of(2**22 + 1)


def test_usage_of_a_process_that_has_just_died():
    child = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # dead, and not taken note of
    assert usage_of(child.pid).memory_mib == 0
    child.wait()


def test_memory_that_others_share_is_not_the_process_s():
    mine = os.getpid()
    before = usage_of(mine)
    with mmap.mmap(-1, 64 * 2**20) as shared:  # anonymous and shared: of the kind of DDS's segments
        shared.write(b"x" * len(shared))
        between = usage_of(mine)
    assert 63 < between.shared_memory_mib - before.shared_memory_mib < 65
    assert abs(between.memory_mib - before.memory_mib) < 32


def test_growth_is_that_of_the_medians_of_the_first_and_the_last_tenth():
    course = node_benchmark._course([10.0] * 9 + [40.0] + [20.0] * 80 + [12.0] * 9 + [5.0])
    assert course == {"first": 10.0, "last": 5.0, "growth": 2.0, "max": 40.0}
    assert node_benchmark._course([3.0])["growth"] == 0
