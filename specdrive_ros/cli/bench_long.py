"""`specdrive bench long`: the cost per token in reasonings of 20 to 512 tokens, with several drafts in one run."""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from pathlib import Path

from specdrive_ros.cli.answer import json_text, print_answer
from specdrive_ros.errors import InputError

EXAMPLE = "example: specdrive bench long --model mini --draft phrasebook dflash phrasebook+dflash --out out/bench"
LONGEST = 4096


def add_arguments(parser: ArgumentParser, add_common: Callable[[ArgumentParser], None]) -> None:
    parser.epilog = EXAMPLE
    add_common(parser)
    parser.add_argument("--draft", nargs="+", metavar="D",
                        help="methods to measure beside plain decoding, no carry-over (default: all the model has)")
    parser.add_argument("--lengths", nargs="+", type=int, metavar="N",
                        help="tokens of a reasoning (default 20 64 128 256 512)")
    parser.add_argument("--prompts", type=int, default=4, metavar="N",
                        help="prompts to decode, each of another world (default %(default)s)")
    parser.add_argument("--own-ends", action="store_true",
                        help="let the model end its reasonings, for one that was taught long ones (`data lengthen`); a "
                             "length is then where a reasoning is cut off (default: they may not end before)")
    parser.add_argument("--out", type=Path, metavar="DIR",
                        help="folder for long.json, long.csv and long.html with plots")


def run(args: Namespace) -> int:
    from specdrive_ros.evaluation.summary import prepare_out_folder

    out = args.out and prepare_out_folder(args.out)  # before hours of measuring
    document = long_document(args)
    if out:
        from specdrive_ros.evaluation.long_benchmark import write_files

        write_files(out, document)
        (out / "long.json").write_text(json_text(document), encoding="utf-8")
    print_answer(args, document, lines_of(document))
    return 0


def long_document(args: Namespace) -> dict:
    from specdrive_ros.cli.progress import progress
    from specdrive_ros.cycle import Planner
    from specdrive_ros.draft.company import PassCosts
    from specdrive_ros.draft.registry import NAMES, NO_DRAFT, available, check_names
    from specdrive_ros.evaluation.long_benchmark import LENGTHS, measure_lengths, rows_of
    from specdrive_ros.model_settings import find_model

    lengths = tuple(args.lengths or LENGTHS)
    if list(lengths) != sorted(set(lengths)) or not 3 <= lengths[0] <= lengths[-1] <= LONGEST:
        raise InputError(f"--lengths {' '.join(map(str, lengths))}: must be rising numbers from 3 to {LONGEST}")
    checkpoint = find_model(args.model).checkpoint
    drafts = args.draft or [name for name in NAMES[1:] if available(name, checkpoint) != NO_DRAFT]
    for draft in drafts:
        check_names(draft)
    planner = Planner.load(args.model, runtime=args.runtime, threads=args.threads, max_new_tokens=max(lengths))
    methods = 1 + len(set(drafts) - {NO_DRAFT})
    with progress("reasonings", args.prompts * methods * len(lengths)) as bar:
        results = measure_lengths(planner, drafts, lengths, args.prompts, costs=PassCosts.load(checkpoint),
                                  seed=args.seed, own_ends=args.own_ends, on_reasoning=bar.advance)  # fmt: skip
    return {
        "version": 1,
        "model": str(args.model),
        "runtime": args.runtime,
        "threads": args.threads,
        "prompts": args.prompts,
        "own_ends": args.own_ends,
        "rows": rows_of(results),
    }


def lines_of(document: dict) -> list[str]:
    """One line per method and length."""
    from specdrive_ros.evaluation.long_benchmark import ends_in_words

    head = f"{document['model']} on {document['runtime']}, {document['threads']} threads, {document['prompts']} prompts"
    return [f"{head}; {ends_in_words(document)}; beyond: behind the length before"] + [
        f"{row['draft']:<28} {row['length']:>4} tokens   "
        f"L {row['accepted_length']:6.2f}  beyond {_or_nan(row['accepted_length_beyond']):6.2f}   "
        f"ms a token {row['ms_per_token']:7.3f}  beyond {_or_nan(row['ms_per_token_beyond']):7.3f}  CPU "
        f"{row['cpu_ms_per_token']:7.3f}   speed-up {row['speedup']:5.2f}   "
        f"{'identical' if row['identical'] else 'MISMATCHES'}"
        for row in document["rows"]
    ]


def _or_nan(value: float | None) -> float:
    return float("nan") if value is None else value
