"""The `specdrive` script: what it decides, what it sets, how it recovers. Nothing is installed here."""

import ast
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from importlib.machinery import SourceFileLoader
from pathlib import Path

import pytest

from specdrive_ros.cli.commands import COMMANDS

SCRIPT = Path(__file__).resolve().parents[1] / "specdrive"
ANSWERS_ALONE = [
    "__init__.py",
    "errors.py",
    "__main__.py",
    "cli/__init__.py",
    "cli/commands.py",
    "cli/main.py",
]


def load(path=SCRIPT):
    loader = SourceFileLoader("specdrive_bootstrap", str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def real():
    """The script as it is, for this checkout."""
    return load()


@pytest.fixture
def bootstrap(tmp_path, monkeypatch):
    """The script at work on an empty checkout of its own."""
    module = load()
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(module, "PYTHON", tmp_path / ".venv/bin/python")
    monkeypatch.setattr(module, "STAMPS", tmp_path / ".venv/stamps.json")
    monkeypatch.setattr(module, "LOGS", tmp_path / ".venv/logs")
    monkeypatch.setattr(module, "MESSAGES", tmp_path / ".venv/ros")
    monkeypatch.setattr(module, "INSTALL", tmp_path / ".venv/ros/install")
    module.PYTHON.parent.mkdir(parents=True)
    module.PYTHON.symlink_to(sys.executable)
    return module


class Steps:
    """Recorded steps: `made` lists what was done; a name in `broken` fails."""

    def __init__(self, module, **keys):
        self.module, self.keys, self.made, self.broken = module, keys, [], set()

    def prepare(self):
        self.module.prepare(
            [
                self.module.Step(name, lambda n=name: self.keys[n], lambda n=name: self.make(n))
                for name in self.keys
            ]
        )

    def make(self, name):
        self.made.append(name)
        if name in self.broken:
            raise self.module.SetupError(f"{name} broke")


# --- stamps


def test_each_step_is_made_once(bootstrap):
    steps = Steps(bootstrap, venv="1", driving="1", messages="1")
    steps.prepare()
    steps.prepare()
    assert steps.made == ["venv", "driving", "messages"]


def test_only_the_step_that_changed_is_made_again(bootstrap):
    steps = Steps(bootstrap, venv="1", driving="1", messages="1")
    steps.prepare()
    steps.keys["driving"] = "2"
    steps.prepare()
    assert steps.made == ["venv", "driving", "messages", "driving"]


def test_a_run_after_a_failure_goes_on_where_it_broke(bootstrap):
    steps = Steps(bootstrap, venv="1", driving="1", messages="1")
    steps.broken = {"driving"}
    with pytest.raises(bootstrap.SetupError):
        steps.prepare()
    steps.broken = set()
    steps.prepare()
    assert steps.made == ["venv", "driving", "driving", "messages"]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"venv": '])
def test_unreadable_stamps_mean_all_again(bootstrap, content):
    steps = Steps(bootstrap, venv="1", driving="1")
    steps.prepare()
    bootstrap.STAMPS.write_text(content)
    steps.prepare()
    assert steps.made == ["venv", "driving"] * 2


def test_stamps_of_a_removed_python_do_not_count(bootstrap):
    steps = Steps(bootstrap, driving="1")
    steps.prepare()
    bootstrap.PYTHON.unlink()
    assert not bootstrap.is_whole([bootstrap.Step("driving", lambda: "1", None)])


def test_a_second_run_waits_and_finds_the_work_done(bootstrap):
    code = f"""
import sys
sys.path[:0] = [{str(SCRIPT.parent)!r}, {str(Path(__file__).parent)!r}]
from pathlib import Path
from test_bootstrap import load
script = load()
script.ROOT, script.PYTHON = Path({str(bootstrap.ROOT)!r}), Path({str(bootstrap.PYTHON)!r})
script.STAMPS = Path({str(bootstrap.STAMPS)!r})
script.prepare([script.Step("driving", lambda: "1", lambda: print("made"))])
print("ran")
"""
    with bootstrap.one_run_at_a_time():
        second = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert "another run" in second.stderr.readline()
        bootstrap.write_stamp("driving", "1")
    assert second.communicate(timeout=60)[0] == "ran\n"


def test_messages_are_built_again_when_a_definition_changes(real, monkeypatch, tmp_path):
    for folder in ("msg", "interfaces"):
        shutil.copytree(SCRIPT.parent / folder, tmp_path / folder)
    for name in ("CMakeLists.txt", "package.xml", "pyproject.toml"):
        shutil.copy(SCRIPT.parent / name, tmp_path)
    monkeypatch.setattr(real, "ROOT", tmp_path)
    before = real.messages_key(None)
    assert real.messages_key(None) == before
    (tmp_path / "msg/Reasoning.msg").write_text("string text\n")
    assert real.messages_key(None) != before


def test_a_build_that_fails_leaves_the_messages_there_are(bootstrap, monkeypatch):
    def fail(*_):
        raise bootstrap.SetupError("out of memory")

    built = bootstrap.INSTALL / "lib"
    built.mkdir(parents=True)
    for name in ("check_compiler", "stage_sources", "message_packages"):
        monkeypatch.setattr(bootstrap, name, lambda *_: [])
    monkeypatch.setattr(bootstrap, "run_logged", fail)
    with pytest.raises(bootstrap.SetupError):
        bootstrap.build_messages(None)
    assert built.is_dir()


def test_comparing_stamps_takes_no_time(real):
    steps = real.make_steps("test", None)
    started = time.perf_counter()
    real.is_whole(steps)
    assert time.perf_counter() - started < 1.0


# --- requirements


def test_requirements_are_read_as_toml_has_them(real):
    tomllib = pytest.importorskip("tomllib", reason="Python 3.10 has no tomllib to compare with")
    text = (SCRIPT.parent / "pyproject.toml").read_text()
    project = tomllib.loads(text)["project"]
    assert real.read_requirements(text) == {"": project["dependencies"], **project["optional-dependencies"]}


def test_driving_needs_no_torch_and_testing_does(real):
    assert not any(
        name.startswith(("torch", "transformers")) for name in real.requirements(["", "ros", "colcon"])
    )
    assert "torch==2.13.0" in real.requirements(["test"])


def test_folders_of_the_machine_that_built_the_wheels_are_replaced(bootstrap, monkeypatch):
    python = "/opt/python/cp312-cp312"
    numpy_headers = f"{python}/lib/python3.12/site-packages/numpy/_core/include"
    path = bootstrap.VENV / "share/std_msgs/cmake/export.cmake"
    path.parent.mkdir(parents=True)
    path.write_text(f'set(X "${{_PREFIX}}/include;{python}/include/python3.12;{numpy_headers}")')
    answer = "/usr/include/python3.12\n/venv/numpy/include\n"
    monkeypatch.setattr(bootstrap, "python_says", lambda code: answer)
    for _ in range(2):
        bootstrap.rewrite_build_paths()
        assert path.read_text() == 'set(X "${_PREFIX}/include;/usr/include/python3.12;/venv/numpy/include")'


def test_every_extra_of_a_command_exists(real):
    lists = real.read_requirements((SCRIPT.parent / "pyproject.toml").read_text())
    assert {command.extra for command in COMMANDS.values()} <= set(lists)


# --- the environment of a command


def test_wheels_get_the_mark_and_the_library_path_together(bootstrap):
    libraries = bootstrap.VENV / "lib/python3.11/site-packages/ros_rclpy.libs"
    libraries.mkdir(parents=True)
    result = bootstrap.environment(None, {"LD_LIBRARY_PATH": "/user/lib"})
    assert result["_ROS_WHEELS_BOOTSTRAP_COMPLETE"] == "1"
    paths = result["LD_LIBRARY_PATH"].split(":")
    assert {str(libraries), str(bootstrap.VENV / "lib")} < set(paths) and paths[-1] == "/user/lib"


def test_system_ros_gets_neither_and_stays_on_the_paths(bootstrap):
    ros = bootstrap.SystemRos("jazzy", "/opt/ros/jazzy/lib/python3.12/site-packages")
    inherited = {
        "ROS_DISTRO": "jazzy",
        "AMENT_PREFIX_PATH": "/opt/ros/jazzy",
        "LD_LIBRARY_PATH": "/opt/ros/jazzy/lib",
        "PYTHONPATH": ros.folder,
    }
    result = bootstrap.environment(ros, inherited)
    assert "_ROS_WHEELS_BOOTSTRAP_COMPLETE" not in result
    assert result["AMENT_PREFIX_PATH"] == f"{bootstrap.INSTALL}:/opt/ros/jazzy"
    assert result["PYTHONPATH"] == f"{bootstrap.ROOT}:{ros.folder}"


def test_checkout_comes_before_generated_messages(bootstrap):
    generated = bootstrap.INSTALL / "lib/python3.11/site-packages"
    generated.mkdir(parents=True)
    result = bootstrap.environment(None, {"PYTHONPATH": "/user"})
    assert result["PYTHONPATH"] == f"{bootstrap.ROOT}:{generated}:/user"


def test_what_the_user_has_set_stays(bootstrap):
    chosen = {
        "FASTDDS_DEFAULT_PROFILES_FILE": "/my.xml",
        "ROS_AUTOMATIC_DISCOVERY_RANGE": "SUBNET",
        "OMP_WAIT_POLICY": "ACTIVE",
    }
    result = bootstrap.environment(None, chosen)
    assert {name: result[name] for name in chosen} == chosen
    assert "FASTDDS_DEFAULT_PROFILES_FILE" not in bootstrap.environment(
        None, {"FASTRTPS_DEFAULT_PROFILES_FILE": "/my.xml"}
    )


def test_discovery_stays_on_this_machine_by_default(bootstrap):
    assert bootstrap.environment(None, {})["ROS_AUTOMATIC_DISCOVERY_RANGE"] == "LOCALHOST"


def test_environment_inside_an_environment_is_the_same(bootstrap):
    once = bootstrap.environment(None, {"PATH": "/usr/bin"})
    assert bootstrap.environment(None, once) == once


def test_a_ros_for_another_python_is_taken_out(bootstrap):
    inherited = {
        "ROS_DISTRO": "humble",
        "AMENT_PREFIX_PATH": "/ws/install:/opt/ros/humble",
        "PYTHONPATH": "/ws/install/lib/python3.9/site-packages:/opt/ros/humble/lib:/user",
        "LD_LIBRARY_PATH": "/opt/ros/humble/lib",
    }
    result = bootstrap.environment(None, inherited)
    assert result["PYTHONPATH"] == f"{bootstrap.ROOT}:/user"
    assert "/opt/ros" not in result["LD_LIBRARY_PATH"] + result["AMENT_PREFIX_PATH"]


# --- which ROS 2


def source_ros(monkeypatch, folder, version):
    extension = folder / f"rclpy/_rclpy_pybind11.cpython-{version}-x86_64-linux-gnu.so"
    extension.parent.mkdir(parents=True)
    extension.touch()
    monkeypatch.setenv("ROS_DISTRO", "jazzy")
    monkeypatch.setenv("AMENT_PREFIX_PATH", str(folder))
    monkeypatch.setattr(sys, "path", [str(folder)])


def test_sourced_ros_for_this_python_is_taken(bootstrap, monkeypatch, tmp_path):
    source_ros(monkeypatch, tmp_path / "ros", "%d%d" % sys.version_info[:2])
    assert bootstrap.find_system_ros() == ("jazzy", str(tmp_path / "ros"))


def test_sourced_ros_for_another_python_is_not_taken(bootstrap, monkeypatch, tmp_path):
    source_ros(monkeypatch, tmp_path / "ros", "38")
    assert bootstrap.find_system_ros() is None


def test_ros_that_is_not_sourced_is_not_taken(bootstrap, monkeypatch, tmp_path):
    source_ros(monkeypatch, tmp_path / "ros", "%d%d" % sys.version_info[:2])
    monkeypatch.delenv("AMENT_PREFIX_PATH")
    assert bootstrap.find_system_ros() is None


def test_interfaces_of_the_sourced_ros_are_not_built(bootstrap, monkeypatch, tmp_path):
    manifest = tmp_path / "ros/share/ackermann_msgs/package.xml"
    manifest.parent.mkdir(parents=True)
    manifest.touch()
    monkeypatch.setenv("AMENT_PREFIX_PATH", str(tmp_path / "ros"))
    packages = bootstrap.message_packages(bootstrap.SystemRos("jazzy", ""))
    assert [path.name for path in packages[1:]] == ["carla_msgs"]


# --- errors, each in one line


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


# --- what needs no environment


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


# --- the package as colcon sees it


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
        ["specdrive_ros", "ackermann_msgs", "carla_msgs"], "(ros.ament_cmake)"
    )


def test_versions_agree(checkout):
    import specdrive_ros

    assert f"<version>{specdrive_ros.__version__}</version>" in (checkout / "package.xml").read_text()


def test_stamps_are_json_a_person_can_read(bootstrap):
    bootstrap.write_stamp("driving", "1")
    bootstrap.write_stamp("messages", "2")
    assert json.loads(bootstrap.STAMPS.read_text()) == {"driving": "1", "messages": "2"}
