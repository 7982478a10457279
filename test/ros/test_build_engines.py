"""The planner node that builds engines and exits, as a process of its own."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("specdrive_ros.msg")

from specdrive_ros.engine.store import EngineStore
from specdrive_ros.engine.tensorrt import RTX, find_tensorrt
from specdrive_ros.errors import InputError

PROFILE = """
builder: tensorrt_rtx
targets: ["8.9"]
precision: fp32
graphs:
  action_step:
    - {S: [1, 16, 32]}
"""


def run_planner(folder, profile):
    program = [
        sys.executable,
        "-m",
        "specdrive_ros.ros.planner_node",
        "--ros-args",
        "-p",
        f"build_engines_only:={profile}",
    ]
    environment = {**os.environ, "SPECDRIVE_ENGINES": str(folder)}
    return subprocess.run(program, env=environment, capture_output=True, text=True, timeout=300)


def test_builds_and_exits(tmp_path):
    try:
        find_tensorrt(RTX)
    except InputError as error:
        pytest.skip(str(error))
    profile = tmp_path / "small.yaml"
    profile.write_text(PROFILE)
    done = run_planner(tmp_path / "engines", profile)
    assert done.returncode == 0, done.stderr
    assert "building action_step" in done.stderr + done.stdout and "1 built, 0 up to date" in done.stderr + done.stdout
    (entry,) = EngineStore(tmp_path / "engines").entries()
    assert EngineStore(tmp_path / "engines").load(entry.identity).content
    assert "0 built, 1 up to date" in (again := run_planner(tmp_path / "engines", profile)).stderr + again.stdout


def test_wrong_profile_is_one_line(tmp_path):
    done = run_planner(tmp_path / "engines", "none")
    assert done.returncode == 2 and not (tmp_path / "engines").exists()
    assert done.stderr.splitlines()[-1].startswith("profile 'none': no such file, nor a name; known names: ")
