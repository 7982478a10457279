"""What the front camera sees of a world: a drawn image, [H, W, 3] uint8 RGB.

Everything a driver needs is drawn: road and markings, stop line, vehicles with brake lights, signals, obstacles,
people, signs, houses and trees. Painter's algorithm, far to near, at twice the size, then averaged down. The image
depends only on the world's state; rendering twice gives the same bytes. `signal_override` and `without` change one
thing and leave every other pixel as it was (camera noise included).

Frames per second:  python -m specdrive_ros.sim.camera
"""

import argparse
import time
from collections.abc import Callable, Collection
from functools import lru_cache
from typing import TYPE_CHECKING

import cv2
import numpy as np

from specdrive_ros.errors import InputError
from specdrive_ros.quantiles import quantiles
from specdrive_ros.sim.bodies import bodies_in_view, houses_in_view, trees_in_view
from specdrive_ros.sim.figures import walkers_in_view
from specdrive_ros.sim.ground import draw_ground
from specdrive_ros.sim.pinhole import FRONT_CAMERA, PinholeCamera, front_camera, project
from specdrive_ros.sim.signs import lane_end_sign_in_view, signals_in_view, stop_sign_in_view
from specdrive_ros.sim.traffic import SIGNAL_COLOURS
from specdrive_ros.sim.view import View

if TYPE_CHECKING:
    from specdrive_ros.sim.world import World

__all__ = ["FRONT_CAMERA", "PinholeCamera", "front_camera", "project", "render"]

NOISE_PLACES = (61, 193)  # rows and columns by which a frame's noise is shifted in the bank


def render(
    world: "World",
    camera_name: str = FRONT_CAMERA.name,
    *,
    signal_override: str | None = None,
    without: Collection[int | str] = (),
) -> np.ndarray:
    """The camera's image of the world now, uint8 [H, W, 3] RGB.

    signal_override: draw every signal in this colour ("red", "yellow", "green").
    without:         what is not drawn: ids, or roles in `ROLES` ("lead", "pedestrian", "hazard" …).
    Raises InputError for a camera the world does not have, an unknown signal colour or an unknown role.
    """
    if camera_name not in world.cameras:
        raise InputError(f"no camera {camera_name!r}: this world has {', '.join(world.cameras)}")
    if signal_override is not None and signal_override not in SIGNAL_COLOURS:
        raise InputError(
            f"no signal colour {signal_override!r}: it must be one of {', '.join(SIGNAL_COLOURS)}"
        )
    camera = world.cameras[camera_name]
    view = View(world, camera)
    draw_ground(view, world)
    left_out = _ids(world, without)
    for _, draw, thing in sorted(_things(view, world, signal_override, left_out), key=lambda t: -t[0]):
        draw(view, thing)
    picture = cv2.resize(view.canvas, (camera.width, camera.height), interpolation=cv2.INTER_AREA)
    return cv2.add(
        picture,
        _noise(camera, view.scenery.light.noise_sigma, world.scene.seed, world.steps),
        dtype=cv2.CV_8U,
    )


def _things(view: View, world: "World", signal_override: str | None, without: Collection[int]):
    """(distance, draw, thing) of everything upright that is near enough."""
    yield from houses_in_view(view, world.ego_s)
    yield from trees_in_view(view, world.ego_s)
    yield from bodies_in_view(view, world, without)
    if world.signal is not None and world.signal.id not in without:
        yield from signals_in_view(view, world, signal_override)
    if world.stop_sign is not None and world.stop_sign.id not in without:
        yield from stop_sign_in_view(view, world)
    if world.road.lane_end is not None:
        yield from lane_end_sign_in_view(view, world)
    if world.walkers:
        yield from walkers_in_view(view, world, without)


# Roles of things for the driver now; every walker is left out, not only the nearest.
ROLES: dict[str, Callable] = {
    "lead": lambda world: [world.intent.lead],
    "cut_in": lambda world: [world.intent.cut_in],
    "cross_vehicle": lambda world: [world.intent.cross_vehicle],
    "pedestrian": lambda world: [walker for walker in world.walkers if not walker.sudden],
    "hazard": lambda world: [walker for walker in world.walkers if walker.sudden],
    "stop_sign": lambda world: [world.stop_sign],
    "signal": lambda world: [world.signal],
}


def _ids(world: "World", without: Collection[int | str]) -> set[int]:
    """Replaces roles by the ids of the things that have them now; a role that nothing has leaves out nothing."""
    ids = set()
    for entry in without:
        if not isinstance(entry, str):
            ids.add(entry)
        elif entry in ROLES:
            ids.update(thing.id for thing in ROLES[entry](world) if thing is not None)
        else:
            raise InputError(f"without {entry!r}: it must be an id or one of {', '.join(ROLES)}")
    return ids


def _noise(camera: PinholeCamera, sigma: float, seed: int, frame: int) -> np.ndarray:
    """[H, W, 3] int16 camera noise of one frame: a window into a bank, chosen by seed and frame."""
    mixed = (seed * 2654435761 + frame * 2654404609) & 0xFFFFFFFF
    mixed ^= mixed >> 15
    row, column = mixed % NOISE_PLACES[0], mixed // NOISE_PLACES[0] % NOISE_PLACES[1]
    return _noise_bank(camera.height, camera.width, sigma)[
        row : row + camera.height, column : column + camera.width
    ]


@lru_cache(maxsize=8)
def _noise_bank(height: int, width: int, sigma: float) -> np.ndarray:
    rng = np.random.default_rng(20240608)
    shape = (height + NOISE_PLACES[0], width + NOISE_PLACES[1], 3)
    return np.round(rng.standard_normal(shape) * sigma).astype(np.int16)


def main() -> None:
    """Prints frames per second of stepping and rendering, per family, on one thread."""
    from specdrive_ros.sim.scenario import FAMILIES, make_world

    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--frames", type=int, default=200)
    frames = parser.parse_args().frames
    cv2.setNumThreads(1)
    for family in FAMILIES:
        seconds = []
        for seed in range(3):
            world = make_world(family, seed)
            for _ in range(frames):
                began = time.process_time()
                world.step(0.05, world.expert_command())
                render(world)
                seconds.append(time.process_time() - began)
        kept = np.array(seconds[20:]) * 1e3
        ms = quantiles(kept)
        print(
            f"{family:14} {1e3 / kept.mean():6.0f} frames/s (CPU time)   median {ms['median']:.2f} ms   "
            f"p99 {ms['p99']:.2f} ms   max {ms['max']:.2f} ms"
        )


if __name__ == "__main__":
    main()
