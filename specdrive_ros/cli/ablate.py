"""`specdrive ablate`: the paper's tables on held-out worlds: trains drafts, measures and analyses them."""

import shlex
import tempfile
from argparse import ArgumentParser, Namespace
from pathlib import Path

from specdrive_ros.cli.answer import json_text, print_answer
from specdrive_ros.cli.training_arguments import check_rates
from specdrive_ros.errors import InputError

EXAMPLE = "example: specdrive ablate --model mini --data data/mini --seeds 3 --out out/ablation"
DOCUMENT, REPORT, FIGURES = "ablation.json", "ablation.html", "figures"


def add_arguments(parser: ArgumentParser) -> None:
    parser.epilog = EXAMPLE
    parser.add_argument("--model", default="mini", metavar="M",
                        help="the target's name or checkpoint folder (default %(default)s)")
    parser.add_argument("--data", type=Path, default=Path("data/mini"), metavar="DIR",
                        help="scenes of `data generate` (default %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("out/ablation"), metavar="DIR",
                        help="drafts, rows, results; goes on from here (default %(default)s)")
    parser.add_argument("--estimate", action="store_true",
                        help="only say what each cell would take here, by the processor time of a few steps")
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of lines")
    add_table(parser.add_argument_group("what the table has"))
    add_measured(parser.add_argument_group("what is measured"))
    add_trained(parser.add_argument_group("what is trained"))


def add_table(group) -> None:
    kinds = ("eagle3", "dflash")
    group.add_argument("--seeds", type=int, default=3, metavar="N",
                       help="trainings of each row; AARL on mirror has one (default %(default)s)")
    group.add_argument("--kinds", nargs="+", default=list(kinds), choices=kinds, metavar="K", help="(default: both)")
    group.add_argument("--rows", nargs="+", default=[], metavar="ROW",
                       help="only these rows of the table, e.g. dflash-flat+static (default: all)")
    group.add_argument("--blocks", nargs="+", type=int, default=[8, 16], metavar="N",
                       help="rows of a pass (default 8 16)")


def add_measured(group) -> None:
    group.add_argument("--prompts", type=int, default=120, metavar="N", help="of each split (default %(default)s)")
    group.add_argument("--plans", type=int, default=20, metavar="N",
                       help="of them, whose plans are compared (default %(default)s)")
    group.add_argument("--traced", type=int, default=40, metavar="N",
                       help="held-out ones that attention and tokens are asked of (default %(default)s)")
    group.add_argument("--seed", type=int, default=400, metavar="N",
                       help="of the first held-out world (default %(default)s)")
    group.add_argument("--runtime", default="onnxruntime", metavar="R",
                       help="onnxruntime or torch (default %(default)s)")
    group.add_argument("--threads", type=int, default=1, help="of the runtime (default %(default)s)")


def add_trained(group) -> None:
    group.add_argument("--steps", type=int, default=1500, help="of a distillation (default %(default)s)")
    group.add_argument("--samples", type=int, default=8000, help="of the target's states (default %(default)s)")
    group.add_argument("--features", type=Path, metavar="DIR",
                       help="where these states are cached, by `train draft` for instance (default: OUT/features)")
    group.add_argument("--layers", type=int, default=2, help="of DFlash (default %(default)s)")
    group.add_argument("--train-block", type=int, default=16, metavar="N",
                       help="of DFlash and of rollouts (default %(default)s)")
    group.add_argument("--aarl-steps", type=int, default=150, metavar="N", help="(default %(default)s)")
    group.add_argument("--aarl-batch", type=int, default=8, metavar="N", help="samples a step (default %(default)s)")
    group.add_argument("--rollouts", type=int, default=8, metavar="K", help="of a group (default %(default)s)")
    group.add_argument("--aarl-learning-rate", type=float, default=1e-4, metavar="X",
                       help="peak (default %(default)s)")
    group.add_argument("--anchor-weight", type=float, default=0.1, metavar="X",
                       help="of AARL's KL term (default %(default)s)")
    group.add_argument("--training-threads", type=int, metavar="N",
                       help="CPU threads of training (default: all cores)")


def run(args: Namespace) -> int:
    check(args)
    from specdrive_ros.evaluation.summary import prepare_out_folder

    out = prepare_out_folder(args.out)
    document = estimated(args) if args.estimate else ablated(args, out)
    lines = lines_of_estimate(document) if args.estimate else lines_of(document, out)
    print_answer(args, document, lines)
    return 0


def check(args: Namespace) -> None:
    counts = ("seeds", "prompts", "plans", "traced", "threads", "steps", "samples", "layers", "aarl_steps",
              "aarl_batch")  # fmt: skip
    if wrong := [name for name in counts if getattr(args, name) < 1]:
        raise InputError(f"ablate: --{wrong[0].replace('_', '-')} must be at least 1")
    if min(args.blocks) < 2 or args.train_block < 2 or args.seed < 0:
        raise InputError("ablate: --blocks and --train-block must be at least 2, --seed 0 or more")
    if args.training_threads is not None and args.training_threads < 1:
        raise InputError(f"--training-threads {args.training_threads}: must be 1 or more")
    check_rates(args.aarl_learning_rate)


def ablated(args: Namespace, out: Path) -> dict:
    from specdrive_ros.cycle import Planner
    from specdrive_ros.evaluation.ablation.ablation import Ablation, Question
    from specdrive_ros.evaluation.ablation.cells import all_cells, choose_cells
    from specdrive_ros.evaluation.ablation.report import ablation_html, figures_of
    from specdrive_ros.evaluation.report_page import figure_file, write_page

    cells = choose_cells(all_cells(args.seeds, args.kinds), args.rows)
    planner = Planner.load(args.model, runtime=args.runtime, threads=args.threads)
    question = Question(tuple(sorted(set(args.blocks))), args.prompts, args.plans, args.traced, args.seed, args.threads)
    document = Ablation(making(args), planner, cells, question).run()
    document |= {"model": args.model, "command": command(args)}  # as it was asked for, not where it lies here
    (out / DOCUMENT).write_text(json_text(document), encoding="utf-8")
    write_page(out / REPORT, ablation_html(document))
    (out / FIGURES).mkdir(exist_ok=True)
    for name, figure in figures_of(document).items():
        write_page(out / FIGURES / f"{name}.svg", figure_file(figure))
    return document


def estimated(args: Namespace) -> dict:
    from specdrive_ros.evaluation.ablation.cells import DISTILLED, all_cells, choose_cells
    from specdrive_ros.evaluation.ablation.estimate import AARL, STATES, estimate

    cells = choose_cells(all_cells(args.seeds, args.kinds), args.rows)
    with tempfile.TemporaryDirectory(dir=args.out) as scratch:
        rows = estimate(making(args), Path(scratch), tuple(dict.fromkeys(cell.kind for cell in cells)))
    minutes = {(row["kind"], row["stage"]): row["cpu_minutes"] for row in rows}
    total = minutes["target", STATES] + sum(
        minutes[cell.kind, DISTILLED if cell.stage == DISTILLED else AARL] for cell in cells
    )
    return {"cells": len(cells), "kinds": rows, "cpu_minutes": round(total, 1)}


def making(args: Namespace):
    """The settings for training every cell."""
    import torch
    from torch.utils.tensorboard import SummaryWriter

    from specdrive_ros.cli.progress import progress
    from specdrive_ros.draft.taps import eagle3_taps
    from specdrive_ros.evaluation.ablation.making import Making
    from specdrive_ros.model_settings import find_model
    from specdrive_ros.target.config import TargetConfig
    from specdrive_ros.training.aarl_training import AarlTraining
    from specdrive_ros.training.draft_features import FeatureSettings
    from specdrive_ros.training.draft_training import DraftTraining

    if args.training_threads:
        torch.set_num_threads(args.training_threads)
    model = find_model(args.model)
    taps = eagle3_taps(TargetConfig.load(model.checkpoint).text.num_hidden_layers)
    return Making(
        model,
        args.data,
        args.out,
        FeatureSettings(taps, count=args.samples, max_new_tokens=model.max_new_tokens),
        DraftTraining("dflash", steps=args.steps, layers=args.layers, block_size=args.train_block),
        AarlTraining(
            steps=args.aarl_steps,
            samples=args.aarl_batch,
            rollouts=args.rollouts,
            ahead=args.train_block - 1,
            learning_rate=args.aarl_learning_rate,
            anchor_weight=args.anchor_weight,
        ),
        args.runtime,
        progress,
        SummaryWriter,
        args.features,
    )


def command(args: Namespace) -> str:
    """The command line with every setting, so that a result can be reproduced."""
    words = ["specdrive", "ablate"]
    for name, value in vars(args).items():
        if name in ("json", "estimate", "unknown") or value in (None, []):
            continue
        words += [f"--{name.replace('_', '-')}", *map(str, value if isinstance(value, list) else [value])]
    return shlex.join(words)


def lines_of(document: dict, out: Path) -> list[str]:
    from specdrive_ros.evaluation.ablation.report import terminal_table

    return [terminal_table(document), f"{out / REPORT}: {out / DOCUMENT}"]


def lines_of_estimate(document: dict) -> list[str]:
    lines = []
    for row in document["kinds"]:
        most = f", at most {row['cpu_minutes_at_most']:.0f}" if "cpu_minutes_at_most" in row else ""
        lines.append(
            f"{row['kind']:8} {row['stage']:10} {row['cpu_s_per_step']:7.2f} s of processor each, {row['steps']} times:"
            f" {row['cpu_minutes']:.0f} min{most}"
        )
    return [*lines, f"{document['cells']} cells: {document['cpu_minutes']:.0f} min of processor, training alone"]
