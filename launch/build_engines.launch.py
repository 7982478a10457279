"""Builds a model's engines for a device profile and exits, 0 where all of them are there.

ros2 launch specdrive_ros build_engines.launch.py profile:=orin-agx model:=mini
"""

from launch import LaunchDescription
from launch.actions import EmitEvent, RegisterEventHandler
from launch.event_handlers import OnProcessExit
from launch.events import Shutdown
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node
from launch_ros.parameter_descriptions import ParameterValue
from specdrive_ros.ros import launching

ARGUMENTS = {
    "profile": (None, "name of a file in engines/profiles, or a file: the device to build for"),
    "model": ("mini", "name or folder of the checkpoint"),
}


def generate_launch_description() -> LaunchDescription:
    planner = Node(
        package=launching.PACKAGE,
        executable="planner",
        name="planner",
        output="screen",
        parameters=[
            {
                "build_engines_only": ParameterValue(LaunchConfiguration("profile"), value_type=str),
                "model": ParameterValue(LaunchConfiguration("model"), value_type=str),
            }
        ],
    )
    ended = OnProcessExit(target_action=planner, on_exit=[EmitEvent(event=Shutdown(reason="engines are built"))])
    return LaunchDescription([*launching.declared(ARGUMENTS), RegisterEventHandler(ended), planner])
