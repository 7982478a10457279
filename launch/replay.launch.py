"""The planner on a recorded bag, played in a loop or once, with what it thinks in rviz.

    ros2 launch specdrive_ros replay.launch.py bag:=/data/drive images:=/camera/front/image odometry:=/odom

For figures, `specdrive replay` plans over a bag offline; this is for looking, and for testing the node on a stream.
"""

from launch import LaunchContext, LaunchDescription
from launch.actions import ExecuteProcess
from specdrive_ros.ros import launching

CONFIG = launching.config_beside(__file__)
ARGUMENTS = {
    **launching.PLANNER_ARGUMENTS,
    "use_sim_time": ("true", "take the time from the bag's own clock"),
    "bag": ("", "folder or file of the recording"),
    "cameras": ("rgb_front", "the model's cameras, joined by commas"),
    "images": ("/carla/ego_vehicle/rgb_front/image", "their topics in the bag, in the same order"),
    "image_transport": ("raw", "raw or compressed"),
    "odometry": ("/carla/ego_vehicle/odometry", "topic of the odometry in the bag"),
    "rate": ("1.0", "how fast the bag is played"),
    "loop": ("false", "play it again and again; the clock goes back each time"),
    "rviz": ("false", "show the drive in rviz"),
}


def generate_launch_description() -> LaunchDescription:
    return launching.description(CONFIG, ARGUMENTS, nodes)


def nodes(context: LaunchContext) -> list:
    values = launching.values_of(context, ARGUMENTS)
    if not values["bag"]:
        raise ValueError("bag:= is missing; should be the folder or file of a recording")
    images = launching.images_given(values["cameras"], values["images"])
    transport = values["image_transport"]
    play = ["ros2", "bag", "play", values["bag"], "--clock", "--rate", values["rate"]]
    player = ExecuteProcess(cmd=play + (["--loop"] if launching.flag(values, "loop") else []), output="screen")
    planner = launching.planner(CONFIG, values, images, values["odometry"], image_transport=transport)
    return [planner, player, *launching.rviz(CONFIG, values)]
