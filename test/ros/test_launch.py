"""Launch and parameter files: they compile, name real parameters, and load where `launch` is installed."""

import importlib.util
import py_compile
from pathlib import Path

import pytest
import yaml

PROJECT = Path(__file__).resolve().parents[2]
LAUNCH_FILES = sorted((PROJECT / "launch").glob("*.launch.py"))


@pytest.mark.parametrize("path", LAUNCH_FILES, ids=lambda path: path.name)
def test_launch_file_compiles(path, tmp_path):
    py_compile.compile(str(path), cfile=str(tmp_path / "compiled"), doraise=True)


@pytest.mark.parametrize("path", LAUNCH_FILES, ids=lambda path: path.name)
def test_launch_file_describes_something(path):
    launch = pytest.importorskip("launch")
    if not hasattr(launch, "LaunchDescription"):  # our own folder launch/ looks like a package
        pytest.skip("ROS's launch is not installed here (the wheels do not have it)")
    spec = importlib.util.spec_from_file_location("described", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.generate_launch_description().entities


@pytest.mark.parametrize("name", ["planner", "controller", "sim"])
def test_parameter_file_has_exactly_the_nodes_parameters(name):
    pytest.importorskip("specdrive_ros.msg")
    module = importlib.import_module(f"specdrive_ros.ros.{name}_node")
    specs = module.STARTUP + module.TUNING if name == "controller" else module.PARAMETERS
    text = (PROJECT / "config" / f"{name}.param.yaml").read_text()
    values = yaml.safe_load(text)["/**"]["ros__parameters"]
    by_name = {spec.name: spec for spec in specs}
    assert set(values) | {"cameras"} == set(by_name) | {"cameras"}
    for parameter, value in values.items():
        by_name[parameter].check(value)
