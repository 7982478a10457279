"""How long each network of a model takes, pass by pass: `python -m specdrive_ros.runtime.timing MODEL…`.

Inputs are random, with the sizes of a cycle: four frames per camera, the prompt, one token and blocks after it, the
action head. Wall time is what a cycle waits for; CPU time is what it would be on a quiet machine with one thread. The
first passes do not count. Does not decode.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np

from specdrive_ros.errors import SpecdriveError
from specdrive_ros.model_settings import find_model
from specdrive_ros.quantiles import quantiles
from specdrive_ros.runtime.networks import TargetNetworks
from specdrive_ros.runtime.registry import RUNTIMES, load_networks
from specdrive_ros.shapes import PICTURE_SIZE
from specdrive_ros.target.pixels import patchify
from specdrive_ros.target.prompt import build_prompt
from specdrive_ros.target.rope import text_positions
from specdrive_ros.target.tokens import TargetTokenizer

WARM_UP = 3
REASONED = 10  # tokens in the cache after the prompt
BLOCKS = (1, 8, 16, 60)


@dataclass(frozen=True)
class Timing:
    """Wall and CPU milliseconds of a pass, per repetition."""

    name: str
    wall_ms: np.ndarray
    cpu_ms: np.ndarray

    def line(self) -> str:
        wall, cpu = quantiles(self.wall_ms), quantiles(self.cpu_ms)
        return (
            f"{self.name:<12} wall median {wall['median']:8.2f}  p99 {wall['p99']:8.2f}  max {wall['max']:8.2f}   "
            f"cpu median {cpu['median']:8.2f}  min {self.cpu_ms.min():8.2f} ms"
        )


def measure(networks: TargetNetworks, height: int, width: int, cameras: int, repeat: int) -> list[Timing]:
    """Times every network on frames of height x width pixels."""
    random = np.random.default_rng(0)
    frames = random.integers(0, 255, (4 * cameras, height, width, 3), np.uint8)
    patches, grids = patchify(frames, networks.config)
    history = np.zeros((16, 3))
    prompt = build_prompt(networks.config, TargetTokenizer.load(networks.config), grids, history)
    tokens = len(prompt.token_ids)
    cache = networks.new_cache(tokens + REASONED + max(BLOCKS))
    embeddings = networks.embed(prompt.token_ids)
    passes: dict[str, Callable[[], object]] = {
        "vision": partial(networks.encode_images, patches, grids),
        "one frame": partial(networks.encode_images, patches[: len(patches) // len(frames)], grids[:1]),
        f"prefill {tokens}": partial(_from, networks, cache, 0, embeddings, prompt.position_ids),
    }
    start = tokens + REASONED
    for block in BLOCKS:
        positions = text_positions(start, block, prompt.rope_delta)
        rows = np.arange(block)
        passes[f"text {block}"] = partial(_from, networks, cache, start, embeddings[:block], positions, rows)
    noise = random.standard_normal((networks.config.action_space.n_waypoints, 2), np.float32)
    waypoints = text_positions(start, len(noise), prompt.rope_delta)
    passes["action"] = partial(networks.act, noise, waypoints, cache, visible=start)
    return [_time(name, run, repeat) for name, run in passes.items()]


def measure_passes(
    networks: TargetNetworks, cached: int, rope_delta: int, widths: Sequence[int], repeat: int
) -> np.ndarray:
    """[widths] minimum wall milliseconds of passes of these widths after `cached` rows, with logits of all rows.

    The minimum, because other load on the machine only ever adds time.
    """
    cache = networks.new_cache(cached + max(widths))
    least = []
    for width in widths:
        embeddings = networks.embed(np.zeros(width, np.int64))
        positions = text_positions(cached, width, rope_delta)
        run = partial(_from, networks, cache, cached, embeddings, positions, np.arange(width))
        least.append(float(_time(f"text {width}", run, repeat).wall_ms.min()))
    return np.array(least)


def _from(networks: TargetNetworks, cache, start: int, embeddings, positions, rows=None) -> None:
    """One pass from a cache of `start` tokens; rows None: only the last row's logits."""
    cache.length = start
    networks.extend(
        embeddings, positions, cache, logit_rows=np.array([len(embeddings) - 1]) if rows is None else rows
    )


def _time(name: str, run: Callable[[], object], repeat: int) -> Timing:
    wall, cpu = [], []
    for _ in range(WARM_UP + repeat):
        begun, begun_cpu = time.perf_counter(), time.process_time()
        run()
        wall.append(1000 * (time.perf_counter() - begun))
        cpu.append(1000 * (time.process_time() - begun_cpu))
    return Timing(name, np.array(wall[WARM_UP:]), np.array(cpu[WARM_UP:]))


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Time the networks of models.", allow_abbrev=False)
    parser.add_argument("models", nargs="+", metavar="MODEL", help="a model's name or folder; several in one run")
    parser.add_argument("--runtime", nargs="+", choices=RUNTIMES, default=["onnxruntime"], metavar="R")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=50)
    parser.add_argument(
        "--size", type=int, nargs=2, default=PICTURE_SIZE, metavar=("H", "W"), help="pixels of a frame"
    )
    args = parser.parse_args(argv)
    try:
        for model, runtime in product(args.models, args.runtime):
            settings = find_model(model)
            networks = load_networks(settings.checkpoint, runtime, threads=args.threads)
            print(f"{model}, {runtime}, {args.threads} thread(s), {args.repeat} repetitions")
            for timing in measure(networks, *args.size, len(settings.cameras), args.repeat):
                print("  " + timing.line())
    except SpecdriveError as error:
        print(f"timing: error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
