"""What our launch files share: arguments, the DDS profile, planner and controller on a car's topics.

Needs ROS's `launch` and `launch_ros`; nothing else imports this. The folders `launch/` and `config/` lie side by side
both in a checkout and in an installed package, so a launch file finds the other from its own location.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from launch import LaunchContext, LaunchDescription
from launch.actions import DeclareLaunchArgument, OpaqueFunction, SetEnvironmentVariable
from launch.substitutions import EnvironmentVariable, LaunchConfiguration
from launch_ros.actions import Node
from launch_ros.parameter_descriptions import ParameterValue

PACKAGE = "specdrive_ros"
COMMANDS = ("ackermann_cmd", "vehicle_control_cmd")
Arguments = Mapping[str, tuple[str | None, str]]  # name -> default (None: required), description

PLANNER_ARGUMENTS: Arguments = {
    "model": ("mini", "name or folder of the checkpoint"),
    "runtime": ("onnxruntime", "where the networks run"),
    "draft": ("", "what speeds the reasoning up: none, or drafts joined by +; empty for the model's own"),
    "deadline_ms": ("100.0", "limit from camera message in to trajectory out"),
    "deadline_policy": ("republish", "off, shorten, republish or stop"),
    "namespace": ("", "of the planner and the controller; one for each car"),
    "use_sim_time": ("false", "take the time from /clock"),
}


def config_beside(launch_file: str) -> Path:
    """The folder of parameter files that belongs to a launch file."""
    return Path(launch_file).resolve().parents[1] / "config"


def description(config: Path, arguments: Arguments, nodes: Callable[[LaunchContext], list]) -> LaunchDescription:
    """The description that a launch file returns. nodes: called with the launch context once its arguments are
    known."""
    return LaunchDescription([*declared(arguments), dds_profile(config), OpaqueFunction(function=nodes)])


def declared(arguments: Arguments) -> list[DeclareLaunchArgument]:
    """The declared arguments, with their descriptions for `ros2 launch --show-args`."""
    return [
        DeclareLaunchArgument(name, default_value=default, description=text)
        for name, (default, text) in arguments.items()
    ]


def values_of(context: LaunchContext, arguments: Arguments) -> dict[str, str]:
    """Values of the arguments in this launch."""
    return {name: LaunchConfiguration(name).perform(context) for name in arguments}


def names_in(value: str) -> list[str]:
    """Comma-separated names."""
    return [name for name in (part.strip() for part in value.split(",")) if name]


def flag(values: Mapping[str, str], name: str) -> bool:
    """Whether a flag is set; like ROS's own, upper or lower case. Raises ValueError for anything but true, false, 1,
    0."""
    try:
        return {"true": True, "1": True, "false": False, "0": False}[values[name].lower()]
    except KeyError:
        raise ValueError(f"{name}:={values[name]}; must be true or false") from None


def number(values: Mapping[str, str], name: str, kind: type = float) -> float:
    """A numeric argument. Raises ValueError, naming it, if it is not a number."""
    try:
        return kind(values[name])
    except ValueError:
        what = "a whole number" if kind is int else "a number"
        raise ValueError(f"{name}:={values[name]}; must be {what}") from None


def dds_profile(config: Path) -> SetEnvironmentVariable:
    """Sets our profile, because Fast DDS's defaults lose large images; a profile chosen by the user is kept."""
    profile = EnvironmentVariable("FASTDDS_DEFAULT_PROFILES_FILE", default_value=str(config / "fastdds.xml"))
    return SetEnvironmentVariable("FASTDDS_DEFAULT_PROFILES_FILE", profile)


def planner(
    config: Path,
    values: Mapping[str, str],
    images: Mapping[str, str],
    odometry: str,
    outputs: Mapping[str, str] | None = None,
    **parameters: object,
) -> Node:
    """The planner's node.

    images: camera -> topic of its images; outputs: output -> its topic; parameters: override those of the file.
    """
    texts = {name: ParameterValue(values[name], value_type=str) for name in ("model", "runtime", "draft")}
    suffix = "image/compressed" if parameters.get("image_transport") == "compressed" else "image"
    return Node(
        package=PACKAGE,
        executable="planner",
        name="planner",
        namespace=values["namespace"],
        output="screen",
        parameters=[
            str(config / "planner.param.yaml"),
            {
                **texts,  # as text: "1e5" is a valid name too
                "deadline_ms": number(values, "deadline_ms"),
                "deadline_policy": values["deadline_policy"],
                "use_sim_time": flag(values, "use_sim_time"),
                **parameters,
            },
        ],
        remappings=[
            *((f"~/input/{camera}/{suffix}", topic) for camera, topic in images.items()),
            ("~/input/odometry", odometry),
            *vehicle_info(values),
            *((f"~/output/{name}", topic) for name, topic in (outputs or {}).items()),
        ],
    )


def controller(config: Path, values: Mapping[str, str], car: str, odometry: str, **parameters: object) -> Node:
    """The controller's node. car: root of the car's command topics, such as /carla/ego_vehicle."""
    return Node(
        package=PACKAGE,
        executable="controller",
        name="controller",
        namespace=values["namespace"],
        output="screen",
        parameters=[
            str(config / "controller.param.yaml"),
            {"output": values["output"], "use_sim_time": flag(values, "use_sim_time"), **parameters},
        ],
        remappings=[
            ("~/input/trajectory", "planner/output/trajectory"),
            ("~/input/odometry", odometry),
            *vehicle_info(values),
            *((f"~/output/{command}", f"{car}/{command}") for command in COMMANDS),
        ],
    )


def vehicle_info(values: Mapping[str, str]) -> list[tuple[str, str]]:
    """The remapping to CARLA's topic, if the car has a CARLA role name."""
    return [("~/input/vehicle_info", f"/carla/{values['role_name']}/vehicle_info")] if "role_name" in values else []


def rear_axle(values: Mapping[str, str], until_told_m: float) -> dict[str, object]:
    """Parameters for the argument `rear_axle_x_m`: a number overrides vehicle_info; `auto` is
    `until_told_m` until that arrives."""
    if values["rear_axle_x_m"] == "auto":
        return {"rear_axle_x_m": until_told_m}
    return {"rear_axle_x_m": number(values, "rear_axle_x_m"), "use_vehicle_info": False}


def images_of(car: str, cameras: Sequence[str]) -> dict[str, str]:
    """CARLA's image topics of these cameras."""
    return {camera: f"{car}/{camera}/image" for camera in cameras}


def images_given(cameras: str, topics: str) -> dict[str, str]:
    """Cameras and their topics, both comma-separated. Raises ValueError unless there are equally many."""
    names, places = names_in(cameras), names_in(topics)
    if len(names) != len(places):
        raise ValueError(f"cameras {cameras!r} and images {topics!r}; must be as many of each")
    return dict(zip(names, places, strict=True))


def rviz(config: Path, values: Mapping[str, str]) -> list[Node]:
    """rviz with our view of a drive, if the argument `rviz` asks for it."""
    if not flag(values, "rviz"):
        return []
    return [
        Node(
            package="rviz2",
            executable="rviz2",
            namespace=values["namespace"],
            arguments=["-d", str(config / "drive.rviz")],
            parameters=[{"use_sim_time": flag(values, "use_sim_time")}],
        )
    ]
