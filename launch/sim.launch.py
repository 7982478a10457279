"""The embedded world, and planner and controller that drive in it.

    ros2 launch specdrive_ros sim.launch.py
"""

from launch import LaunchContext, LaunchDescription
from launch_ros.actions import Node
from specdrive_ros.ros import launching

CONFIG = launching.config_beside(__file__)
CAMERA = "rgb_front"
ARGUMENTS = {
    **launching.PLANNER_ARGUMENTS,
    "use_sim_time": ("true", "take the time from /clock"),
    "role_name": ("ego_vehicle", "name of the car, part of its topics"),
    "output": ("ackermann", "command of the controller: ackermann or carla"),
    "seed": ("0", "seed of the scenarios that name none"),
    "count": ("1", "seeds in a row for each scenario"),
    "rviz": ("false", "show the drive in rviz"),
}


def generate_launch_description() -> LaunchDescription:
    return launching.description(CONFIG, ARGUMENTS, nodes)


def nodes(context: LaunchContext) -> list:
    values = launching.values_of(context, ARGUMENTS)
    car = f"/carla/{values['role_name']}"
    world = {name: launching.number(values, name, int) for name in ("seed", "count")}
    sim = Node(
        package=launching.PACKAGE,
        executable="sim",
        name="sim",
        output="screen",
        parameters=[str(CONFIG / "sim.param.yaml"), world | {"role_name": values["role_name"]}],
    )
    planner = launching.planner(CONFIG, values, launching.images_of(car, [CAMERA]), f"{car}/odometry")
    controller = launching.controller(CONFIG, values, car, f"{car}/odometry")
    return [sim, planner, controller, *launching.rviz(CONFIG, values)]
