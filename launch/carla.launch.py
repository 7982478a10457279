"""Planner and controller for a car in CARLA, over its ROS bridge or its native ROS 2.

    ros2 launch specdrive_ros carla.launch.py role_name:=hero
    ros2 launch specdrive_ros carla.launch.py bridge:=native role_name:=hero

The ROS bridge publishes odometry and takes both commands (`ackermann` needs its carla_ackermann_control running).
CARLA's native ROS 2 has no odometry before a recent change, so it is derived from /tf, and it takes
`vehicle_control_cmd` alone. In CARLA's synchronous mode the controller commands at its own rate on the steady clock,
also while the simulation waits: nobody waits for the other.
"""

from launch import LaunchContext, LaunchDescription
from specdrive_ros.ros import launching

CONFIG = launching.config_beside(__file__)
ARGUMENTS = {
    **launching.PLANNER_ARGUMENTS,
    "use_sim_time": ("true", "take the time from /clock"),
    "bridge": ("ros_bridge", "who speaks for CARLA: ros_bridge or native"),
    "role_name": ("ego_vehicle", "role (ros_name) of the car: ego_vehicle, hero, hero0 …"),
    "cameras": ("rgb_front", "the model's cameras, named as in the car's sensors, joined by commas"),
    "odometry_source": ("auto", "topic, tf, or auto: topic with ros_bridge, tf with native"),
    "output": ("auto", "ackermann, carla, or auto: carla, which needs no further node"),
    "rear_axle_x_m": ("auto", "rear axle in the car's own frame, whose origin CARLA has in the middle; auto: as "
                      "vehicle_info says, -1.4 until it does; a number: vehicle_info is not used"),
    "rviz": ("false", "show the drive in rviz"),
}
MOST_CARS_REAR_AXLE_M = -1.4
SOURCES = {"ros_bridge": "topic", "native": "tf"}


def generate_launch_description() -> LaunchDescription:
    return launching.description(CONFIG, ARGUMENTS, nodes)


def nodes(context: LaunchContext) -> list:
    values = launching.values_of(context, ARGUMENTS)
    if values["bridge"] not in SOURCES:
        raise ValueError(f"bridge:={values['bridge']}; should be one of {', '.join(SOURCES)}")
    source = SOURCES[values["bridge"]] if values["odometry_source"] == "auto" else values["odometry_source"]
    if values["output"] == "auto":
        values["output"] = "carla"
    car, role = f"/carla/{values['role_name']}", values["role_name"]
    rear_axle = launching.rear_axle(values, MOST_CARS_REAR_AXLE_M)
    images = launching.images_of(car, launching.names_in(values["cameras"]))
    planner = launching.planner(
        CONFIG, values, images, f"{car}/odometry",
        odometry_source=source, fixed_frame="map", base_frame=role, **rear_axle,
    )
    controller = launching.controller(
        CONFIG, values, car, f"{car}/odometry",
        odometry_source=source, fixed_frame="map", base_frame=role, **rear_axle,
    )
    return [planner, controller, *launching.rviz(CONFIG, values)]
