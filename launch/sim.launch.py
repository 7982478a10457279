"""The embedded world, and planner and controller that drive in it.

    ros2 launch specdrive_ros sim.launch.py
"""

from pathlib import Path

from launch import LaunchDescription
from launch.actions import DeclareLaunchArgument, IncludeLaunchDescription, SetEnvironmentVariable
from launch.launch_description_sources import PythonLaunchDescriptionSource
from launch.substitutions import EnvironmentVariable, LaunchConfiguration
from launch_ros.actions import Node

ROOT = Path(__file__).resolve().parents[1]
CONFIG = ROOT / "config"
ARGUMENTS = {
    "model": ("mini", "name or folder of the checkpoint"),
    "seed": ("0", "seed of the scenarios that name none"),
    "count": ("1", "seeds in a row for each scenario"),
}


def generate_launch_description() -> LaunchDescription:
    argument = {name: LaunchConfiguration(name) for name in ARGUMENTS}
    sim = Node(
        package="specdrive_ros",
        executable="sim",
        name="sim",
        output="screen",
        parameters=[
            str(CONFIG / "sim.param.yaml"),
            {"seed": argument["seed"], "count": argument["count"]},
        ],
    )
    driver = IncludeLaunchDescription(
        PythonLaunchDescriptionSource(str(ROOT / "launch" / "planner.launch.py")),
        launch_arguments={"model": argument["model"], "use_sim_time": "true"}.items(),
    )
    declared = [
        DeclareLaunchArgument(name, default_value=default, description=text)
        for name, (default, text) in ARGUMENTS.items()
    ]
    return LaunchDescription([*declared, dds_profile(), sim, driver])


def dds_profile() -> SetEnvironmentVariable:
    """Fast DDS's defaults lose large images; a profile the user has chosen stays."""
    profile = EnvironmentVariable("FASTDDS_DEFAULT_PROFILES_FILE", default_value=str(CONFIG / "fastdds.xml"))
    return SetEnvironmentVariable("FASTDDS_DEFAULT_PROFILES_FILE", profile)
