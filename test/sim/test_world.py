"""The ego's limits, how scenarios end, and that the same seed gives the same world."""

import copy
import math

import pytest

from specdrive_ros.errors import InputError
from specdrive_ros.sim.ego import (
    CURVATURE_RATE_LIMIT,
    FRONT_FROM_AXLE_M,
    JERK_LIMIT_MPS3,
    Command,
    EgoState,
    move,
)
from specdrive_ros.sim.expert import EMERGENCY_BRAKE_MPS2
from specdrive_ros.sim.scenario import FAMILIES, make_world
from specdrive_ros.sim.world import boxes_overlap

DT = 0.05


def drive(world, command=None, seconds=60.0):
    """Drives until the scenario ends, by a command(world) or as the expert."""
    while world.outcome() is None and world.time_s < seconds:
        world.step(DT, command(world) if command else world.expert_command())
    return world.outcome()


def blindly(world):
    """Follows the lane and never brakes."""
    return Command(0.0, world.expert_command().curvature_per_m)


def first_seed(family, fits):
    return next(seed for seed in range(100) if fits(make_world(family, seed)))


def test_a_constant_curvature_drives_a_circle():
    ego = EgoState(0.0, 0.0, 0.0, 10.0, 0.0, 0.05)
    steps = int(round(2 * math.pi * 20.0 / (10.0 * DT)))
    for _ in range(steps):
        ego = move(ego, Command(0.0, 0.05), DT)
    assert math.hypot(ego.x, ego.y) < 0.5


def test_jerk_and_curvature_rate_are_limited_and_speed_stays_positive():
    ego = move(EgoState(0.0, 0.0, 0.0, 5.0), Command(-50.0, 1.0), DT)
    assert ego.acceleration == pytest.approx(-JERK_LIMIT_MPS3 * DT)
    assert ego.curvature == pytest.approx(CURVATURE_RATE_LIMIT * DT)
    for _ in range(100):
        ego = move(ego, Command(-50.0, 0.0), DT)
    assert ego.speed == 0.0 and ego.acceleration == 0.0


def test_a_command_that_is_no_number_does_not_spoil_the_state():
    ego = move(EgoState(0.0, 0.0, 0.0, 5.0), Command(math.nan, math.inf), DT)
    assert all(math.isfinite(v) for v in (ego.x, ego.y, ego.yaw, ego.speed, ego.acceleration, ego.curvature))


@pytest.mark.parametrize("recovery", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_expert_succeeds_comfortably(family, recovery):
    for seed in range(2):
        world = make_world(family, seed, recovery=recovery)
        while world.outcome() is None:
            world.step(DT, world.expert_command())
            assert -EMERGENCY_BRAKE_MPS2 <= world.ego.acceleration <= 2.0
            assert abs(world.ego.curvature) * world.ego.speed**2 < 3.6
        assert world.outcome().name == "success", (family, seed, world.outcome())


@pytest.mark.parametrize("family", FAMILIES)
def test_the_same_seed_is_the_same_world(family):
    worlds = [make_world(family, 7), make_world(family, 7)]
    for _ in range(60):
        for world in worlds:
            world.step(DT, world.expert_command())
    assert worlds[0].ego == worlds[1].ego
    assert worlds[0].label() == worlds[1].label()
    assert [v.s for v in worlds[0].vehicles] == [v.s for v in worlds[1].vehicles]
    assert make_world(family, 8).ego != make_world(family, 7).ego


def test_a_copy_goes_its_own_way():
    world = make_world("lead_vehicle", 3)
    other = copy.deepcopy(world)
    other.step(DT, Command(-3.0, 0.0))
    world.step(DT, world.expert_command())
    assert world.steps == other.steps == 1 and world.ego != other.ego
    assert world.vehicles[0] is not other.vehicles[0] and world.scene.scenery is other.scene.scenery


def test_driving_through_red_ends_as_red_light():
    def red_on_arrival(world):
        way = world.signal_intersection.s_stop_m - world.ego_s - FRONT_FROM_AXLE_M
        alone = all(v.id >= 20 for v in world.vehicles)
        return alone and world.ego.speed > 5 and world.signal.colour(way / world.ego.speed) == "red"

    world = make_world("traffic_light", first_seed("traffic_light", red_on_arrival))
    outcome = drive(world, blindly)
    assert outcome.name == "red_light" and "m/s while the light was red" in outcome.why
    assert world.signal.colour(world.time_s) == "red"


def test_driving_into_an_obstacle_ends_as_collision():
    world = make_world("obstacle", 0)
    lane = world.lane_d

    def straight_on(world):
        error = world.ego_d - lane
        heading = math.remainder(world.ego.yaw - world.road.line.heading_at(world.ego_s), 2 * math.pi)
        return Command(0.0, world.road.line.curvature_at(world.ego_s) - 0.02 * error - 0.25 * heading)

    outcome = drive(world, straight_on)
    assert outcome.name == "collision" and world.obstacles[0].colour in outcome.why


def test_not_braking_for_the_lead_ends_as_collision():
    world = make_world(
        "lead_vehicle", first_seed("lead_vehicle", lambda w: w.vehicles[0].wanted_speed(10.0) == 0.0)
    )
    assert drive(world, blindly).name == "collision"


def test_leaving_the_road_ends_as_off_road():
    outcome = drive(make_world("cruise", 0), lambda world: Command(0.0, 0.05))
    assert outcome.name == "off_road" and "beyond the edge" in outcome.why


def test_standing_still_ends_as_timeout():
    world = make_world("cruise", 0)
    world.scene.time_limit_s = 5.0
    outcome = drive(world, lambda world: Command(-3.0, 0.0))
    assert outcome.name == "timeout" and "short of the goal" in outcome.why


def test_the_first_outcome_stays():
    world = make_world("cruise", 0)
    first = drive(world, lambda world: Command(0.0, 0.05))
    for _ in range(20):
        world.step(DT, Command(-3.0, 0.0))
    assert world.outcome() is first


def test_the_world_goes_on_behind_the_goal():
    world = make_world("traffic_light", 1)
    drive(world)
    for _ in range(140):
        world.step(DT, world.expert_command())
    assert world.outcome().name == "success" and world.ego_s < world.road.line.length_m - 60


def test_boxes_overlap_when_turned():
    car = (0.0, 0.0, 0.0, 4.0, 2.0)
    assert boxes_overlap(car, (2.9, 0.0, math.pi / 2, 4.0, 2.0))
    assert not boxes_overlap(car, (3.1, 0.0, math.pi / 2, 4.0, 2.0))
    assert not boxes_overlap(car, (3.6, 2.4, math.pi / 4, 4.0, 2.0))


def test_wrong_arguments_are_refused():
    with pytest.raises(InputError, match="cruise, lead_vehicle"):
        make_world("racing", 0)
    with pytest.raises(InputError, match="negative"):
        make_world("cruise", -1)
    with pytest.raises(InputError, match="between"):
        make_world("cruise", 0).step(5.0, Command(0.0, 0.0))
