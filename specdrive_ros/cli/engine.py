"""`specdrive engine build|list|inspect|verify|prune`: compiled engines of a model for a device, and whether they fit.

Thin: arguments in, lines or one JSON document out. Building is in `engine/building.py`, the folder of engines in
`engine/store.py`.
"""

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from specdrive_ros.cli.answer import print_answer

EXAMPLE = "example: specdrive engine build --profile engines/profiles/rtx-ada.yaml --model mini"


def add_arguments(parser: ArgumentParser) -> None:
    parser.epilog = EXAMPLE
    kinds = parser.add_subparsers(dest="kind", required=True, metavar="build|list|inspect|verify|prune")
    build = kinds.add_parser("build", help="compile the graphs of a model for a device", epilog=EXAMPLE)
    build.add_argument("--profile", required=True, metavar="P", help="a file, or a name of engines/profiles/")
    build.add_argument(
        "--model",
        default="mini",
        metavar="M",
        help="a model's name or folder, or a draft's folder (default %(default)s)",
    )
    build.add_argument("--out", type=Path, metavar="DIR", help="where engines go (default: engines/built/MODEL)")
    build.add_argument("--json", action="store_true", help="print one JSON document instead of lines")
    for name, help in (
        ("list", "the engines of a folder"),
        ("inspect", "everything known about the engines of a folder: identity, inputs, outputs"),
        ("verify", "whether they are intact and still fit model, module and GPU; exit code 1 if one does not"),
        ("prune", "remove engines that are damaged or do not fit, and files that no manifest names"),
    ):
        kind = kinds.add_parser(name, help=help, epilog=f"example: specdrive engine {name} engines/built/mini")
        kind.add_argument(
            "folder", type=Path, nargs="?", metavar="DIR", help="folder of engines (default: engines/built/MODEL)"
        )
        kind.add_argument(
            "--model", metavar="M", help="the model to compare with (default: the one each was built from)"
        )
        if name == "inspect":
            kind.add_argument("--graph", metavar="G", help="only the engines of this graph")
        kind.add_argument("--json", action="store_true", help="print one JSON document instead of lines")


def run(args: Namespace) -> int:
    return {"build": build, "list": list_engines, "inspect": inspect, "verify": verify, "prune": prune}[args.kind](args)


def build(args: Namespace) -> int:
    from specdrive_ros.engine.building import Listener, build_model
    from specdrive_ros.engine.profile import find_profile
    from specdrive_ros.engine.serving import default_engines
    from specdrive_ros.engine.store import EngineStore
    from specdrive_ros.engine.tensorrt import find_tensorrt

    profile, folder = find_profile(args.profile), _model_folder(args.model)
    store = EngineStore(args.out or default_engines(folder))
    listener = Listener(lambda graph, why: _say(f"building {graph}: {why}"), _ProgressLines())
    outcomes = build_model(folder, profile, store, find_tensorrt(profile.builder), listener)
    rows = [row_of(one.entry) | {"built": one.built, "why": one.why} for one in outcomes]
    lines = [f"{'built     ' if row['built'] else 'up to date'}  {line_of(row)}" for row in rows]
    print_answer(args, {"version": 1, "folder": str(store.folder), "engines": rows}, lines)
    return 0


def list_engines(args: Namespace) -> int:
    store = _store(args)
    rows = [row_of(entry) for entry in store.entries()]
    lines = [line_of(row) for row in rows] or [f"{store.folder}: no engines"]
    print_answer(args, {"version": 1, "folder": str(store.folder), "engines": rows}, lines)
    return 0


def inspect(args: Namespace) -> int:
    from specdrive_ros.errors import InputError

    store = _store(args)
    entries = [entry for entry in store.entries() if args.graph in (None, entry.identity.graph)]
    if not entries:
        raise InputError(f"{store.folder}: no engine" + (f" of {args.graph}" if args.graph else ""))
    documents = [entry.to_dict() for entry in entries]
    lines = [line for document in documents for line in lines_of(document)]
    print_answer(args, {"version": 1, "folder": str(store.folder), "engines": documents}, lines)
    return 0


def verify(args: Namespace) -> int:
    from specdrive_ros.engine.fitness import judge

    store = _store(args)
    verdicts = judge(store, _model_folder(args.model) if args.model else None)
    rows = [
        row_of(v.entry) | {"fits": v.fits, "faults": list(v.faults), "unchecked": list(v.unchecked)} for v in verdicts
    ]
    lines = [f"{'ok   ' if row['fits'] else 'FAULT'}  {line_of(row)}" + _reasons(row) for row in rows]
    lines = lines or [f"{store.folder}: no engines"]
    print_answer(args, {"version": 1, "folder": str(store.folder), "engines": rows}, lines)
    return 0 if all(verdict.fits for verdict in verdicts) else 1


def prune(args: Namespace) -> int:
    from specdrive_ros.engine.faults import EngineDamaged
    from specdrive_ros.engine.fitness import judge

    store = _store(args)
    try:
        verdicts = judge(store, _model_folder(args.model) if args.model else None)
    except EngineDamaged as fault:  # then none of its entries can be used, and all its files are removed
        _say(str(fault))
        verdicts = []
    removed = store.prune({v.entry.identity.key: "; ".join(v.faults) for v in verdicts if not v.fits})
    rows = [{"file": one.file, "why": one.why} for one in removed]
    lines = [f"removed {one.file}: {one.why}" for one in removed] or ["nothing to remove"]
    print_answer(args, {"version": 1, "folder": str(store.folder), "removed": rows}, lines)
    return 0


def row_of(entry) -> dict:
    identity = entry.identity
    return {
        "graph": identity.graph,
        "file": entry.file,
        "bytes": entry.size,
        "precision": identity.precision,
        "target": identity.target,
        "builder": identity.builder,
        "builder_version": identity.builder_version,
        "model": entry.model,
        "built_at": entry.built_at,
        "build_s": entry.build_s,
        "key": identity.key,
    }


def line_of(row: dict) -> str:
    return (
        f"{row['graph']:<14} {row['precision']}  {row['target']:<20} {row['builder']} {row['builder_version']}  "
        f"{row['bytes'] / 1e6:7.1f} MB  {row['build_s']:6.1f} s  {row['file']}"
    )


def lines_of(document: dict) -> list[str]:
    """All parts of an entry, one per line."""
    identity = document["identity"]
    lines = [document["file"]] + [f"  {name:<16} {value}" for name, value in identity.items()]
    lines += [f"  {name:<16} {document[name]}" for name in ("key", "sha256", "size", "model", "built_at", "build_s")]
    for one in document["bindings"]:
        ranges = "; ".join(" … ".join(map(str, shapes)) for shapes in one["profiles"])
        lines.append(f"  {one['mode']:<7} {one['name']:<14} {one['dtype']:<9} {one['shape']}  {ranges}".rstrip())
    return lines


def _reasons(row: dict) -> str:
    return "".join(f"\n         {each}" for each in [*row["faults"], *row["unchecked"]])


def _store(args: Namespace):
    from specdrive_ros.engine.serving import default_engines
    from specdrive_ros.engine.store import EngineStore
    from specdrive_ros.errors import InputError

    folder = args.folder or default_engines(_model_folder(args.model or "mini"))
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder of engines; make it with: {EXAMPLE.removeprefix('example: ')}")
    return EngineStore(folder)


def _model_folder(model: str) -> Path:
    """The checkpoint folder of a model, or the folder of a draft."""
    from specdrive_ros.engine.axes import DRAFT_ENGINE_GRAPHS
    from specdrive_ros.model_settings import find_model

    folder = Path(model)
    if any((folder / f"{name}.onnx").is_file() for name in DRAFT_ENGINE_GRAPHS):
        return folder
    return find_model(model).checkpoint


class _ProgressLines:
    """Shows TensorRT's phases: overwritten in place on a terminal, elsewhere one line each if their size is known."""

    def __init__(self):
        self.phase = ""

    def __call__(self, phase: str, done: int, total: int) -> None:
        if sys.stderr.isatty():
            print(f"\r\033[K  {phase} {done}/{total}", end="\n" if done == total else "", file=sys.stderr, flush=True)
        elif phase != self.phase:
            self.phase = phase
            print(f"  {phase}", file=sys.stderr, flush=True)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
