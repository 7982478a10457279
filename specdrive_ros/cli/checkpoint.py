"""`specdrive checkpoint inspect|convert PATH`: what a checkpoint contains and lacks; drafts to and from public
layouts.

Thin: arguments in, lines or one JSON document out. Inspecting is in `runtime/inventory.py`, converting in
`draft/conversion.py`.
"""

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from specdrive_ros.cli.answer import print_answer

EXAMPLE = "example: specdrive checkpoint inspect models/mini"
EXAMPLE_CONVERT = (
    "example: specdrive checkpoint convert models/mini/drafts/dflash-flat --to speculators --out out/dflash"
)


def add_arguments(parser: ArgumentParser) -> None:
    parser.epilog = EXAMPLE
    kinds = parser.add_subparsers(dest="kind", required=True, metavar="inspect|convert")
    look = kinds.add_parser(
        "inspect", help="what a model or a draft holds and what is missing; exit code 1 where it cannot be loaded",
        epilog=EXAMPLE,
    )  # fmt: skip
    look.add_argument("path", metavar="PATH", help="a model's name, or the folder of a model or of a draft")
    convert = kinds.add_parser("convert", help="write a draft in another public layout", epilog=EXAMPLE_CONVERT)
    convert.add_argument("path", metavar="PATH", help="the folder of a draft, in any of the layouts")
    convert.add_argument("--to", default="published", choices=("published", "speculators"), metavar="LAYOUT",
                         help="published (that of the kind's own repository: SafeAILab EAGLE-3, z-lab DFlash) or "
                              "speculators (default %(default)s)")
    convert.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder for the written draft")
    for kind in (look, convert):
        kind.add_argument("--target", default="mini", metavar="M",
                          help="name or folder of the model that a draft is for (default %(default)s)")
        kind.add_argument("--json", action="store_true", help="print one JSON document instead of lines")


def run(args: Namespace) -> int:
    return {"inspect": inspect, "convert": convert}[args.kind](args)


def inspect(args: Namespace) -> int:
    from specdrive_ros.model_settings import find_model
    from specdrive_ros.runtime.inventory import take_inventory

    folder = Path(args.path)
    if not (folder / "config.json").is_file():
        folder = find_model(args.path).checkpoint
    document = document_of(take_inventory(folder, lambda: text_of(args.target)))
    print_answer(args, document, lines_of(document))
    return 1 if document["faults"] else 0


def text_of(target: str):
    from specdrive_ros.model_settings import find_model
    from specdrive_ros.target.config import TargetConfig

    return TargetConfig.load(find_model(target).checkpoint).text


def document_of(inventory) -> dict:
    return {
        "version": 1,
        "folder": str(inventory.folder),
        "kind": inventory.kind,
        "layout": inventory.layout,
        "config": inventory.facts,
        "tensors": len(inventory.tensors),
        "numbers": sum(inventory.parts.values()),
        "bytes": sum(place.length for place in inventory.tensors.values()),
        "types": inventory.types,
        "parts": inventory.parts,
        "faults": list(inventory.faults),
        "absent": list(inventory.absent),
    }


def lines_of(document: dict) -> list[str]:
    size = f"{document['tensors']} tensors, {document['numbers']} numbers, {document['bytes'] / 1e6:.1f} MB"
    types = ", ".join(f"{count} {name}" for name, count in document["types"].items())
    absent = f"not there (export and train draft make it): {', '.join(document['absent'])}"
    return [
        f"{document['folder']}: {document['kind']}, layout: {document['layout']}",
        *(f"  {name:<18} {value}" for name, value in document["config"].items()),
        f"{size} ({types})" if types else size,
        *(f"  {name:<32} {count}" for name, count in document["parts"].items()),
        *(f"MISSING OR WRONG: {fault}" for fault in document["faults"]),
        *([absent] if document["absent"] else ()),
        "cannot be loaded" if document["faults"] else "whole",
    ]


def convert(args: Namespace) -> int:
    """Raises InputError for an incomplete draft, or one for another target."""
    from specdrive_ros.draft.conversion import convert_draft
    from specdrive_ros.evaluation.summary import prepare_out_folder
    from specdrive_ros.model_settings import find_model

    text, verifier = text_of(args.target), find_model(args.target).checkpoint.resolve().name
    out = prepare_out_folder(args.out)
    caveats = convert_draft(Path(args.path), out, text, args.to, verifier)
    for caveat in caveats:
        print(f"specdrive: warning: {caveat}", file=sys.stderr)
    document = {"version": 1, "draft": args.path, "folder": str(out), "layout": args.to, "caveats": caveats}
    print_answer(args, document, [f"{out}: {args.path} in the layout {args.to}"])
    return 0
