"""A car from its wheels: what is derived, and what is refused because it is no car's."""

import numpy as np
import pytest

from specdrive_ros.controller import ControlCommand
from specdrive_ros.errors import InputError
from specdrive_ros.ros import vehicle_interface as vehicle
from specdrive_ros.ros.vehicle_geometry import EMBEDDED, VehicleGeometry, from_wheels

REAR_X, FRONT_X, TURN = -1.37, 1.5, np.radians(60.0)
WHEELS = np.array([(FRONT_X, 0.8), (FRONT_X, -0.8), (REAR_X, 0.8), (REAR_X, -0.8)])  # in CARLA's order
STEER = np.array([TURN, TURN, 0.0, 0.0])


def values(car: VehicleGeometry) -> tuple[float, ...]:
    return car.rear_axle_x_m, car.wheelbase_m, car.max_steering_angle_rad


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (2, 3, 0, 1), (3, 0, 2, 1)])
def test_axles_are_found_by_where_they_are_not_by_their_order(order):
    car = from_wheels(WHEELS[list(order)], STEER[list(order)])
    assert values(car) == pytest.approx((REAR_X, FRONT_X - REAR_X, TURN))


def test_two_rear_axles_count_as_one_in_their_middle():
    wheels = np.vstack([WHEELS, [(REAR_X - 1.2, 0.8), (REAR_X - 1.2, -0.8)]])
    car = from_wheels(wheels, np.append(STEER, [0.0, 0.0]))
    assert values(car) == pytest.approx((REAR_X - 0.6, FRONT_X - REAR_X + 0.6, TURN))


@pytest.mark.parametrize(("wheels", "steer", "why"), [
    (WHEELS[:0], STEER[:0], "0 wheels; must be 4 at least"),
    (WHEELS[[0, 2]], STEER[[0, 2]], "2 wheels; must be 4 at least"),
    (WHEELS * [np.nan, 1], STEER, "not finite"),
    (WHEELS * [np.inf, 1], STEER, "not finite"),
    (WHEELS, STEER * np.nan, "not finite"),
    (WHEELS * 0, STEER, "2 or more on each of two axles"),  # what CARLA 0.10.0 says of every car
    (WHEELS * [0, 1], STEER, "2 or more on each of two axles"),
    (WHEELS[[0, 1, 1, 2]], STEER[[0, 1, 1, 2]], "2 or more on each of two axles"),
    (WHEELS * 100, STEER, "rear_axle_x_m: -137; must be from -10.0 to 10.0"),
    (WHEELS * [4, 1], STEER, "wheelbase_m: 11.48; must be from 1.0 to 8.0"),
    (WHEELS / 100, STEER, "wheelbase_m: 0.0287; must be from 1.0 to 8.0"),
    (WHEELS * [-1, 1], STEER, "wheels of the rear axle steer"),
    (WHEELS[:, ::-1], STEER, "wheels of the rear axle steer"),
    (WHEELS, STEER[::-1], "wheels of the rear axle steer"),
    (WHEELS, np.full(4, TURN), "wheels of the rear axle steer"),
    (WHEELS, np.degrees(STEER), "max_steering_angle_rad: 60; must be from 0.1 to 1.4"),
    (WHEELS, np.radians(STEER), "max_steering_angle_rad: 0.018277; must be from 0.1 to 1.4"),
    (WHEELS, STEER * 0, "max_steering_angle_rad: 0; must be from"),
    (WHEELS, -STEER, "must be 0 or more"),
    (WHEELS + [5.0, 0.0], STEER, "must be around the origin of the car's own frame"),
    (WHEELS - [5.0, 0.0], STEER, "must be around the origin of the car's own frame"),
    (WHEELS + [0.0, 40.0], STEER, "must be around the origin of the car's own frame"),
    (WHEELS + [300.0, 40.0], STEER, "rear_axle_x_m: 298.63; must be from"),
])
def test_what_is_no_car_is_refused_with_the_rule(wheels, steer, why):
    with pytest.raises(InputError, match=why):
        from_wheels(wheels, steer)


def test_a_car_s_own_values_are_held_to_the_same_ranges():
    with pytest.raises(InputError, match="wheelbase_m: nan; must be from 1.0 to 8.0"):
        VehicleGeometry(wheelbase_m=float("nan"))


def test_the_same_curve_for_another_car():
    car = VehicleGeometry(REAR_X, 3.2, 0.6)
    share = -np.arctan(3.2 * 0.05) / 0.6
    assert vehicle.pedals(1.0, 0.05, car).steer == pytest.approx(share)
    assert vehicle.from_pedals(vehicle.pedals(1.0, 0.05, car), car) == pytest.approx((1.0, 0.05))
    assert vehicle.ackermann(5.0, 1.0, 0.05, car).steering_angle_rad == pytest.approx(np.arctan(0.16))
    assert vehicle.pedals(1.0, 0.05).steer == vehicle.pedals(1.0, 0.05, EMBEDDED).steer != pytest.approx(share)


def test_a_curve_that_is_too_tight_is_steered_as_far_as_the_wheels_turn():
    messages = pytest.importorskip("specdrive_ros.ros.vehicle_messages")
    car = VehicleGeometry(REAR_X, 3.2, 0.3)
    assert np.arctan(3.2 * 0.2) > 0.3
    left, right = ControlCommand(3.0, 0.0, 0.2), ControlCommand(3.0, 0.0, -0.2)
    assert messages.message_of("ackermann", left, car).steering_angle == pytest.approx(0.3)
    assert messages.message_of("ackermann", right, car).steering_angle == pytest.approx(-0.3)
    assert messages.message_of("carla", left, car).steer == -1.0
