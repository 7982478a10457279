"""Families of scenes and their random choices. The same family and seed give the same world.

`python -m specdrive_ros.sim.scenario` drives every family with the expert and prints how it ends.
"""

import argparse
import math
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from specdrive_ros.errors import InputError
from specdrive_ros.sim.appearance import TRAIN, Appearance, appearance_of
from specdrive_ros.sim.families import following, intersections, lanes, passing, people
from specdrive_ros.sim.families.draft import START_S, Draft
from specdrive_ros.sim.families.surroundings import bystanders, oncoming, parked_aside
from specdrive_ros.sim.pinhole import FRONT_CAMERA
from specdrive_ros.sim.scenery import make_scenery
from specdrive_ros.sim.world import Scene, World

BUILDERS: dict[str, Callable[[np.random.Generator, bool], Draft]] = {
    "cruise": following.cruise,
    "lead_vehicle": following.lead_vehicle,
    "traffic_light": intersections.traffic_light,
    "obstacle": passing.obstacle,
    "stop_sign": intersections.stop_sign,
    "pedestrian": people.pedestrian,
    "cut_in": lanes.cut_in,
    "merge": lanes.merge,
    "lane_change": lanes.lane_change,
    "emergency_stop": people.emergency_stop,
}
FAMILIES: tuple[str, ...] = tuple(BUILDERS)
ARROW_SHARE = 0.25  # of signals


def choose_families(names: Sequence[str], every: Sequence[str] = FAMILIES) -> tuple[str, ...]:
    """The families of these names, each once; "all" means `every`. Raises InputError for an unknown name."""
    for name in names:
        if name != "all" and name not in FAMILIES:
            raise InputError(f"--scenario {name}: no such scenario; there are {', '.join(FAMILIES)} and all")
    for name in every:
        if name not in FAMILIES:
            raise InputError(f"the model's settings, scenarios: no such scenario {name}; "
                             f"there are {', '.join(FAMILIES)}")
    return tuple(every) if "all" in names else tuple(dict.fromkeys(names))


def make_world(
    family: str, seed: int, *, recovery: bool = False, appearance: str = TRAIN.name
) -> World:
    """A world of one family. recovery: starts off centre, off heading and off speed, for training.

    appearance: "train", or "held_out" for shades and styles that training never uses; the scene is the same otherwise.
    Raises InputError for an unknown family or appearance, or a negative seed.
    """
    look = appearance_of(appearance, seed)
    if family not in BUILDERS:
        raise InputError(f"no scenario family {family!r}: it must be one of {', '.join(FAMILIES)}")
    if seed < 0:
        raise InputError(f"seed {seed} is negative: it must be 0 or more")
    rng = np.random.default_rng(np.random.SeedSequence([seed, zlib.crc32(family.encode()), int(recovery)]))
    draft = BUILDERS[family](rng, recovery)
    if draft.signal is not None:
        draft.signal = replace(draft.signal, arrow=_shows_arrow(seed, recovery))
    return World(_finish(draft, family, seed, rng, recovery, look))


def _shows_arrow(seed: int, recovery: bool) -> bool:
    """Drawn from a separate random stream, so that worlds with round lamps are the same as before arrows were
    added."""
    rng = np.random.default_rng(np.random.SeedSequence([seed, zlib.crc32(b"arrow"), int(recovery)]))
    return bool(rng.random() < ARROW_SHARE)


def _finish(
    draft: Draft, family: str, seed: int, rng: np.random.Generator, recovery: bool, look: Appearance
) -> Scene:
    draft.vehicles += oncoming(rng, draft)
    draft.vehicles += [v for v in parked_aside(rng, draft.road) if not draft.is_clear_of(v.s)]
    draft.obstacles += [b for b in bystanders(rng, draft.road) if not draft.is_clear_of(b.s)]
    offset, turn, speed = rng.uniform(-0.12, 0.12), rng.uniform(-0.008, 0.008), draft.speed_mps
    if recovery:
        offset, turn, speed = _recovery_start(rng, draft.speed_mps)
    return Scene(
        family=family,
        seed=seed,
        road=draft.road,
        lane_d=draft.lane_d,
        wanted_mps=draft.wanted_mps,
        start_s=START_S,
        start_d=draft.lane_d + offset,
        start_heading_error=turn,
        start_speed_mps=speed,
        goal_s=draft.goal_s,
        time_limit_s=draft.time_limit_s,
        vehicles=draft.vehicles,
        obstacles=draft.obstacles,
        signal=draft.signal,
        signal_intersection=draft.crossing,
        walkers=draft.walkers,
        stop_sign=draft.stop_sign,
        free_lanes=draft.free_lanes,
        scenery=make_scenery(draft.road, rng, FRONT_CAMERA.fx, look),
    )


def _recovery_start(rng: np.random.Generator, speed: float) -> tuple[float, float, float]:
    """Offset (m), heading error (rad), speed (m/s) from which a good driver can recover within the road."""
    while True:
        offset, turn = rng.uniform(-1.2, 1.2), math.radians(rng.uniform(-8.0, 8.0))
        start = speed * rng.uniform(0.6, 1.4)
        drift = math.copysign(0.5 * turn * turn * max(start, 3.0) ** 2 / 2.2, turn)
        if abs(offset + drift) < 1.15:
            return offset, turn, start


def main() -> None:
    """Lets the expert drive and prints outcomes per family."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--families", nargs="+", default=FAMILIES, choices=FAMILIES)
    parser.add_argument("--recovery", action="store_true")
    options = parser.parse_args()
    for family in options.families:
        endings, seconds = Counter(), []
        for seed in range(options.first_seed, options.first_seed + options.seeds):
            world = make_world(family, seed, recovery=options.recovery)
            while world.outcome() is None:
                world.step(0.05, world.expert_command())
            endings[world.outcome().name] += 1
            seconds.append(world.time_s)
            if world.outcome().name != "success":
                print(f"  {family} seed {seed}: {world.outcome().name}, {world.outcome().why}")
        print(
            f"{family:14} {dict(endings)}  {np.mean(seconds):.1f} s on average, longest {max(seconds):.1f} s"
        )


if __name__ == "__main__":
    main()
