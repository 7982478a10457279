"""`specdrive bench decode|long|cycle|node`: ways of decoding against plain decoding in one run; the planner over DDS.

Thin: arguments in, lines or one JSON document out. The measuring is in `evaluation/`; the other three are in
`bench_long.py`, `bench_cycle.py` and `bench_node.py`.
"""

from argparse import ArgumentParser, BooleanOptionalAction, Namespace
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from specdrive_ros.cli import bench_cycle, bench_long, bench_node
from specdrive_ros.cli.answer import json_text, print_answer
from specdrive_ros.errors import InputError

if TYPE_CHECKING:
    from specdrive_ros.evaluation.phrase_benchmark import PhraseResult

EXAMPLE = "example: specdrive bench decode --draft phrasebook dflash carryover+phrasebook+dflash --prompts 100"


def add_arguments(parser: ArgumentParser) -> None:
    parser.epilog = EXAMPLE
    kinds = parser.add_subparsers(dest="kind", required=True, metavar="decode|long|cycle|node")
    long = kinds.add_parser("long", help="what a token costs in reasonings of 20 to 512 tokens")
    bench_long.add_arguments(long, add_common)
    bench_cycle.add_arguments(kinds.add_parser("cycle", help="whole planning cycles, stage by stage"), add_common)
    node = kinds.add_parser("node", help="the planner as a process, picture in to trajectory out",
                            epilog=bench_node.EXAMPLE)
    bench_node.add_arguments(node)
    decode = kinds.add_parser("decode", help="reasoning alone, on cycles of the embedded world", epilog=EXAMPLE)
    add_common(decode)
    decode.add_argument("--draft", nargs="+", default=["none", "carryover"], metavar="D",
                        help="methods to measure; a+b uses both drafts together (default: none carryover)")
    decode.add_argument("--prompts", type=int, default=100, metavar="N", help="cycles to decode (default %(default)s)")
    decode.add_argument("--modelled", action=BooleanOptionalAction, default=True,
                        help="also count passes with the tree widths that pay off on a large GPU, where a wide pass "
                             "costs as much as a narrow one: a model, and marked as such")
    decode.add_argument("--measure-costs", action="store_true",
                        help="first measure what passes cost here and keep the table beside the model, to choose "
                             "tree widths by (default: the table kept there, else that of mini on a CPU)")
    decode.add_argument("--phrases", type=Path, metavar="FILE",
                        help="measure a phrasebook alone on a text with a chain of causation per line; needs no model")
    decode.add_argument("--tokenizer", type=Path, metavar="T",
                        help="with --phrases: a model's folder or a tokenizer.json (default: words and punctuation)")
    decode.add_argument("--out", type=Path, metavar="FILE", help="also write the JSON document here")


def add_common(parser: ArgumentParser) -> None:
    """The arguments that every kind of benchmark takes."""
    parser.add_argument("--model", default="mini", metavar="M", help="a model's name or folder (default %(default)s)")
    parser.add_argument("--runtime", default="onnxruntime", metavar="R",
                        help="onnxruntime, torch or tensorrt (default %(default)s)")
    parser.add_argument("--threads", type=int, default=2, metavar="N", help="CPU threads (default %(default)s)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the first world (default %(default)s)")
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of lines")


def run(args: Namespace) -> int:
    if args.kind == "node":
        return _write(args, bench_node.document, bench_node.lines_of)
    if args.prompts < 1 or args.threads < 1 or args.seed < 0:
        raise InputError(f"bench {args.kind}: --prompts and --threads must be at least 1, --seed 0 or more")
    if args.kind == "cycle":
        return _write(args, bench_cycle.cycle_document, bench_cycle.lines_of)
    return bench_long.run(args) if args.kind == "long" else run_decode(args)


def run_decode(args: Namespace) -> int:
    if args.tokenizer and not args.phrases:
        raise InputError("--tokenizer: goes with --phrases; a model has its own")
    return _write(args, phrases_document if args.phrases else decode_document, lines_of)


def _write(args: Namespace, measure: Callable[[Namespace], dict], lines_of: Callable[[dict], list[str]]) -> int:
    """Measures, writes and prints; a file that cannot be written is refused before anything is measured."""
    from specdrive_ros.evaluation.summary import prepare_out_file

    out = args.out and prepare_out_file(args.out)
    document = measure(args)
    if out:
        out.write_text(json_text(document), encoding="utf-8")
    print_answer(args, document, lines_of(document))
    return 0


def phrases_document(args: Namespace) -> dict:
    from specdrive_ros.evaluation.phrase_benchmark import BLOCK, SPLITS, measure_phrases, words_as_tokens
    from specdrive_ros.training.phrasebook import read_lines

    lines = read_lines(args.phrases)
    sentences = ids_as_tokens(lines, args.tokenizer) if args.tokenizer else words_as_tokens(lines)
    return {
        "version": 1,
        "phrases": str(args.phrases),
        "sentences": len(sentences),
        "distinct": len(set(sentences)),
        "tokens_per_sentence": round(sum(map(len, sentences)) / len(sentences), 3),
        "tokenizer": str(args.tokenizer) if args.tokenizer else "words",
        "splits": SPLITS,
        "block": BLOCK,
        "methods": [phrase_row(result) for result in measure_phrases(sentences, args.seed)],
    }


def ids_as_tokens(lines: list[str], tokenizer: Path) -> list[tuple[int, ...]]:
    """Ids of a tokenizer shifted by one, so that token 0 can be the end of the sentence."""
    from specdrive_ros.target.tokens import read_tokenizer

    library = read_tokenizer(tokenizer / "tokenizer.json" if tokenizer.is_dir() else tokenizer)
    return [(*(token + 1 for token in library.encode(line, add_special_tokens=False).ids), 0) for line in lines]


def phrase_row(result: "PhraseResult") -> dict:
    """A row of the document, as printed by `bench decode --json`."""
    from specdrive_ros.decoding.statistics import routine_share

    return {
        "draft": "phrasebook",
        "shape": result.shape,
        "nodes": result.rows,
        "tokens": result.tokens,
        "target_passes": result.target_passes,
        "accepted_length": round(result.accepted_length, 4),
        "routine_share": round(routine_share(result.tokens, result.target_passes), 4),
        "by_split": [round(length, 4) for length in result.by_split],
        "accepted_length_first_guessed": round(result.guessed, 4),
        "accepted_length_unseen": None if result.unseen is None else round(result.unseen, 4),
    }


def decode_document(args: Namespace) -> dict:
    from specdrive_ros.cli.progress import progress
    from specdrive_ros.cycle import Planner
    from specdrive_ros.draft.company import PassCosts
    from specdrive_ros.draft.registry import check_names
    from specdrive_ros.evaluation.decode_benchmark import measure_methods, measured_costs
    from specdrive_ros.evaluation.modelled import GpuModel

    for draft in args.draft:
        check_names(draft)
    planner = Planner.load(args.model, runtime=args.runtime, threads=args.threads)
    costs = PassCosts.load(planner.settings.checkpoint)
    if args.measure_costs:
        costs = measured_costs(planner)
        costs.save(planner.settings.checkpoint)
    modelled = GpuModel(planner, list(dict.fromkeys(args.draft)), float(costs.of(1))) if args.modelled else None
    with progress("prompts", args.prompts) as bar:
        results = measure_methods(
            planner, args.draft, args.prompts, costs=costs, seed=args.seed, on_prompt=bar.advance,
            **({"also": modelled.decode} if modelled else {}),
        )  # fmt: skip
    return {
        "version": 1,
        "model": str(args.model),
        "runtime": args.runtime,
        "threads": args.threads,
        "prompts": args.prompts,
        "max_tokens": planner.settings.max_new_tokens,
        "pass_costs_ms": {str(rows): round(ms, 3) for rows, ms in zip(costs.rows, costs.ms)},
        "draft_costs_ms": {name: vars(cost) for name, cost in costs.drafts.items()},
        "methods": [result.row(results[0]) for result in results],
        **({"modelled_gpu": modelled.document()} if modelled else {}),
    }


def lines_of(document: dict) -> list[str]:
    """One line per method."""
    if "phrases" in document:
        head = f"{document['sentences']} sentences, {document['distinct']} different, {document['splits']} splits"
        return [head] + [
            f"{row['shape']:<6} {row['nodes']:>4} rows   {row['accepted_length']:6.2f} tokens a pass   "
            f"never seen {row['accepted_length_unseen'] or float('nan'):6.2f}   "
            f"first word guessed {row['accepted_length_first_guessed']:6.2f}"
            for row in document["methods"]
        ]
    head = f"{document['model']} on {document['runtime']}, {document['threads']} threads, {document['prompts']} prompts"
    measured = [
        f"{row['draft']:<34} L {row['accepted_length']:6.2f}   routine {row['routine_share']:4.0%}   "
        f"median {row['ms_per_reasoning']['median']:7.2f} ms  p99 {row['ms_per_reasoning']['p99']:7.2f}   "
        f"speed-up {row['speedup'] or float('nan'):5.2f}   "
        + ("identical" if row["identical"] else f"{row['mismatches']} MISMATCHES")
        for row in document["methods"]
    ]
    return [head, *measured, *modelled_lines(document.get("modelled_gpu"))]


def modelled_lines(modelled: dict | None) -> list[str]:
    if modelled is None:
        return []
    return [f"modelled, not measured: {modelled['assumes']}"] + [
        f"{row['draft']:<34} L {row['accepted_length']:6.2f}   passes with drafts {row['passes_with_drafts']:8.1f}   "
        f"speed-up {row['speedup'] or float('inf'):5.2f}"
        for row in modelled["methods"]
    ]
