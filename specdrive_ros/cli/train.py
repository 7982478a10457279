"""`specdrive train target|draft|aarl`: trains mini from driving scenes (resumable), and the drafts that write
ahead."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from specdrive_ros.cli import train_aarl, train_draft
from specdrive_ros.cli.answer import print_answer
from specdrive_ros.cli.training_arguments import check_training
from specdrive_ros.cli.training_output import training_output, validation_lines
from specdrive_ros.errors import InputError

EXAMPLE = "example: specdrive train target --data data/mini --run out/train/mini --out out/train/mini/checkpoint"


def add_arguments(parser: ArgumentParser) -> None:
    parser.epilog = EXAMPLE
    kinds = parser.add_subparsers(dest="kind", required=True, metavar="target|draft|aarl")
    target = kinds.add_parser("target", help="train the driving model mini", epilog=EXAMPLE)
    target.add_argument("--data", type=Path, default=Path("data/mini"),
                        help="scenes of `data generate` (default %(default)s)")
    target.add_argument("--run", type=Path, default=Path("out/train/mini"),
                        help="states, curves, TensorBoard; a run resumes from here (default %(default)s)")
    target.add_argument("--out", type=Path, help="checkpoint folder (default: RUN/checkpoint)")
    target.add_argument("--start-from", type=Path, metavar="CHECKPOINT",
                        help="start from the weights of a checkpoint folder, not from random ones")
    target.add_argument("--vision-steps", type=int, default=3000,
                        help="steps of vision pretraining; 0 keeps the vision of --start-from (default %(default)s)")
    target.add_argument("--vision-learning-rate", type=float, default=1e-3,
                        help="peak of vision pretraining (default %(default)s)")
    target.add_argument("--steps", type=int, default=3000, help="steps of reasoning and action (default %(default)s)")
    target.add_argument("--batch", type=int, default=16, help="samples a step and process (default %(default)s)")
    target.add_argument("--learning-rate", type=float, default=8e-4,
                        help="peak of the second stage (default %(default)s)")
    target.add_argument("--evaluate-every", type=int, default=500, metavar="STEPS",
                        help="of the second stage (default %(default)s)")
    target.add_argument("--drive-worlds", type=int, default=12, metavar="N",
                        help="held-out worlds to drive at each evaluation; the "
                        "weights that drove best are kept, 0 keeps the last (default %(default)s)")
    target.add_argument("--seed", type=int, default=0)
    target.add_argument("--threads", type=int, help="CPU threads (default: all cores)")
    target.add_argument("--json", action="store_true", help="print the training record as JSON")
    train_draft.add_arguments(kinds.add_parser("draft", help="train a draft for a model"))
    train_aarl.add_arguments(kinds.add_parser("aarl", help="post-train a draft by what its words do to the plan"))


def run(args: Namespace) -> int:
    return {"draft": train_draft.run, "aarl": train_aarl.run, "target": run_target}[args.kind](args)


def run_target(args: Namespace) -> int:
    if min(args.steps, args.batch, args.evaluate_every) < 1 or min(args.vision_steps, args.drive_worlds) < 0:
        raise InputError("train target: --steps, --batch and --evaluate-every must be at least 1, --vision-steps and "
                         "--drive-worlds at least 0")
    if not (args.vision_steps or args.start_from):
        raise InputError("train target: --vision-steps 0 keeps the vision of a checkpoint; name it with --start-from")
    check_training(args, args.learning_rate, args.vision_learning_rate)
    import torch
    from accelerate import PartialState

    from specdrive_ros.training.mini import MiniTraining
    from specdrive_ros.training.target_training import ReasoningTraining
    from specdrive_ros.training.vision_pretraining import VisionPretraining

    if args.threads:
        torch.set_num_threads(args.threads)
    with training_output(args.run / "tensorboard") as (progress, log):
        record = MiniTraining(
            args.data, args.run, args.out or args.run / "checkpoint",
            VisionPretraining(steps=args.vision_steps, learning_rate=args.vision_learning_rate, seed=args.seed),
            ReasoningTraining(steps=args.steps, batch=args.batch, learning_rate=args.learning_rate,
                              evaluate_every=args.evaluate_every, drive_worlds=args.drive_worlds, seed=args.seed),
            progress, log, args.start_from).run()
    if not PartialState().is_main_process:
        return 0
    print_answer(args, record, validation_lines(record))
    return 0
