"""A world with one thing otherwise: that thing and nothing else, and the world it came from as it was."""

import numpy as np
import pytest

from specdrive_ros.sim.interventions import intervene, with_signal_shifted, without, without_hazard_lights
from specdrive_ros.sim.scenario import FAMILIES, make_world
from specdrive_ros.sim.world import Command


def world_where(family, holds):
    """The first world of the family, driven by the expert to where it holds."""
    for seed in range(10):
        world = make_world(family, seed)
        while world.outcome() is None:
            if holds(world):
                return world
            world.step(0.05, world.expert_command())
    raise AssertionError(f"{family}: no such instant in ten worlds")


def test_an_obstacle_that_is_not_there_is_not_passed():
    world = world_where("obstacle", lambda world: world.intent.passing is not None)
    thing, obstacles = world.intent.passing.obstacle.id, list(world.obstacles)
    ghost = without(world, thing)
    ghost.step(0.05, Command(0.0, 0.0))
    assert ghost.intent.passing is None and thing not in [one.id for one in ghost.obstacles]
    assert world.obstacles == obstacles and world.intent.passing is not None


@pytest.mark.parametrize("family", ["lead_vehicle", "lane_change"])
def test_a_lead_that_is_not_there_is_not_followed(family):
    world = world_where(family, lambda world: world.intent.lead is not None)
    ghost = without(world, world.intent.lead.id)
    ghost.step(0.05, Command(0.0, 0.0))
    assert ghost.intent.lead is None and world.intent.lead is not None
    assert len(ghost.vehicles) == len(world.vehicles) - 1 and len(ghost.walkers) == len(world.walkers)


def test_a_crawling_vehicle_without_hazard_lights_is_followed():
    world = world_where("lane_change", lambda world: world.intent.change is not None)
    slow = next(vehicle for vehicle in make_world("lane_change", world.scene.seed).vehicles if vehicle.hazard_lights)
    ghost = without_hazard_lights(make_world("lane_change", world.scene.seed), slow.id)
    while ghost.outcome() is None:
        assert ghost.intent.change is None
        ghost.step(0.05, ghost.expert_command())


def test_a_signal_half_a_cycle_later_shows_another_colour_and_the_same_all_over_again_after_a_whole():
    world = make_world("traffic_light", 0)
    cycle_s = world.signal.cycle_s
    times = np.arange(0.0, 2 * cycle_s, 0.5)
    half, whole = (with_signal_shifted(world, share * cycle_s).signal for share in (0.5, 1.0))
    assert np.mean([half.colour(t) != world.signal.colour(t) for t in times]) > 0.5
    assert all(whole.colour(t + 1e-6) == world.signal.colour(t + 1e-6) for t in times)


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_drawn_changes_one_thing(family):
    things = ("vehicles", "obstacles", "walkers")
    rng = np.random.default_rng(0)
    for seed in range(8):
        world, again = make_world(family, seed), make_world(family, seed)
        other = intervene(world, rng)
        assert [[one.id for one in getattr(world, name)] for name in things] == [[one.id for one in getattr(again, name)]
                                                                                  for name in things]
        if other is None:
            assert not world.obstacles and not world.walkers and all(one.parked for one in world.vehicles)
            continue
        gone = sum(len(getattr(world, name)) - len(getattr(other, name)) for name in things)
        lights = sum(one.hazard_lights for one in world.vehicles) - sum(one.hazard_lights for one in other.vehicles)
        shifted = world.signal is not None and other.signal != world.signal
        assert gone + shifted == 1 or (gone == 0 and lights == 1)


def test_what_somebody_steps_out_from_behind_stays():
    rng = np.random.default_rng(1)
    for seed in range(12):
        world = make_world("emergency_stop", seed)
        for _ in range(4):
            other = intervene(world, rng)
            kept = {one.id for one in (*other.vehicles, *other.obstacles)} if other is not None else set()
            for walker in other.walkers if other is not None else ():
                assert walker.cover is None or walker.cover.id in kept
