"""Planner and, if wanted, controller for a car that publishes CARLA's topics, or whatever topics are given.

    ros2 launch specdrive_ros planner.launch.py role_name:=hero output:=carla use_sim_time:=true

In Autoware, whose own follower drives:

    ros2 launch specdrive_ros planner.launch.py controller:=false autoware_output:=true wheelbase_m:=2.79 \
        images:=/sensing/camera/camera0/image_raw odometry:=/localization/kinematic_state \
        autoware_trajectory:=/planning/scenario_planning/trajectory
"""

from launch import LaunchContext, LaunchDescription
from specdrive_ros.ros import launching

CONFIG = launching.config_beside(__file__)
ARGUMENTS = {
    **launching.PLANNER_ARGUMENTS,
    "cameras": ("rgb_front", "cameras of the car and of the model, joined by commas"),
    "role_name": ("ego_vehicle", "CARLA's name for the car"),
    "images": ("", "topics of the cameras, in the same order; empty for those of the car in CARLA"),
    "image_transport": ("raw", "raw or compressed"),
    "odometry": ("", "topic of the odometry; empty for that of the car in CARLA"),
    "autoware_output": ("false", "also publish the plan as autoware_planning_msgs/Trajectory"),
    "wheelbase_m": ("", "from the rear axle to the front one; empty for what the parameter files say"),
    "autoware_trajectory": ("~/output/autoware", "topic of that"),
    "controller": ("true", "start the controller, too; not where the stack has a follower"),
    "output": ("ackermann", "command of the controller: ackermann or carla"),
    "rviz": ("false", "show the drive in rviz"),
}


def generate_launch_description() -> LaunchDescription:
    return launching.description(CONFIG, ARGUMENTS, nodes)


def nodes(context: LaunchContext) -> list:
    values = launching.values_of(context, ARGUMENTS)
    car = f"/carla/{values['role_name']}"
    odometry = values["odometry"] or f"{car}/odometry"
    images = launching.images_of(car, launching.names_in(values["cameras"]))
    if values["images"]:
        images = launching.images_given(values["cameras"], values["images"])
    geometry = {"wheelbase_m": launching.number(values, "wheelbase_m")} if values["wheelbase_m"] else {}
    planner = launching.planner(
        CONFIG, values, images, odometry, {"autoware": values["autoware_trajectory"]},
        image_transport=values["image_transport"], autoware_output=launching.flag(values, "autoware_output"),
        **geometry,
    )
    follower = [launching.controller(CONFIG, values, car, odometry, **geometry)]
    return [planner, *(follower if launching.flag(values, "controller") else []), *launching.rviz(CONFIG, values)]
