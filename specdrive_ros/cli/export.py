"""`specdrive export MODEL DIR`: the ONNX graphs of a checkpoint or a draft, compared with PyTorch."""

import sys
from argparse import ArgumentParser, BooleanOptionalAction, Namespace
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from specdrive_ros.cli.answer import print_answer

if TYPE_CHECKING:
    from specdrive_ros.evaluation.variant_accuracy import VariantAccuracy
    from specdrive_ros.model_settings import ModelSettings
    from specdrive_ros.runtime.export import Comparison

EXAMPLE = "example: specdrive export models/mini models/mini"


def add_arguments(parser: ArgumentParser) -> None:
    parser.epilog = EXAMPLE
    parser.add_argument("model", metavar="MODEL", help="a model's name or its checkpoint folder")
    parser.add_argument(
        "folder",
        type=Path,
        metavar="DIR",
        help="where to write; another folder than MODEL's gets a copy of it",
    )
    parser.add_argument(
        "--tap-layers",
        type=int,
        nargs="+",
        metavar="K",
        help="layers whose inputs drafts read (default 2 n/2 n-3)",
    )
    parser.add_argument("--target", metavar="TARGET", help="MODEL is a draft folder, for this target")
    parser.add_argument(
        "--compare",
        action=BooleanOptionalAction,
        help="whether to compare the graphs with PyTorch, which needs memory for weights (default: if there is enough)",
    )
    parser.add_argument(
        "--precision",
        choices=("fp32", "fp16", "bf16", "int8", "int4", "fp8", "int8w", "int4w"),
        default="fp32",
        metavar="P",
        help="fp16, bf16 (for GPUs), int8, int4 (for CPUs), int8w, int4w, fp8 (weights only, for engines): rewrites "
        "MODEL's fp32 graphs into DIR and prints the loss of accuracy (default %(default)s)",
    )
    parser.add_argument(
        "--cycles", type=int, default=20, metavar="N", help="with --precision: cycles to compare (default %(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of lines")


def run(args: Namespace) -> int:
    """Raises InputError for a model that cannot be read, WorkFailed for graphs that differ from PyTorch."""
    from specdrive_ros.errors import InputError

    if args.precision != "fp32":
        return _write_variant(args)
    try:
        comparisons = _export_draft(args) if args.target else _export_target(args)
    except OSError as error:
        raise InputError(f"{args.folder}: cannot be written ({error.strerror or error})") from None
    if not comparisons:
        print(f"{args.folder}: not compared with PyTorch", file=sys.stderr)
    print_answer(args, document_of(args.folder, comparisons), lines_of(args.folder, comparisons))
    return 0


def _export_target(args: Namespace) -> list["Comparison"]:
    from specdrive_ros.model_settings import find_model
    from specdrive_ros.runtime.export import export_checkpoint

    settings = find_model(args.model)
    taps = tuple(args.tap_layers) if args.tap_layers else None
    return export_checkpoint(
        settings.checkpoint, args.folder, tap_layers=taps, on_graph=_say,
        flow_steps=settings.action_steps or steps_before(settings.checkpoint),
        comparing=_enough_memory(settings.checkpoint) if args.compare is None else args.compare,
    )  # fmt: skip


def steps_before(checkpoint: Path) -> int:
    """Steps of the action head that was exported before, as published if there is none or it is broken."""
    from specdrive_ros.engine.graph_file import exported_flow_steps
    from specdrive_ros.errors import InputError
    from specdrive_ros.shapes import FLOW_STEPS

    try:
        return exported_flow_steps(checkpoint)
    except InputError:  # it is about to be replaced
        return FLOW_STEPS


def _enough_memory(checkpoint: Path) -> bool:
    """Whether a comparison fits in this machine's memory; prints a message if not."""
    from specdrive_ros.runtime.weights_file import available_bytes, comparison_bytes

    needed, free = comparison_bytes(checkpoint), available_bytes()
    if needed > free:
        print(f"no comparison with PyTorch: it needs about {needed / 1e9:.0f} GB of memory, {free / 1e9:.0f} are free; "
              "--compare does it all the same", file=sys.stderr)  # fmt: skip
    return needed <= free


def _export_draft(args: Namespace) -> list["Comparison"]:
    from specdrive_ros.model_settings import find_model
    from specdrive_ros.runtime.draft_export import export_draft
    from specdrive_ros.target.config import TargetConfig

    text = TargetConfig.load(find_model(args.target).checkpoint).text
    return export_draft(args.model, args.folder, text, on_graph=_say)


def _write_variant(args: Namespace) -> int:
    """Writes graphs in another precision, and measures their cost in accuracy on cycles of the embedded world."""
    from specdrive_ros.cli.progress import progress
    from specdrive_ros.errors import InputError
    from specdrive_ros.model_settings import find_model
    from specdrive_ros.runtime.variants import write_variant

    if args.cycles < 1 or args.target or args.tap_layers:
        raise InputError("--precision: --cycles must be at least 1; --target and --tap-layers belong to an fp32 export")
    settings = find_model(args.model)
    try:
        write_variant(settings.checkpoint, args.folder, args.precision, _say)
    except OSError as error:
        raise InputError(f"{args.folder}: cannot be written ({error.strerror or error})") from None
    with progress("cycles", args.cycles) as bar:
        accuracy = variant_accuracy(settings, args.folder, args.precision, args.cycles, bar.advance)
    document = {"version": 1, "folder": str(args.folder), "precision": args.precision}
    document |= {"graphs": graph_sizes(args.folder), "accuracy": accuracy.as_document()}
    print_answer(args, document, [*size_lines(args.folder), *accuracy.lines()])
    return 0


def variant_accuracy(
    settings: "ModelSettings", folder: Path, precision: str, cycles: int, on_cycle: Callable[[], None]
) -> "VariantAccuracy":
    """Accuracy of a precision; fp16 and bf16 are emulated: rounded where the graphs round, computed in fp32."""
    from contextlib import nullcontext

    from specdrive_ros.cycle import Planner
    from specdrive_ros.evaluation.variant_accuracy import measure_accuracy
    from specdrive_ros.runtime.onnx_networks import OnnxNetworks
    from specdrive_ros.runtime.variants import emulated
    from specdrive_ros.target.tokens import TargetTokenizer

    model = settings.checkpoint
    with emulated(model, precision) if precision in ("fp16", "bf16") else nullcontext(folder) as runnable:
        pair = [OnnxNetworks(each, threads=1) for each in (model, runnable)]
        reference, variant = (Planner(settings, each, TargetTokenizer.load(each.config)) for each in pair)
        return measure_accuracy(reference, variant, cycles, on_cycle=on_cycle)


def _say(name: str) -> None:
    print(f"exporting {name}.onnx", file=sys.stderr, flush=True)


def document_of(folder: Path, comparisons: list["Comparison"]) -> dict:
    outputs = [{"output": one.output, "error": one.error, "tolerance": one.tolerance} for one in comparisons]
    return {"version": 1, "folder": str(folder), "graphs": graph_sizes(folder), "outputs": outputs}


def graph_sizes(folder: Path) -> dict[str, int]:
    """Size in bytes of each of the graphs' files."""
    return {path.name: path.stat().st_size for path in sorted(folder.glob("*.onnx*"))}


def size_lines(folder: Path) -> list[str]:
    return [f"{folder / name}  {size / 1000:.0f} kB" for name, size in graph_sizes(folder).items()]


def lines_of(folder: Path, comparisons: list["Comparison"]) -> list[str]:
    """One line per graph, then one per output that was compared."""
    return size_lines(folder) + [
        f"ok   {one.output:<18} error {one.error:8.2e}  tolerance {one.tolerance:8.2e}" for one in comparisons
    ]
