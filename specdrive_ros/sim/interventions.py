"""One thing in a world changed, everything else as it was: what would the expert see and do then?

In observed events, causes hide behind each other: whoever brakes has mostly seen red. If only the lamp differs, only
the lamp can be the reason (interventions: Pearl, "Causality", 2009). Every function returns a modified copy and leaves
the world passed in as it is.
"""

import copy
from dataclasses import replace

import numpy as np

from specdrive_ros.sim.world import World

THINGS_OF_A_WORLD = ("vehicles", "obstacles", "walkers")  # lists of a world whose entries have an id
SIGNAL_SHIFT = (0.25, 0.75)  # shares of its cycle: mostly another colour
HAZARD_LIGHTS_SHARE = 0.5  # of the interventions on a vehicle with hazard lights; otherwise it is removed


def without(world: World, thing: int) -> World:
    """The world without the vehicle, obstacle or walker of this id."""
    ghost = copy.deepcopy(world)
    for kept_in in THINGS_OF_A_WORLD:
        setattr(ghost, kept_in, [one for one in getattr(ghost, kept_in) if one.id != thing])
    ghost.pass_paths = tuple(path for path in ghost.pass_paths if path.obstacle.id != thing)
    return ghost


def with_signal_shifted(world: World, by_s: float) -> World:
    """The world with its signal moved forward in its cycle by this many seconds."""
    ghost = copy.deepcopy(world)
    ghost.signal = replace(ghost.signal, offset_s=ghost.signal.offset_s + by_s)
    return ghost


def without_hazard_lights(world: World, thing: int) -> World:
    """The world with this vehicle's hazard lights off."""
    ghost = copy.deepcopy(world)
    for vehicle in ghost.vehicles:
        if vehicle.id == thing:
            vehicle.hazard_lights = False
    return ghost


def intervene(world: World, rng: np.random.Generator) -> World | None:
    """The world with one thing changed at random: the signal if there is one, else something that moves or stands in
    the way. None if there is nothing to change."""
    if world.signal is not None:
        return with_signal_shifted(world, float(rng.uniform(*SIGNAL_SHIFT)) * world.signal.cycle_s)
    covers = {id(walker.cover) for walker in world.walkers}  # someone who steps out from behind one needs it
    driving = [one for one in world.vehicles if not one.parked]
    things = [one for one in (*driving, *world.obstacles, *world.walkers) if id(one) not in covers]
    if not things:
        return None
    thing = things[rng.integers(len(things))]
    if thing in driving and thing.hazard_lights and rng.random() < HAZARD_LIGHTS_SHARE:
        return without_hazard_lights(world, thing.id)
    return without(world, thing.id)
