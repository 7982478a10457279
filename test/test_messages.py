"""The generated messages against the contract, those of interfaces/ against the public packages."""

import importlib
import re
import xml.etree.ElementTree as ElementTree

import pytest

messages = pytest.importorskip(
    "specdrive_ros.msg", reason="no generated messages: run ./specdrive test", exc_type=ImportError
)

DURATION = "builtin_interfaces/Duration"
STAGES = ["total", "wait", "decode", "vision", "prefill", "draft", "verify", "action", "check", "publish"]
FIELDS = {
    "TrajectoryPoint": {
        "time_from_start": DURATION,
        "pose": "geometry_msgs/Pose",
        "longitudinal_velocity_mps": "float",
        "acceleration_mps2": "float",
        "curvature_per_m": "float",
    },
    "Trajectory": {
        "header": "std_msgs/Header",
        "source": "uint8",
        "points": "sequence<specdrive_ros/TrajectoryPoint>",
    },
    "Reasoning": {
        "header": "std_msgs/Header",
        "text": "string",
        "tokens": "uint16",
        "target_passes": "uint16",
        "accepted_length": "float",
        "routine_share": "float",
        "truncated": "boolean",
    },
    "CycleStats": {
        "header": "std_msgs/Header",
        "cycle": "uint64",
        **dict.fromkeys(STAGES, DURATION),
        "deadline": DURATION,
        "late": "boolean",
        "input_names": "sequence<string>",
        "input_ages": f"sequence<{DURATION}>",
        "fallback_reason": "uint8",
        "fallback_text": "string",
        "dropped_observations": "uint32",
    },
}
# In the order of the public packages: DDS carries values by position, not by name.
PUBLIC_FIELDS = {
    "ackermann_msgs/AckermannDrive": [
        "steering_angle",
        "steering_angle_velocity",
        "speed",
        "acceleration",
        "jerk",
    ],
    "carla_msgs/CarlaEgoVehicleControl": [
        "header",
        "throttle",
        "steer",
        "brake",
        "hand_brake",
        "reverse",
        "gear",
        "manual_gear_shift",
    ],
    "carla_msgs/CarlaEgoVehicleStatus": ["header", "velocity", "acceleration", "orientation", "control"],
    "carla_msgs/CarlaEgoVehicleInfo": [
        "id",
        "type",
        "rolename",
        "wheels",
        "max_rpm",
        "moi",
        "damping_rate_full_throttle",
        "damping_rate_zero_throttle_clutch_engaged",
        "damping_rate_zero_throttle_clutch_disengaged",
        "use_gear_autobox",
        "gear_switch_time",
        "clutch_strength",
        "mass",
        "drag_coefficient",
        "center_of_mass",
    ],
    "carla_msgs/CarlaEgoVehicleInfoWheel": [
        "tire_friction",
        "damping_rate",
        "max_steer_angle",
        "radius",
        "max_brake_torque",
        "max_handbrake_torque",
        "position",
    ],
    "tf2_msgs/TFMessage": ["transforms"],
}


@pytest.mark.parametrize("name", FIELDS)
def test_fields_are_those_of_the_contract(name):
    assert getattr(messages, name).get_fields_and_field_types() == FIELDS[name]


def test_sources_of_a_trajectory():
    kinds = messages.Trajectory
    assert (kinds.PLANNED, kinds.REPUBLISHED, kinds.STOP) == (0, 1, 2)


def test_fallback_reasons_are_distinct_and_none_is_the_default():
    stats = messages.CycleStats
    reasons = [
        stats.NONE,
        stats.NO_OBSERVATION,
        stats.INPUT_STALE,
        stats.MODEL_FAILED,
        stats.PLAN_REJECTED,
        stats.DEADLINE,
        stats.REASONING_UNFINISHED,
    ]
    assert reasons == sorted(set(reasons)) and stats().fallback_reason == stats.NONE == 0


@pytest.mark.parametrize("full_name", PUBLIC_FIELDS)
def test_fields_are_those_of_the_public_package(full_name):
    package, name = full_name.split("/")
    message = getattr(importlib.import_module(f"{package}.msg"), name)
    assert list(message.get_fields_and_field_types()) == PUBLIC_FIELDS[full_name]


def test_every_definition_is_generated_and_every_dependency_declared(checkout):
    for folder in (checkout, *(checkout / "interfaces").iterdir()):
        listed = set(re.findall(r"msg/(\w+)\.msg", (folder / "CMakeLists.txt").read_text()))
        used = {
            package
            for path in (folder / "msg").glob("*.msg")
            for package in re.findall(r"^(\w+)/", path.read_text(), re.MULTILINE)
        }
        declared = {depend.text for depend in ElementTree.parse(folder / "package.xml").iter("depend")}
        assert listed == {path.stem for path in (folder / "msg").glob("*.msg")}
        assert used <= declared, folder
