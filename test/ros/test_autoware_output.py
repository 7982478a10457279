"""The plan in Autoware's message: fields by name, with stand-ins of its classes where its package is not installed."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("specdrive_ros.msg")
from specdrive_ros.errors import InputError  # noqa: E402
from specdrive_ros.msg import Trajectory  # noqa: E402
from specdrive_ros.ros.autoware_output import autoware_trajectory, load_messages  # noqa: E402
from specdrive_ros.ros.conversions import nanoseconds, trajectory_message  # noqa: E402
from specdrive_ros.ros.vehicle_geometry import EMBEDDED, VehicleGeometry  # noqa: E402
from specdrive_ros.safety.fallback import stop_from  # noqa: E402

POINT = ("time_from_start", "pose", "longitudinal_velocity_mps", "lateral_velocity_mps", "acceleration_mps2",
         "heading_rate_rps", "front_wheel_angle_rad", "rear_wheel_angle_rad")  # as the public package has them


def messages():
    """The real ones, or classes that take the same fields and no others."""
    try:
        return load_messages()
    except InputError:
        def point(**fields):
            assert tuple(fields) == POINT
            return SimpleNamespace(**fields)

        return SimpleNamespace(TrajectoryPoint=point, Trajectory=SimpleNamespace)


def test_points_times_and_turning():
    ours = trajectory_message(stop_from(7, 8.0, 0.05), "base_link", Trajectory.STOP)
    theirs = autoware_trajectory(messages(), ours, EMBEDDED)
    assert theirs.header == ours.header and len(theirs.points) == 64
    assert nanoseconds(theirs.points[9].time_from_start) == 1_000_000_000
    assert theirs.points[0].heading_rate_rps == pytest.approx(7.8 * 0.05, rel=1e-4)
    assert np.isfinite([point.acceleration_mps2 for point in theirs.points]).all()


@pytest.mark.parametrize(
    ("curvature_per_m", "wheelbase_m", "angle_rad"),
    [  # by hand: tan(angle) = wheelbase * curvature
        (0.05, 2.0, 0.0996687),  # tan 0.1
        (-0.05, 2.0, -0.0996687),  # to the right
        (0.25, 4.0, 0.7853982),  # 45 degrees
        (-0.25, 6.9282032, -1.0471976),  # 60 degrees: the wheels' own limit is not the plan's
        (0.0, 2.7, 0.0),
    ],
)
def test_front_wheels_turn_as_the_plan_s_curvature_says(curvature_per_m, wheelbase_m, angle_rad):
    ours = trajectory_message(stop_from(7, 8.0, 0.0), "base_link", Trajectory.STOP)
    ours.points[5].curvature_per_m = curvature_per_m
    theirs = autoware_trajectory(messages(), ours, VehicleGeometry(0.0, wheelbase_m, 0.6))
    angles_rad = [point.front_wheel_angle_rad for point in theirs.points]
    assert angles_rad.pop(5) == pytest.approx(angle_rad, abs=1e-6) and not any(angles_rad)


def test_without_its_package_it_is_one_clear_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "autoware_planning_msgs", None)
    with pytest.raises(InputError, match="autoware_planning_msgs, which is not installed"):
        load_messages()
