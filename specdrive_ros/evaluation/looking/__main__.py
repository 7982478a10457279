"""Does the model look? Held-out instants of every scenario family, planned as they are, with black cameras, with
another scene's cameras and with a frozen history.

    python -m specdrive_ros.evaluation.looking --model mini --samples 50 --seed 300 --out out/looking

Writes rows.jsonl (one row per sample and condition), looking.json (figures, all computed from rows.jsonl) and
looking.html. What each figure counts: looking/figures.py.
"""

import argparse
import json
import sys
from pathlib import Path

from specdrive_ros.cli.progress import progress
from specdrive_ros.errors import InputError, SpecdriveError
from specdrive_ros.evaluation.drive import LAST_SEED
from specdrive_ros.evaluation.looking.figures import figures
from specdrive_ros.evaluation.looking.measuring import choices_of, measure
from specdrive_ros.evaluation.looking.report import Shown, WorstCases, looking_html, terminal_table
from specdrive_ros.evaluation.looking.rows import read_rows, write_rows
from specdrive_ros.evaluation.looking.samples import held_out_samples
from specdrive_ros.evaluation.report_page import write_page
from specdrive_ros.evaluation.summary import prepare_out_folder
from specdrive_ros.model_settings import find_model
from specdrive_ros.sim.scenario import FAMILIES, choose_families

EXAMPLE = "example: python -m specdrive_ros.evaluation.looking --samples 50 --seed 300 --out out/looking"
ROWS, FIGURES, REPORT = "rows.jsonl", "looking.json", "looking.html"


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="looking", description=" ".join(__doc__.split("\n\n")[0].split()),
                                     epilog=EXAMPLE, allow_abbrev=False)
    parser.add_argument("--model", default="mini", metavar="M", help="a model's name or folder (default %(default)s)")
    parser.add_argument("--runtime", default="onnxruntime", metavar="R",
                        help="onnxruntime or torch (default %(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="of the runtime (default %(default)s)")
    parser.add_argument("--scenario", nargs="+", default=["all"], metavar="NAME",
                        help=f"{', '.join(FAMILIES)}, or all (default)")
    parser.add_argument("--samples", type=int, default=50, metavar="N", help="of each family (default %(default)s)")
    parser.add_argument("--seed", type=int, default=300, metavar="N",
                        help=f"first world, 0 to {LAST_SEED} (default %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("out/looking"), metavar="DIR",
                        help="folder for what is written (default %(default)s)")
    args = parser.parse_args(argv)
    if args.samples < 1 or args.threads < 1:
        raise InputError(f"--samples {args.samples} --threads {args.threads}: must be 1 or more")
    if not 0 <= args.seed <= LAST_SEED:
        raise InputError(f"--seed {args.seed}: must stay within 0 and {LAST_SEED}")
    args.families = choose_families(args.scenario, find_model(args.model).scenarios or FAMILIES)
    return args


def record(args: argparse.Namespace) -> list:
    samples = []
    with progress("samples", len(args.families) * args.samples) as bar:
        for family in args.families:
            for sample in held_out_samples(family, args.samples, args.seed):
                samples.append(sample)
                bar.advance(1, family)
    return samples


def run(args: argparse.Namespace, planner) -> dict:
    """Measures, writes the three files and returns the contents of looking.json."""
    out = prepare_out_folder(args.out)
    rows, worst, samples = [], WorstCases(), record(args)
    with progress("plans", len(samples)) as bar:
        for sample, measured in measure(planner, choices_of(planner), samples):
            rows += [row for row, _, _ in measured]
            worst.add([Shown(*each) for each in measured])
            bar.advance(1, sample.family)
    write_rows(out / ROWS, rows)
    result = {"model": str(args.model), "runtime": args.runtime, "seed": args.seed} | figures(read_rows(out / ROWS))
    (out / FIGURES).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    write_page(out / REPORT, looking_html(result, worst.all()))
    return result


def main(argv: list[str] | None = None) -> int:
    from specdrive_ros.cycle import Planner

    try:
        args = parse(argv)
        planner = Planner.load(args.model, runtime=args.runtime, threads=args.threads)
        result = run(args, planner)
    except SpecdriveError as error:
        print(f"looking: error: {error}", file=sys.stderr)
        return 2 if isinstance(error, InputError) else 1
    print(terminal_table(result))
    print("\n".join(f"{name}: {args.out / name}" for name in (REPORT, FIGURES, ROWS)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
