"""Planner and controller for a car that publishes CARLA's topics.

    ros2 launch specdrive_ros planner.launch.py role_name:=hero output:=carla use_sim_time:=true
"""

from pathlib import Path

from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument, SetEnvironmentVariable
from launch.substitutions import EnvironmentVariable, LaunchConfiguration
from launch_ros.actions import Node
from launch_ros.parameter_descriptions import ParameterValue

ROOT = Path(__file__).resolve().parents[1]
CONFIG = ROOT / "config"
ARGUMENTS = {
    "model": ("mini", "name or folder of the checkpoint"),
    "camera": ("rgb_front", "camera of the car and of the model"),
    "role_name": ("ego_vehicle", "CARLA's name for the car"),
    "output": ("ackermann", "command of the controller: ackermann or carla"),
    "use_sim_time": ("false", "take the time from /clock"),
}


def generate_launch_description() -> LaunchDescription:
    argument = {name: LaunchConfiguration(name) for name in ARGUMENTS}
    role = ["/carla/", argument["role_name"]]
    odometry = ("~/input/odometry", [*role, "/odometry"])
    image = (["~/input/", argument["camera"], "/image"], [*role, "/", argument["camera"], "/image"])
    planner = Node(
        package="specdrive_ros",
        executable="planner",
        name="planner",
        output="screen",
        parameters=[
            str(CONFIG / "planner.param.yaml"),
            {"model": ParameterValue(argument["model"], value_type=str)},  # "1e5" is a name too
            {"use_sim_time": argument["use_sim_time"]},
        ],
        remappings=[image, odometry],
    )
    commands = [
        (f"~/output/{name}", [*role, f"/{name}"]) for name in ("ackermann_cmd", "vehicle_control_cmd")
    ]
    controller = Node(
        package="specdrive_ros",
        executable="controller",
        name="controller",
        output="screen",
        parameters=[
            str(CONFIG / "controller.param.yaml"),
            {"output": argument["output"], "use_sim_time": argument["use_sim_time"]},
        ],
        remappings=[("~/input/trajectory", "/planner/output/trajectory"), odometry, *commands],
    )
    declared = [
        DeclareLaunchArgument(name, default_value=default, description=text)
        for name, (default, text) in ARGUMENTS.items()
    ]
    return LaunchDescription([*declared, dds_profile(), planner, controller])


def dds_profile() -> SetEnvironmentVariable:
    """Fast DDS's defaults lose large images; a profile the user has chosen stays."""
    profile = EnvironmentVariable("FASTDDS_DEFAULT_PROFILES_FILE", default_value=str(CONFIG / "fastdds.xml"))
    return SetEnvironmentVariable("FASTDDS_DEFAULT_PROFILES_FILE", profile)
