"""`specdrive train target|draft`: mini from driving scenes, and drafts for a target. Resumable."""

import json
import sys
from contextlib import closing
from pathlib import Path

from specdrive_ros.cli.progress import progress
from specdrive_ros.errors import InputError

EXAMPLE = "example: specdrive train target --data data/mini --run out/train/mini --out out/train/mini/checkpoint"
DRAFT_EXAMPLE = "example: specdrive train draft --kind dflash --rope flat --target mini --data data/mini --out out/drafts/dflash"


def add_arguments(parser):
    parser.epilog = EXAMPLE
    kinds = parser.add_subparsers(dest="kind_of_model", required=True, metavar="target|draft")
    target = kinds.add_parser("target", help="train the driving model mini", epilog=EXAMPLE)
    target.add_argument("--data", type=Path, default=Path("data/mini"), help="scenes of `data generate` (default %(default)s)")
    target.add_argument("--run", type=Path, default=Path("out/train/mini"), help="states, curves, TensorBoard; a run resumes from here (default %(default)s)")
    target.add_argument("--out", type=Path, help="checkpoint folder (default: RUN/checkpoint)")
    target.add_argument("--start-from", type=Path, metavar="CHECKPOINT", help="begin with the weights of a checkpoint folder, not with chance")
    target.add_argument("--vision-steps", type=int, default=3000, help="steps of vision pretraining (default %(default)s)")
    target.add_argument("--vision-learning-rate", type=float, default=1e-3, help="peak of vision pretraining (default %(default)s)")
    target.add_argument("--steps", type=int, default=3000, help="steps of reasoning and action (default %(default)s)")
    target.add_argument("--batch", type=int, default=16, help="samples a step and process (default %(default)s)")
    target.add_argument("--learning-rate", type=float, default=8e-4, help="peak of the second stage (default %(default)s)")
    target.add_argument("--seed", type=int, default=0)
    target.add_argument("--threads", type=int, help="CPU threads (default: all cores)")
    target.add_argument("--json", action="store_true", help="print the training record as JSON")
    _add_draft_arguments(kinds.add_parser("draft", help="train a routine reasoner for a target", epilog=DRAFT_EXAMPLE))


def _add_draft_arguments(draft):
    draft.add_argument("--kind", required=True, choices=("eagle3", "dflash"))
    draft.add_argument("--rope", default="flat", choices=("flat", "mirror"), help="one index a row, or the target's 3D M-RoPE (default %(default)s)")
    draft.add_argument("--target", default="mini", metavar="MODEL", help="a model's name or checkpoint folder (default %(default)s)")
    draft.add_argument("--data", type=Path, default=Path("data/mini"), help="scenes of `data generate` (default %(default)s)")
    draft.add_argument("--out", type=Path, required=True, help="the finished draft; a run resumes from OUT/run")
    draft.add_argument("--features", type=Path, help="where the target's states are cached, for every draft of a target (default: beside OUT)")
    draft.add_argument("--answers", default="greedy", choices=("greedy", "labels"), help="learn what the target writes, or the labels (default %(default)s)")
    draft.add_argument("--samples", type=int, default=6000, help="training samples (default %(default)s)")
    draft.add_argument("--tap-layers", type=int, nargs="+", metavar="K", help="layers of the target whose inputs are read (default 2 n/2 n-3)")
    draft.add_argument("--layers", type=int, default=2, help="layers of a DFlash draft (default %(default)s)")
    draft.add_argument("--block", type=int, default=16, help="block of a DFlash draft, newest token included (default %(default)s)")
    draft.add_argument("--steps", type=int, default=3000, help="(default %(default)s)")
    draft.add_argument("--batch", type=int, default=8, help="samples a step and process (default %(default)s)")
    draft.add_argument("--learning-rate", type=float, default=1e-3, help="peak (default %(default)s)")
    draft.add_argument("--seed", type=int, default=0)
    draft.add_argument("--threads", type=int, help="CPU threads (default: all cores)")
    draft.add_argument("--json", action="store_true", help="print the training record as JSON")


def run(args) -> int:
    return run_draft(args) if args.kind_of_model == "draft" else run_target(args)


def run_draft(args) -> int:
    if min(args.steps, args.batch, args.samples, args.layers) < 1:
        raise InputError("train draft: --steps, --batch, --samples and --layers must be at least 1")
    import torch
    from torch.utils.tensorboard import SummaryWriter

    from specdrive_ros.draft.taps import eagle3_taps
    from specdrive_ros.model_settings import find_model
    from specdrive_ros.target.config import TargetConfig
    from specdrive_ros.training.draft_features import FeatureSettings
    from specdrive_ros.training.draft_training import DraftRun, DraftTraining

    if args.threads:
        torch.set_num_threads(args.threads)
    model = find_model(args.target)
    target = model.checkpoint
    taps = args.tap_layers or eagle3_taps(TargetConfig.load(target).text.num_hidden_layers)
    training = DraftTraining(args.kind, args.rope, steps=args.steps, batch=args.batch, learning_rate=args.learning_rate,
                             layers=args.layers, block_size=args.block, seed=args.seed)
    settings = FeatureSettings(tuple(taps), args.answers, args.samples, max_new_tokens=model.max_new_tokens)
    features = args.features or args.out.parent / "features"
    with closing(SummaryWriter(args.out / "run" / "tensorboard")) as log:
        record = DraftRun(target, args.data, features, args.out, training, settings, progress, log).run()
    return _print(args, record)


def run_target(args) -> int:
    if min(args.steps, args.vision_steps, args.batch) < 1:
        raise InputError("train target: --steps, --vision-steps and --batch must be at least 1")
    import torch
    from torch.utils.tensorboard import SummaryWriter

    from specdrive_ros.training.mini import MiniTraining
    from specdrive_ros.training.target_training import ReasoningTraining
    from specdrive_ros.training.vision_pretraining import VisionPretraining

    if args.threads:
        torch.set_num_threads(args.threads)
    with closing(SummaryWriter(args.run / "tensorboard")) as log:
        record = MiniTraining(
            args.data, args.run, args.out or args.run / "checkpoint",
            VisionPretraining(steps=args.vision_steps, learning_rate=args.vision_learning_rate, seed=args.seed),
            ReasoningTraining(steps=args.steps, batch=args.batch, learning_rate=args.learning_rate, seed=args.seed),
            progress, log, args.start_from).run()
    return _print(args, record)


def _print(args, record: dict) -> int:
    if args.json:
        json.dump(record, sys.stdout, indent=1)
    else:
        print_record(record)
    return 0


def print_record(record: dict) -> None:
    for name, value in record["validation"].items():
        print(f"{name:28s} {value:.3f}")
