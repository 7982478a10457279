"""`specdrive train draft`: trains a routine reasoner for a target: a phrasebook, or a network (resumable)."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from specdrive_ros.cli.answer import print_answer
from specdrive_ros.cli.training_arguments import check_training
from specdrive_ros.cli.training_output import training_output, validation_lines
from specdrive_ros.errors import InputError

KINDS = ("phrasebook", "eagle3", "dflash")
LEAST_BLOCK = 2  # the newest token and one to guess
RUNS = Path("out/train/drafts")
PHRASEBOOK_LINE = "{phrasebook}: {sentences} sentences, {distinct} different, {nodes} nodes, {bytes} bytes"
EXAMPLE = "example: specdrive train draft --kind dflash --rope flat --model mini --data data/mini"


def add_arguments(parser: ArgumentParser) -> None:
    parser.epilog = EXAMPLE
    parser.add_argument("--kind", dest="draft_kind", required=True, choices=KINDS)
    parser.add_argument("--model", default="mini", metavar="M",
                        help="the target's name or checkpoint folder (default %(default)s)")
    parser.add_argument("--data", type=Path, metavar="DIR", help="learn from the scenes of `data generate`")
    parser.add_argument("--phrases", type=Path, metavar="FILE",
                        help="phrasebook: learn from a text, a chain of causation a line")
    parser.add_argument("--out", type=Path,
                        help="phrasebook: file, or folder for it; networks: folder of the finished draft and its "
                        "graphs (default: in drafts/ of the model's folder, where --draft looks)")
    parser.add_argument("--json", action="store_true", help="print the training record as JSON")
    network = parser.add_argument_group("networks")
    network.add_argument("--rope", default="flat", choices=("flat", "mirror"),
                         help="one index a row, or the target's 3D M-RoPE (default %(default)s)")
    network.add_argument("--run", type=Path, help="state and curves of the training, which resumes from here (default: "
                         f"OUT/run, without --out {RUNS}/TARGET/KIND-ROPE)")
    network.add_argument("--features", type=Path,
                         help="where the target's states are cached, for every draft of a target "
                         "(default: beside OUT or the run)")
    network.add_argument("--start-from", type=Path, metavar="DRAFT",
                         help="folder of a draft of the same kind and sizes to start from, as when its target was "
                         "trained further (default: random weights)")
    network.add_argument("--answers", default="greedy", choices=("greedy", "labels"),
                         help="learn what the target writes, or the labels (default %(default)s)")
    network.add_argument("--samples", type=int, default=8000, help="training samples (default %(default)s)")
    network.add_argument("--tap-layers", type=int, nargs="+", metavar="K",
                         help="layers of the target whose inputs are read (default 2 n/2 n-3)")
    network.add_argument("--layers", type=int, default=2, help="layers of a DFlash draft (default %(default)s)")
    network.add_argument("--block", type=int, default=16,
                         help="rows of a pass: DFlash's block, newest token included (default %(default)s)")
    network.add_argument("--ahead", type=int, metavar="N",
                         help="steps EAGLE-3 is trained to run ahead (default: block - 1)")
    network.add_argument("--steps", type=int, default=1500, help="(default %(default)s)")
    network.add_argument("--batch", type=int, default=8, help="samples a step and process (default %(default)s)")
    network.add_argument("--learning-rate", type=float, default=5e-3, help="peak (default %(default)s)")
    network.add_argument("--seed", type=int, default=0)
    network.add_argument("--threads", type=int, help="CPU threads (default: all cores)")


def run(args: Namespace) -> int:
    record = learn(args) if args.draft_kind == "phrasebook" else distil(args)
    lines = [PHRASEBOOK_LINE.format(**record)] if args.draft_kind == "phrasebook" else validation_lines(record)
    print_answer(args, record, lines)
    return 0


def learn(args: Namespace) -> dict:
    from specdrive_ros.draft.phrasebook import FILE
    from specdrive_ros.draft.registry import DRAFTS_FOLDER
    from specdrive_ros.model_settings import find_model
    from specdrive_ros.target.tokens import TargetTokenizer
    from specdrive_ros.training.phrasebook import learn_phrasebook, read_lines, sentences_of_scenes

    if bool(args.data) == bool(args.phrases):
        raise InputError("train draft: give one of --data and --phrases to learn from")
    checkpoint = find_model(args.model).checkpoint
    texts = read_lines(args.phrases) if args.phrases else sentences_of_scenes(args.data)
    out = args.out or checkpoint / DRAFTS_FOLDER
    path = out / FILE if not args.out or out.is_dir() else out
    return learn_phrasebook(texts, TargetTokenizer.load(checkpoint), path)


def distil(args: Namespace) -> dict:
    if min(args.steps, args.batch, args.samples, args.layers) < 1:
        raise InputError("train draft: --steps, --batch, --samples and --layers must be at least 1")
    if args.data is None or args.phrases is not None:
        raise InputError(f"train draft --kind {args.draft_kind}: needs --data, and takes no --phrases")
    if args.block < LEAST_BLOCK:
        raise InputError(f"--block {args.block}: must be at least {LEAST_BLOCK}")
    check_training(args, args.learning_rate)
    import torch
    from accelerate import PartialState

    from specdrive_ros.draft.taps import eagle3_taps
    from specdrive_ros.model_settings import find_model
    from specdrive_ros.runtime.draft_export import export_draft
    from specdrive_ros.target.config import TargetConfig
    from specdrive_ros.training.draft_features import FeatureSettings
    from specdrive_ros.training.draft_training import DraftRun, DraftTraining

    if args.threads:
        torch.set_num_threads(args.threads)
    model = find_model(args.model)
    text = TargetConfig.load(model.checkpoint).text
    taps = args.tap_layers or eagle3_taps(text.num_hidden_layers)
    if wrong := [tap for tap in taps if not 0 <= tap <= text.num_hidden_layers]:
        raise InputError(f"--tap-layers {wrong[0]}: the target has 0 … {text.num_hidden_layers}")
    out, run, features = folders(args, model.checkpoint)
    training = DraftTraining(args.draft_kind, args.rope, steps=args.steps, batch=args.batch, layers=args.layers,
                             learning_rate=args.learning_rate, block_size=args.block, ahead=args.ahead, seed=args.seed)
    settings = FeatureSettings(tuple(taps), args.answers, args.samples, max_new_tokens=model.max_new_tokens)
    with training_output(run / "tensorboard") as (progress, log):
        record = DraftRun(model.checkpoint, args.data, features, out, training, settings, progress, log, run,
                          args.start_from).run()
    if PartialState().is_main_process:
        export_draft(out, out, text)
    return {**record, "draft_folder": str(out)}


def folders(args: Namespace, checkpoint: Path) -> tuple[Path, Path, Path]:
    """Folders of the finished draft, the run and the cached states. Runs of different targets never share a folder."""
    from specdrive_ros.draft.registry import draft_path
    from specdrive_ros.draft.target_identity import fingerprint_of

    name = f"{args.draft_kind}-{args.rope}"
    out = args.out or draft_path(checkpoint, name)
    run = args.run or (out / "run" if args.out else RUNS / fingerprint_of(checkpoint) / name)
    beside = out if args.out and not args.run else run
    return out, run, args.features or beside.parent / "features"
