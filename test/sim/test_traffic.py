"""IDM, signals and brake lights."""

import math

import pytest

from specdrive_ros.sim.road import ReferenceLine, Segment
from specdrive_ros.sim.scenario import make_world
from specdrive_ros.sim.traffic import Signal, Vehicle, idm_acceleration

LINE = ReferenceLine([Segment(600.0)])


def test_idm_keeps_its_speed_on_a_free_road_and_brakes_for_a_wall():
    assert idm_acceleration(10.0, 10.0, math.inf, 0.0) == pytest.approx(0.0)
    assert idm_acceleration(5.0, 10.0, math.inf, 0.0) > 1.0
    assert idm_acceleration(10.0, 10.0, 20.0, 10.0) < -2.0


def test_a_following_vehicle_never_touches_one_that_stops_hard():
    lead = Vehicle(
        1, "car", "red", LINE, 60.0, 0.0, 14.0, phases=((0.0, 14.0), (3.0, 0.0)), deceleration_mps2=6.0
    )
    follower = Vehicle(2, "car", "blue", LINE, 30.0, 0.0, 14.0, phases=((0.0, 14.0),))
    least = math.inf
    for step in range(400):
        gap = lead.s - follower.s - lead.size.length_m
        least = min(least, gap)
        lead.advance(math.inf, 0.0, step * 0.05, 0.05)
        follower.advance(gap, follower.speed - lead.speed, step * 0.05, 0.05)
    assert lead.speed == 0.0 and follower.speed < 0.05
    assert 0.5 < least < 5.0


def test_brake_lights_show_while_braking_and_standing_only():
    vehicle = Vehicle(1, "car", "red", LINE, 0.0, 0.0, 10.0, phases=((0.0, 10.0), (2.0, 0.0), (12.0, 10.0)))
    seen = {}
    for step in range(360):
        vehicle.advance(math.inf, 0.0, step * 0.05, 0.05)
        seen[round(step * 0.05, 2)] = vehicle.braking
    assert not seen[1.5] and seen[3.0] and seen[11.0] and not seen[14.0]


def test_the_signal_goes_green_yellow_red():
    signal = Signal(1, green_s=10.0, yellow_s=3.0, red_s=8.0, offset_s=0.0)
    assert [signal.colour(t) for t in (0.0, 9.9, 10.1, 12.9, 13.1, 20.9, 21.1)] == [
        "green",
        "green",
        "yellow",
        "yellow",
        "red",
        "red",
        "green",
    ]
    assert signal.red_time_left_s(14.0) == pytest.approx(7.0)
    assert signal.red_time_left_s(5.0) == 0.0


def test_cross_traffic_enters_only_while_our_light_is_safely_red():
    signal = Signal(1, green_s=10.0, yellow_s=3.0, red_s=8.0, offset_s=0.0)
    assert [signal.cross_open(t) for t in (9.0, 12.0, 13.5, 14.5, 20.0)] == [False, False, False, True, False]


@pytest.mark.parametrize("seed", range(2))
def test_vehicles_do_not_run_into_each_other(seed):
    world = make_world("traffic_light", seed)
    while world.outcome() is None:
        world.step(0.05, world.expert_command())
        for a in world.vehicles:
            for b in world.vehicles:
                same_lane = a.line is b.line and abs(a.d - b.d) < 1.0 and a.direction == b.direction
                if a.id < b.id and same_lane and abs(a.s) < a.line.length_m - 1:
                    assert abs(a.s - b.s) > 0.5 * (a.size.length_m + b.size.length_m)
