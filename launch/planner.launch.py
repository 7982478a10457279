"""Planner and controller for a car that publishes CARLA's topics.

    ros2 launch specdrive_ros planner.launch.py role_name:=hero output:=carla use_sim_time:=true
"""

from launch import LaunchContext, LaunchDescription
from specdrive_ros.ros import launching

CONFIG = launching.config_beside(__file__)
ARGUMENTS = {
    **launching.PLANNER_ARGUMENTS,
    "camera": ("rgb_front", "cameras of the car and of the model, joined by commas"),
    "role_name": ("ego_vehicle", "CARLA's name for the car"),
    "output": ("ackermann", "command of the controller: ackermann or carla"),
    "rviz": ("false", "show the drive in rviz"),
}


def generate_launch_description() -> LaunchDescription:
    return launching.description(CONFIG, ARGUMENTS, nodes)


def nodes(context: LaunchContext) -> list:
    values = launching.values_of(context, ARGUMENTS)
    car = f"/carla/{values['role_name']}"
    images = launching.images_of(car, launching.names_in(values["camera"]))
    return [
        launching.planner(CONFIG, values, images, f"{car}/odometry"),
        launching.controller(CONFIG, values, car, f"{car}/odometry"),
        *launching.rviz(CONFIG, values),
    ]
