"""What the script says where it cannot go on: one line that says why."""

import ast
import sys

import pytest

from .script import SCRIPT, load


def test_an_old_python_is_told_so(monkeypatch):
    monkeypatch.setattr(sys, "version_info", (3, 9, 2))
    with pytest.raises(SystemExit, match=r"error: this is Python 3\.9; 3\.10 or later is needed"):
        load()


def test_an_old_python_can_parse_the_script():
    ast.parse(SCRIPT.read_text(), feature_version=(3, 8))


def test_machine_without_wheels_is_told_to_source_ros(bootstrap, monkeypatch):
    monkeypatch.setattr(bootstrap.platform, "machine", lambda: "aarch64")
    with pytest.raises(bootstrap.SetupError, match="aarch64; source a system ROS 2"):
        bootstrap.make_venv(None)


def test_environment_of_a_system_ros_is_not_completed_with_wheels(bootstrap):
    (bootstrap.VENV / "pyvenv.cfg").write_text("include-system-site-packages = true\n")
    with pytest.raises(bootstrap.SetupError, match="source it and run again, or delete"):
        bootstrap.make_venv(None)


def test_an_environment_of_another_checkout_behind_a_link_is_not_emptied(bootstrap, monkeypatch):
    others = bootstrap.VENV.rename(bootstrap.ROOT / "others")
    bootstrap.VENV.symlink_to(others)
    bootstrap.write_stamp("venv", "/elsewhere/checkout python wheels")
    monkeypatch.setattr(bootstrap, "run_logged", lambda *_: pytest.fail("it was made anew"))
    with pytest.raises(bootstrap.SetupError, match="is a link to .*others, which .*; delete the link and run again"):
        bootstrap.make_venv(None)


def test_missing_compiler_is_named(bootstrap, monkeypatch):
    monkeypatch.setattr(bootstrap.shutil, "which", lambda name: None)
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(bootstrap.SetupError, match=r"no C\+\+ compiler .*apt install g\+\+"):
        bootstrap.check_compiler()


def test_missing_python_headers_are_named(bootstrap, monkeypatch):
    monkeypatch.setattr(bootstrap, "python_says", lambda code: "/nowhere\n")
    with pytest.raises(bootstrap.SetupError, match=r"no Python\.h in /nowhere .*python3-dev"):
        bootstrap.check_compiler()


@pytest.mark.parametrize(
    "lines, says",
    [
        (
            [
                "WARNING: Retrying ... NewConnectionError('...')",
                "ERROR: Could not find a version",
                "ERROR: No matching distribution found for numpy>=1.26",
            ],
            "no connection to the package registry: No matching distribution found for numpy>=1.26",
        ),
        (
            ["Collecting numpy", "ERROR: No matching distribution found for numpy>=99"],
            "No matching distribution found for numpy>=99",
        ),
        (
            [
                "Starting >>> specdrive_ros",
                "CMake Error at CMakeLists.txt:9 (find_package):",
                "  By not providing X",
                "1 package failed",
            ],
            "CMake Error at CMakeLists.txt:9 (find_package): By not providing X",
        ),
        (["Killed", "", " "], "Killed"),
        ([], "it said nothing"),
    ],
)
def test_the_line_that_says_why_is_found(bootstrap, lines, says):
    assert bootstrap.cause(lines) == says


def test_failing_program_is_reported_in_one_line_and_logged(bootstrap, capfd):
    program = "print('half done'); print('ERROR: it broke'); raise SystemExit(3)"
    with pytest.raises(bootstrap.SetupError, match=r"^doing it failed: it broke \(all of it: .*work\.log\)$"):
        bootstrap.run_logged("doing it", "work", [sys.executable, "-c", program])
    assert (bootstrap.LOGS / "work.log").read_text() == "half done\nERROR: it broke\n"
    assert capfd.readouterr() == ("", "specdrive: doing it ...\n")
