"""`specdrive data generate|lengthen`: records driving scenes of the embedded world for training, and relabels them with
long chains of causation. Resumable; shards are made in parallel."""

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path

import cv2

from specdrive_ros.cli.progress import progress
from specdrive_ros.errors import InputError, WorkFailed
from specdrive_ros.model_settings import find_model
from specdrive_ros.sim.scenario import choose_families
from specdrive_ros.training.scenes import (
    TRAIN_SEED_BASE,
    VALIDATION_SEED_BASE,
    EpisodePlan,
    record_episodes,
    worlds,
    write_shard,
)

EPISODES_PER_SHARD = 32
LEAST_SAMPLE_STEP_S, LONGEST_SAMPLE_STEP_S = 0.4, 60.0  # four frames; longer than an episode
TRAIN_SEEDS = VALIDATION_SEED_BASE - TRAIN_SEED_BASE
EXAMPLE = "example: specdrive data generate --out data/mini --episodes 4000"
EXAMPLE_LENGTHEN = "example: specdrive data lengthen --data data/mini --out data/mini-long"


def add_arguments(parser: ArgumentParser) -> None:
    parser.epilog = EXAMPLE
    actions = parser.add_subparsers(dest="action", required=True, metavar="generate|lengthen")
    generate = actions.add_parser("generate", help="drive the expert through random worlds and record it",
                                  epilog=EXAMPLE)
    generate.add_argument("--out", type=Path, default=Path("data/mini"),
                          help="folder for train/ and validation/ (default %(default)s)")
    generate.add_argument("--episodes", type=int, default=4000,
                          help="training episodes, each in a world of its own (default %(default)s)")
    generate.add_argument("--validation-episodes", type=int, default=256,
                          help="held-out episodes (default %(default)s)")
    generate.add_argument("--first-seed", type=int, default=0,
                          help="offset into the training seeds (default %(default)s)")
    generate.add_argument("--scenario", nargs="+", default=["all"], metavar="NAME",
                          help="families of scenes, or all (default)")
    generate.add_argument("--samples", type=int, default=4,
                          help="most instants recorded of an episode (default %(default)s)")
    generate.add_argument("--sample-every", type=float, default=1.5, metavar="S",
                          help="seconds between two instants (default %(default)s)")
    generate.add_argument("--twins", type=float, default=0.5, metavar="SHARE",
                          help="share of episodes also recorded with one thing in the world changed, such as the "
                               "lamp's colour or no lead; not with --driver (default %(default)s)")
    generate.add_argument("--driver", type=Path, metavar="CHECKPOINT",
                          help="let this model drive; the expert only labels what it would do instead (default: the "
                               "expert drives, with occasional disturbances)")
    generate.add_argument("--workers", type=int, default=os.cpu_count(), help="processes (default: all cores)")
    lengthen = actions.add_parser("lengthen", help="relabel scenes with a clause for every road user",
                                  epilog=EXAMPLE_LENGTHEN)  # fmt: skip
    lengthen.add_argument("--data", type=Path, default=Path("data/mini"),
                          help="scenes of `data generate` (default %(default)s)")
    lengthen.add_argument("--out", type=Path, required=True,
                          help="folder for the same scenes with long chains of causation")
    lengthen.add_argument("--workers", type=int, default=os.cpu_count(), help="processes (default: all cores)")


def run(args: Namespace) -> int:
    return {"generate": generate_scenes, "lengthen": lengthen_scenes}[args.action](args)


def generate_scenes(args: Namespace) -> int:
    if min(args.episodes, args.validation_episodes) < 0 or args.workers < 1:
        raise InputError("data generate: episodes must be >= 0 and workers >= 1")
    if args.samples < 1 or not LEAST_SAMPLE_STEP_S <= args.sample_every <= LONGEST_SAMPLE_STEP_S:
        raise InputError("data generate: --samples must be at least 1, --sample-every from "
                         f"{LEAST_SAMPLE_STEP_S:g} to {LONGEST_SAMPLE_STEP_S:g}")
    if not 0.0 <= args.twins <= 1.0:
        raise InputError(f"--twins {args.twins:g}: a share of the episodes must lie between 0 and 1")
    if not 0 <= args.first_seed <= TRAIN_SEEDS - args.episodes:
        raise InputError(f"--first-seed {args.first_seed} with {args.episodes} episodes: seeds must stay within 0 "
                         f"and {TRAIN_SEEDS - 1}; others are for driving and validation")
    if args.driver is not None:
        find_model(args.driver)  # else a worker would report it, only after folders and processes are made
    jobs = missing_shards(args, choose_families(args.scenario))
    plan = EpisodePlan(samples=args.samples, sample_every_s=args.sample_every, twins=args.twins)
    make_shards(record_shard, [(*job, plan, args.driver) for job in jobs], args.workers)
    return 0


def lengthen_scenes(args: Namespace) -> int:
    if args.workers < 1:
        raise InputError("data lengthen: workers must be >= 1")
    from specdrive_ros.training.long_chains import lengthen_shard, shards_to_lengthen

    make_shards(lengthen_shard, shards_to_lengthen(args.data, args.out), args.workers)
    return 0


def make_shards(make: Callable[..., int], jobs: list[tuple], workers: int) -> None:
    """Calls `make`, which returns a number of samples, with each job's arguments in a process of its own."""
    # spawned, not forked: a fork of a process whose networks run threads can hang forever
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool, progress("scenes", len(jobs)) as bar:
        running = [pool.submit(make, *job) for job in jobs]
        samples = 0
        for done in as_completed(running):
            try:
                samples += done.result()
            except BrokenProcessPool:
                raise WorkFailed("a process that makes shards was killed, out of memory perhaps; shards that are whole "
                                 "stay: run it again with fewer --workers") from None
            bar.advance(1, f"{samples} samples")


def missing_shards(args: Namespace, families: tuple[str, ...]) -> list[tuple[Path, list[tuple[str, int]]]]:
    """(file, worlds) of every shard that is not on disk yet, validation first."""
    jobs = []
    for split, episodes, base in (("validation", args.validation_episodes, VALIDATION_SEED_BASE),
                                  ("train", args.episodes, TRAIN_SEED_BASE + args.first_seed)):
        folder = args.out / split
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"cannot write to {folder}: {error.strerror}; choose another --out") from error
        for first in range(0, episodes, EPISODES_PER_SHARD):
            path = folder / f"shard-{base + first}.safetensors"
            if not path.exists():
                jobs.append((path, worlds(base + first, min(EPISODES_PER_SHARD, episodes - first), families)))
    return jobs


def record_shard(path: Path, worlds: list[tuple[str, int]], plan: EpisodePlan, driver: Path | None) -> int:
    cv2.setNumThreads(1)
    if driver is None:
        return write_shard(path, record_episodes(worlds, plan))
    from specdrive_ros.cycle import Planner
    from specdrive_ros.training.drift import record_drift

    planner = Planner.load(driver, threads=1)
    return write_shard(path, [record_drift(planner, family, seed, plan) for family, seed in worlds])
