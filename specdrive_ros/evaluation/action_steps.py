"""How many Euler steps of the action head a plan needs.

    python -m specdrive_ros.evaluation.action_steps --model mini --samples 8 --seed 400

Held-out instants (seeds that `drive --seed` also accepts; never seen in training) of every family are reasoned about
once; then the action head plans from that reasoning with each number of steps, from the same noise. A model's own
number is `action_steps` in its settings.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from specdrive_ros.cli.answer import json_text
from specdrive_ros.decoding.autoregressive import AutoregressiveDecoder
from specdrive_ros.errors import InputError, SpecdriveError
from specdrive_ros.evaluation.ablation.measuring import Start
from specdrive_ros.evaluation.bootstrap import difference_with_interval, mean_with_interval
from specdrive_ros.evaluation.displacement import HORIZONS
from specdrive_ros.evaluation.drive import LAST_SEED
from specdrive_ros.evaluation.looking.samples import HeldOutSample, held_out_samples
from specdrive_ros.sim.scenario import FAMILIES

STEPS = (10, 8, 6, 5, 4, 3, 2, 1)
PUBLISHED = 10  # of the release


@dataclass(frozen=True)
class Planned:
    """Plans [N, W, 2] and times [N] in milliseconds of the action head with one number of steps."""

    plans: np.ndarray
    ms: np.ndarray


def planned(planner, samples: Sequence[HeldOutSample], steps: Sequence[int], on_sample) -> dict[int, Planned]:
    """Every sample planned with each number of steps, after one and the same reasoning."""
    planner.decoder, found = AutoregressiveDecoder(planner.networks, planner.rules), {each: ([], []) for each in steps}
    for sample in samples:
        start = Start(planner, sample)
        planner.decoder.decode(start.fresh())
        for each, (plans, ms) in found.items():
            begun = time.perf_counter()
            plans.append(start.plan(each))
            ms.append(1e3 * (time.perf_counter() - begun))
        on_sample()
    return {each: Planned(np.array(plans), np.array(ms)) for each, (plans, ms) in found.items()}


def figures(found: dict[int, Planned], futures: np.ndarray) -> list[dict]:
    """Per number of steps, all distances in metres; futures: [N, W, 2] of the expert.

    ade_3s:        mean distance to the expert's next 3 s, with a 95 % interval over the samples
    less_ten:      the same less that of the published ten steps, in pairs
    apart_3s, apart_6.4s: of the last waypoint within that time, from that of ten steps: median and 95th percentile
    ms:            median time of the action head
    """
    rows, count = HORIZONS["3s"], np.ones(len(futures))
    errors = {each: np.linalg.norm(one.plans - futures, axis=-1)[:, :rows].mean(1) for each, one in found.items()}
    records = []
    for steps, one in found.items():
        apart = np.linalg.norm(one.plans - found[PUBLISHED].plans, axis=-1)
        records.append({
            "steps": steps,
            "ade_3s": mean_with_interval(errors[steps], count),
            "less_ten": difference_with_interval(errors[steps], count, errors[PUBLISHED], count),
            **{f"apart_{name}": [round(float(value), 4) for value in np.quantile(apart[:, last - 1], (0.5, 0.95))]
               for name, last in HORIZONS.items() if name != "1s"},
            "ms": round(float(np.median(one.ms)), 2),
        })  # fmt: skip
    return records


def table(records: Sequence[dict]) -> str:
    lines = ["steps  ADE 3 s, m             less that of 10 steps, m     from 10 steps at 3 s, 6.4 s: median (95 %), m"
             "      ms"]  # fmt: skip
    for record in records:
        ade, less = ("{mean:6.3f} ({low:.3f} to {high:.3f})".format(**record[name]) for name in ("ade_3s", "less_ten"))
        near, far = ("{:.2f} ({:.2f})".format(*record[f"apart_{name}"]) for name in ("3s", "6.4s"))
        lines.append(f"{record['steps']:5}  {ade:24}{less:29}{near:>16} {far:>16}{record['ms']:22.1f}")
    return "\n".join(lines)


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="action_steps", description=__doc__.split("\n")[0], allow_abbrev=False,
        epilog="example: python -m specdrive_ros.evaluation.action_steps --samples 8 --seed 400")  # fmt: skip
    parser.add_argument("--model", default="mini", metavar="M", help="a model's name or folder (default %(default)s)")
    parser.add_argument("--steps", nargs="+", type=int, default=list(STEPS), metavar="N",
                        help=f"numbers of steps beside {PUBLISHED} (default {' '.join(map(str, STEPS))})")
    parser.add_argument("--samples", type=int, default=8, metavar="N", help="of each family (default %(default)s)")
    parser.add_argument("--seed", type=int, default=400, metavar="N",
                        help=f"first world, 0 to {LAST_SEED} (default %(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="of the runtime (default %(default)s)")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    args = parser.parse_args(argv)
    if min(args.steps) < 1 or args.samples < 1 or args.threads < 1:
        raise InputError("action_steps: --steps, --samples and --threads must be at least 1")
    if not 0 <= args.seed <= LAST_SEED:
        raise InputError(f"--seed {args.seed}: must stay within 0 and {LAST_SEED}")
    return args


def run(args: argparse.Namespace) -> list[dict]:
    from specdrive_ros.cli.progress import progress
    from specdrive_ros.cycle import Planner

    planner = Planner.load(args.model, threads=args.threads)
    families = planner.settings.scenarios or FAMILIES
    with progress("samples", len(families) * args.samples) as bar:
        samples = [each for family in families for each in held_out_samples(family, args.samples, args.seed)]
        steps = list(dict.fromkeys([PUBLISHED, *args.steps]))
        found = planned(planner, samples, steps, lambda: bar.advance(1))
    return figures(found, np.stack([sample.future[:, :2] for sample in samples]))


def main(argv: list[str] | None = None) -> int:
    try:
        args = parse(argv)
        records = run(args)
    except SpecdriveError as error:
        print(f"action_steps: error: {error}", file=sys.stderr)
        return 2 if isinstance(error, InputError) else 1
    print(json_text({"steps": records}).rstrip() if args.json else table(records))
    return 0


if __name__ == "__main__":
    sys.exit(main())
