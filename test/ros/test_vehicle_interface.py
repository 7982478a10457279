"""What the controller writes is what the world reads."""

import sys

import pytest

from specdrive_ros.errors import InputError
from specdrive_ros.ros import vehicle_interface as vehicle
from specdrive_ros.ros.vehicle_messages import message_type


@pytest.mark.parametrize("acceleration", [-8.0, -2.5, 0.0, 1.5, 3.0])
@pytest.mark.parametrize("curvature", [-0.2, -0.01, 0.0, 0.2])
def test_pedals_and_back(acceleration, curvature):
    again = vehicle.from_pedals(vehicle.pedals(acceleration, curvature))
    assert again == pytest.approx((acceleration, curvature), abs=1e-9)


def test_signs():
    assert vehicle.ackermann(5.0, 1.0, 0.05).steering_angle_rad > 0  # left positive
    assert vehicle.pedals(1.0, 0.05).steer < 0  # right positive
    assert vehicle.pedals(1.0, 0.0).brake == 0.0 and vehicle.pedals(-1.0, 0.0).throttle == 0.0


def test_servo_gives_the_acceleration_the_controller_meant():
    """The controller previews by the inverse of the servo's gain."""
    speed, acceleration = 8.0, -1.7
    target = speed + acceleration / vehicle.SPEED_GAIN_PER_S
    command = vehicle.ackermann(target, acceleration, 0.0)
    assert vehicle.servo_acceleration(command, speed) == pytest.approx(acceleration)


def test_servo_stops_without_reversing():
    command = vehicle.ackermann(0.0, -2.5, 0.0)
    assert vehicle.servo_acceleration(command, 10.0) == -2.5
    assert vehicle.servo_acceleration(command, 0.0) == 0.0


@pytest.mark.parametrize("output, package, other", [("ackermann", "ackermann_msgs", "carla"),
                                                    ("carla", "carla_msgs", "ackermann")])
def test_a_message_that_is_not_installed_is_refused_with_the_other_choice(monkeypatch, output, package, other):
    monkeypatch.setitem(sys.modules, f"{package}.msg", None)
    with pytest.raises(InputError, match=f"package {package} is not installed; install it or choose {other}"):
        message_type(output)
