"""Around what stands in the lane: it can be told from what drives ahead, and it is given room."""

import copy
import dataclasses

import numpy as np
import pytest

from specdrive_ros.sim.camera import render
from specdrive_ros.sim.ego import FRONT_FROM_AXLE_M, REAR_OVERHANG_M, WIDTH_M
from specdrive_ros.sim.paths import PASS_CLEARANCE_M
from specdrive_ros.sim.scenario import make_world
from specdrive_ros.sim.traffic import BLINK_HZ

DT = 0.05


def approach(seed, gap_m):
    """The expert's drive up to this gap before the obstacle."""
    world = make_world("obstacle", seed)
    while world.intent.obstacle_gap_m > gap_m:
        world.step(DT, world.expert_command())
    return world


def first_approach(kinds, gap_m):
    worlds = (approach(seed, gap_m) for seed in range(30))
    return next(world for world in worlds if world.intent.passing.obstacle.kind in kinds)


def pixels_of_hazard_lights(world):
    """How many pixels change when the obstacle's hazard lights go out."""
    lit = render(world).astype(int)
    dark = copy.deepcopy(world)
    dark.obstacles = [dataclasses.replace(o, hazard_lights=False) for o in world.obstacles]
    return (np.abs(lit - render(dark)).max(2) > 60).sum()


def test_a_vehicle_that_stands_in_the_lane_shows_it_by_blinking_lights():
    world, counts = first_approach(("car", "van"), 25.0), []
    for _ in range(round(2.0 / BLINK_HZ / DT)):
        counts.append(pixels_of_hazard_lights(world))
        world.step(DT, world.expert_command())
    assert max(counts) >= 4 and min(counts) == 0


@pytest.mark.parametrize("kind", ["cones", "box"])
def test_a_thing_has_no_lights(kind):
    world = first_approach((kind,), 25.0)
    assert world.intent.passing.obstacle.indicates == (False, False)


@pytest.mark.parametrize("seed", range(6))
def test_the_expert_is_beside_the_obstacle_in_full_with_room_between(seed):
    world = approach(seed, 6.0)
    obstacle, between = world.intent.passing.obstacle, []
    half_lengths = 0.5 * obstacle.size.length_m
    while world.outcome() is None and world.ego_s - REAR_OVERHANG_M < obstacle.s + half_lengths:
        if world.ego_s + FRONT_FROM_AXLE_M > obstacle.s - half_lengths:
            between.append(abs(world.ego_d - obstacle.d) - 0.5 * (WIDTH_M + obstacle.size.width_m))
        world.step(DT, world.expert_command())
    assert min(between) > PASS_CLEARANCE_M - 0.25
