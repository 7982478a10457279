"""What the script answers before there is any environment, and the package as colcon sees it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .script import SCRIPT

ANSWERS_ALONE = [
    "__init__.py",
    "errors.py",
    "__main__.py",
    "cli/__init__.py",
    "cli/commands.py",
    "cli/main.py",
]


@pytest.fixture
def bare_checkout(tmp_path):
    """The script and the few modules that answer `--help`, with no environment."""
    for name in ANSWERS_ALONE:
        target = tmp_path / "specdrive_ros" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(SCRIPT.parent / "specdrive_ros" / name, target)
    return shutil.copy(SCRIPT, tmp_path)


@pytest.mark.parametrize(
    "argument, code, stream, says",
    [
        ("--help", 0, "stdout", "drive"),
        ("--version", 0, "stdout", "specdrive 0."),
        ("drvie", 2, "stderr", "invalid choice: 'drvie'"),
    ],
)
def test_help_version_and_misspellings_are_answered_at_once(bare_checkout, argument, code, stream, says):
    done = subprocess.run([sys.executable, "-S", bare_checkout, argument], capture_output=True, text=True)
    assert done.returncode == code and says in getattr(done, stream)
    assert not Path(bare_checkout).with_name(".venv").exists()


def test_error_of_the_bootstrap_is_one_line_and_exit_2(bare_checkout):
    made_for_system_ros = Path(bare_checkout).with_name(".venv") / "pyvenv.cfg"
    made_for_system_ros.parent.mkdir()
    made_for_system_ros.write_text("include-system-site-packages = true\n")
    shutil.copy(SCRIPT.with_name("pyproject.toml"), made_for_system_ros.parents[1])
    variables = {name: value for name, value in os.environ.items() if name != "ROS_DISTRO"}
    done = subprocess.run(
        [sys.executable, "-S", bare_checkout, "test"], capture_output=True, text=True, env=variables
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("specdrive: error: ") and done.stderr.count("\n") == 1


def test_colcon_takes_every_package_for_a_ros_package(checkout):
    pytest.importorskip("colcon_package_information")
    packages = [checkout, *(checkout / "interfaces").iterdir()]
    command = "import sys; from colcon_core.command import main; sys.exit(main())"
    listed = subprocess.run(
        [sys.executable, "-c", command, "--log-base", os.devnull, "list", "--paths", *packages],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert {line.split()[0]: line.split()[-1] for line in listed} == dict.fromkeys(
        ["specdrive_ros", "ackermann_msgs", "carla_msgs", "tf2_msgs"], "(ros.ament_cmake)"
    )


def test_versions_agree(checkout):
    import specdrive_ros

    assert f"<version>{specdrive_ros.__version__}</version>" in (checkout / "package.xml").read_text()
