"""Launch and parameter files: they compile, name real parameters, and load where `launch` is installed."""

import importlib
import importlib.util
import py_compile
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from .conftest import PATIENCE_S

PROJECT = Path(__file__).resolve().parents[2]
SERVICE = """
import launch, sys
from launch.launch_description_sources import PythonLaunchDescriptionSource
from launch.actions import IncludeLaunchDescription
service = launch.LaunchService()
source = PythonLaunchDescriptionSource("{path}")
service.include_launch_description(launch.LaunchDescription([IncludeLaunchDescription(source)]))
sys.exit(service.run())
"""
LAUNCH_FILES = sorted((PROJECT / "launch").glob("*.launch.py"))
BUILDS = "build_engines.launch.py"  # drives nothing and ends by itself


@pytest.mark.parametrize("path", LAUNCH_FILES, ids=lambda path: path.name)
def test_launch_file_compiles(path, tmp_path):
    py_compile.compile(str(path), cfile=str(tmp_path / "compiled"), doraise=True)


@pytest.fixture
def real_launch():
    """ROS's own `launch`; our folder of that name looks like a package, too."""
    launch = pytest.importorskip("launch")
    if not hasattr(launch, "LaunchDescription"):
        pytest.skip("ROS's launch is not installed here (the wheels do not have it)")
    pytest.importorskip("launch_ros")
    return launch


def described(path: Path):
    spec = importlib.util.spec_from_file_location("described", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", LAUNCH_FILES, ids=lambda path: path.name)
def test_launch_file_describes_something(real_launch, path):
    description = described(path).generate_launch_description()
    assert description.entities
    shown = description.get_launch_arguments()
    wanted = {"model", "profile"} if path.name == BUILDS else {"model", "namespace", "use_sim_time", "draft"}
    assert wanted <= {argument.name for argument in shown}
    assert all(argument.description for argument in shown)
    assert {argument.name for argument in shown if argument.default_value is None} == wanted & {"profile"}


def nodes_of(real_launch, name: str, **arguments: str) -> dict:
    """Executable -> node of a launch file with these arguments."""
    module = described(PROJECT / "launch" / f"{name}.launch.py")
    context = real_launch.LaunchContext()
    values = {argument: default for argument, (default, _) in module.ARGUMENTS.items()}
    context.launch_configurations.update(values | arguments)
    nodes = module.nodes(context)
    for node in nodes:
        if hasattr(node, "node_executable"):
            node._perform_substitutions(context)
    return {node.node_executable: node for node in nodes if hasattr(node, "node_executable")}


def remaps(node) -> dict[str, str]:
    return dict(node.expanded_remapping_rules)


def test_carla_remaps_by_role_name_and_bridge(real_launch):
    nodes = nodes_of(real_launch, "carla", role_name="hero", cameras="rgb_front,rgb_left", namespace="car1")
    mapped = remaps(nodes["planner"])
    assert mapped["~/input/rgb_left/image"] == "/carla/hero/rgb_left/image"
    assert mapped["~/input/odometry"] == "/carla/hero/odometry"
    assert remaps(nodes["controller"])["~/output/vehicle_control_cmd"] == "/carla/hero/vehicle_control_cmd"
    assert nodes["planner"].expanded_node_namespace == "/car1"
    with pytest.raises(ValueError, match="bridge:=sail"):
        nodes_of(real_launch, "carla", bridge="sail")


def test_vehicle_info_is_the_car_s_and_a_rear_axle_that_is_given_wins(real_launch):
    launching = importlib.import_module("specdrive_ros.ros.launching")
    nodes = nodes_of(real_launch, "carla", role_name="hero")
    for name in ("planner", "controller"):
        assert remaps(nodes[name])["~/input/vehicle_info"] == "/carla/hero/vehicle_info"
    assert "~/input/vehicle_info" not in remaps(nodes_of(real_launch, "replay", bag="/data/drive")["planner"])
    assert launching.rear_axle({"rear_axle_x_m": "auto"}, -1.4) == {"rear_axle_x_m": -1.4}
    given = launching.rear_axle({"rear_axle_x_m": "-1.5"}, -1.4)
    assert given == {"rear_axle_x_m": -1.5, "use_vehicle_info": False}
    with pytest.raises(ValueError, match="rear_axle_x_m:=soon; must be a number"):
        nodes_of(real_launch, "carla", rear_axle_x_m="soon")


def test_autoware_gets_its_names_by_arguments_and_no_controller(real_launch):
    nodes = nodes_of(
        real_launch, "planner", controller="false", autoware_output="true", images="/camera0/image_raw",
        odometry="/localization/kinematic_state", autoware_trajectory="/planning/trajectory", wheelbase_m="2.79",
    )
    mapped = remaps(nodes["planner"])
    assert mapped["~/input/rgb_front/image"] == "/camera0/image_raw"
    assert mapped["~/input/odometry"] == "/localization/kinematic_state"
    assert mapped["~/output/autoware"] == "/planning/trajectory" and set(nodes) == {"planner"}
    with pytest.raises(ValueError, match="as many of each"):
        nodes_of(real_launch, "planner", images="/one,/two")
    with pytest.raises(ValueError, match="wheelbase_m:=long; must be a number"):
        nodes_of(real_launch, "planner", wheelbase_m="long")


def test_replay_wants_a_bag_and_as_many_topics_as_cameras(real_launch):
    with pytest.raises(ValueError, match="bag:= is missing"):
        nodes_of(real_launch, "replay")
    with pytest.raises(ValueError, match="as many of each"):
        nodes_of(real_launch, "replay", bag="/data/drive", cameras="a,b")
    planner = nodes_of(real_launch, "replay", bag="/data/drive", image_transport="compressed")["planner"]
    assert "~/input/rgb_front/image/compressed" in remaps(planner)


def test_yes_and_numbers_are_read_as_ros_reads_them_and_else_refused_by_name(real_launch):
    nodes = nodes_of(real_launch, "planner", controller="False", use_sim_time="True", cameras="rgb_left")
    assert set(nodes) == {"planner"} and "~/input/rgb_left/image" in remaps(nodes["planner"])
    with pytest.raises(ValueError, match="loop:=yes; must be true or false"):
        nodes_of(real_launch, "replay", bag="/data/drive", loop="yes")
    with pytest.raises(ValueError, match="deadline_ms:=soon; must be a number"):
        nodes_of(real_launch, "planner", deadline_ms="soon")
    with pytest.raises(ValueError, match="seed:=1.5; must be a whole number"):
        nodes_of(real_launch, "sim", seed="1.5")


def test_sim_is_really_launched(real_launch, domain):
    """The three nodes come up, the planner plans, and Ctrl-C ends them all."""
    index = pytest.importorskip("ament_index_python.packages")
    try:
        prefix = Path(index.get_package_prefix("specdrive_ros"))
    except LookupError:
        prefix = Path("/nowhere")
    if not (prefix / "lib" / "specdrive_ros" / "planner").is_file():
        pytest.skip("the package's nodes are not installed: colcon build it and source its install folder")
    script = SERVICE.format(path=PROJECT / "launch" / "sim.launch.py")
    begun = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             text=True, start_new_session=True)
    said = []
    try:
        for line in begun.stdout:
            said.append(line)
            if "following the trajectory" in line:
                break
        begun.send_signal(signal.SIGINT)
        said += begun.communicate(timeout=PATIENCE_S)[0].splitlines()
    finally:
        begun.kill()
    text = "".join(said)
    assert "following the trajectory" in text, text
    assert "Traceback" not in text and begun.returncode == 0, text


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
