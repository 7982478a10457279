"""The plan as autoware_planning_msgs/Trajectory, for Autoware stacks. Imports that package only when asked to.

Same points, same times, same frame. A front wheel angle would need a wheelbase, which the planner does not know: it is
0, as in the output of Autoware's own planners.
"""

from importlib import import_module

import numpy as np

from specdrive_ros.errors import InputError
from specdrive_ros.msg import Trajectory

PACKAGE = "autoware_planning_msgs"


def load_messages() -> object:
    """The module of the messages. Raises InputError if their package is not installed."""
    try:
        return import_module(f"{PACKAGE}.msg")
    except ImportError as error:
        raise InputError(
            f"parameter autoware_output: needs package {PACKAGE}, which is not installed; install it or choose false"
        ) from error


def autoware_trajectory(messages: object, trajectory: Trajectory) -> object:
    """The same trajectory as an Autoware message. messages: from `load_messages`."""
    points = [
        messages.TrajectoryPoint(
            time_from_start=point.time_from_start,
            pose=point.pose,
            longitudinal_velocity_mps=point.longitudinal_velocity_mps,
            lateral_velocity_mps=0.0,
            acceleration_mps2=point.acceleration_mps2,
            heading_rate_rps=float(np.float32(point.longitudinal_velocity_mps * point.curvature_per_m)),
            front_wheel_angle_rad=0.0,
            rear_wheel_angle_rad=0.0,
        )
        for point in trajectory.points
    ]
    return messages.Trajectory(header=trajectory.header, points=points)
