"""The plan as autoware_planning_msgs/Trajectory, for Autoware stacks. Imports that package only when asked to.

Same points, same times, same frame. The front wheels' angle is that of the plan's curvature for the car's wheelbase,
not limited to what they can turn.
"""

from importlib import import_module

import numpy as np

from specdrive_ros.errors import InputError
from specdrive_ros.msg import Trajectory
from specdrive_ros.ros.vehicle_geometry import VehicleGeometry

PACKAGE = "autoware_planning_msgs"


def load_messages() -> object:
    """The module of the messages. Raises InputError if their package is not installed."""
    try:
        return import_module(f"{PACKAGE}.msg")
    except ImportError as error:
        raise InputError(
            f"parameter autoware_output: needs package {PACKAGE}, which is not installed; install it or choose false"
        ) from error


def autoware_trajectory(messages: object, trajectory: Trajectory, car: VehicleGeometry) -> object:
    """The same trajectory as an Autoware message. messages: from `load_messages`."""
    points = [
        messages.TrajectoryPoint(
            time_from_start=point.time_from_start,
            pose=point.pose,
            longitudinal_velocity_mps=point.longitudinal_velocity_mps,
            lateral_velocity_mps=0.0,
            acceleration_mps2=point.acceleration_mps2,
            heading_rate_rps=float(np.float32(point.longitudinal_velocity_mps * point.curvature_per_m)),
            front_wheel_angle_rad=car.front_wheel_angle_rad(point.curvature_per_m),
            rear_wheel_angle_rad=0.0,
        )
        for point in trajectory.points
    ]
    return messages.Trajectory(header=trajectory.header, points=points)
