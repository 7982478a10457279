"""`specdrive train aarl`: post-trains a distilled draft by what its tokens do to the plan (resumable)."""

from argparse import ArgumentParser, Namespace
from contextlib import closing
from pathlib import Path

from specdrive_ros.cli.answer import print_answer
from specdrive_ros.cli.progress import progress
from specdrive_ros.cli.training_arguments import check_training
from specdrive_ros.errors import InputError

EXAMPLE = "example: specdrive train aarl --draft out/drafts/dflash --anchor static --data data/mini --out out/aarl"


def add_arguments(parser: ArgumentParser) -> None:
    parser.epilog = EXAMPLE
    parser.add_argument("--draft", type=Path, required=True, metavar="DIR", help="folder of the distilled draft")
    parser.add_argument("--model", default="mini", metavar="M",
                        help="the target's name or checkpoint folder (default %(default)s)")
    parser.add_argument("--data", type=Path, required=True, metavar="DIR", help="scenes of `data generate`")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR",
                        help="folder of the finished draft; a run resumes from OUT/run")
    parser.add_argument("--features", type=Path, metavar="DIR",
                        help="where the target's states are cached (default: beside OUT)")
    parser.add_argument("--threads", type=int, help="CPU threads (default: all cores)")
    parser.add_argument("--json", action="store_true", help="print the training record as JSON")
    add_training(parser.add_argument_group("training"))
    add_reward(parser.add_argument_group("reward"))


def add_training(group) -> None:
    group.add_argument("--anchor", default="static", choices=("static", "self"),
                       help="positions the KL term holds: the reference's, frozen, or the current policy's own "
                            "(default %(default)s)")
    group.add_argument("--anchor-weight", type=float, default=0.1, metavar="X",
                       help="of the KL term (default %(default)s)")
    group.add_argument("--steps", type=int, default=150, help="(default %(default)s)")
    group.add_argument("--batch", type=int, default=8, help="samples a step (default %(default)s)")
    group.add_argument("--states", type=int, default=2,
                       help="places in a sample's answer to write ahead from (default %(default)s)")
    group.add_argument("--rollouts", type=int, default=8, metavar="K",
                       help="of a group, from one place (default %(default)s)")
    group.add_argument("--block", type=int, default=16, help="a rollout has one token less (default %(default)s)")
    group.add_argument("--pool", type=int, default=512,
                       help="samples drawn from; each new one costs a prefill (default %(default)s)")
    group.add_argument("--samples", type=int, default=8000,
                       help="states to cache where none are yet (default %(default)s)")
    group.add_argument("--learning-rate", type=float, default=1e-4, help="peak (default %(default)s)")
    group.add_argument("--seed", type=int, default=0)


def add_reward(group) -> None:
    group.add_argument("--ade-scale", type=float, default=1.0, metavar="M",
                       help="mean displacement that costs 1 (default %(default)s)")
    group.add_argument("--heading-scale", type=float, default=0.05, metavar="RAD",
                       help="turn of the last heading that costs 1 (default %(default)s)")
    group.add_argument("--floor", type=float, default=-2.0,
                       help="reward of a text that cannot be closed (default %(default)s)")
    group.add_argument("--length", type=float, default=0.5,
                       help="reward when every token would be accepted (default %(default)s)")


def run(args: Namespace) -> int:
    if min(args.steps, args.batch, args.states, args.pool, args.samples) < 1 or args.block < 2:
        raise InputError(
            "train aarl: --steps, --batch, --states, --pool and --samples must be at least 1, --block at least 2"
        )
    check_training(args, args.learning_rate)
    import torch
    from torch.utils.tensorboard import SummaryWriter

    from specdrive_ros.draft.layout import read_draft_config
    from specdrive_ros.model_settings import find_model
    from specdrive_ros.target.config import TargetConfig
    from specdrive_ros.training.aarl_reward import RewardScale
    from specdrive_ros.training.aarl_run import AarlRun
    from specdrive_ros.training.aarl_training import AarlTraining

    if args.threads:
        torch.set_num_threads(args.threads)
    model = find_model(args.model)
    read_draft_config(args.draft, TargetConfig.load(model.checkpoint).text)  # before a run is begun in OUT
    training = AarlTraining(
        args.anchor,
        args.steps,
        args.batch,
        args.states,
        args.rollouts,
        args.block - 1,
        args.pool,
        learning_rate=args.learning_rate,
        anchor_weight=args.anchor_weight,
        seed=args.seed,
        reward=RewardScale(args.ade_scale, args.heading_scale, args.floor, args.length),
    )
    features = args.features or args.out.parent / "features"
    with closing(SummaryWriter(args.out / "run" / "tensorboard")) as log:
        record = AarlRun(
            model, args.draft, args.data, features, args.out, training, progress, log, args.samples
        ).run()
    print_answer(args, record, lines_of(record["curve"]))
    return 0


def lines_of(curve: list[dict]) -> list[str]:
    """What the training changed on validation, and the positions that the anchor held."""
    first, last = curve[0], curve[-1]
    names = ("accepted_length", "first_word", "agreement", "anchor_set", "kl", "kl_all")
    return [f"{name:18s} {first[name]:8.4f} -> {last[name]:8.4f}" for name in names]
