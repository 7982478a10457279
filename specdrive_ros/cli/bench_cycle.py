"""`specdrive bench cycle`: time of whole planning cycles, stage by stage, with several drafts in one run."""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from pathlib import Path

EXAMPLE = "example: specdrive bench cycle --model mini --draft none carryover+phrasebook+dflash --prompts 100"


def add_arguments(parser: ArgumentParser, add_common: Callable[[ArgumentParser], None]) -> None:
    parser.epilog = EXAMPLE
    add_common(parser)
    parser.add_argument("--draft", nargs="+", metavar="D",
                        help="methods to measure (default: none and the model's own)")
    parser.add_argument("--prompts", type=int, default=100, metavar="N", help="cycles to plan (default %(default)s)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="also write the JSON document here")


def cycle_document(args: Namespace) -> dict:
    from specdrive_ros.cli.progress import progress
    from specdrive_ros.cycle import Planner
    from specdrive_ros.draft.company import PassCosts
    from specdrive_ros.draft.registry import NO_DRAFT, check_names, own_draft
    from specdrive_ros.evaluation.decode_benchmark import measure_methods
    from specdrive_ros.evaluation.summary import latency_summary, reasoning_summary

    planner = Planner.load(args.model, runtime=args.runtime, threads=args.threads)
    drafts = list(dict.fromkeys(args.draft or [NO_DRAFT, own_draft(planner.settings)]))
    for draft in drafts:
        check_names(draft)
    with progress("cycles", args.prompts) as bar:
        results = measure_methods(planner, drafts, args.prompts, costs=PassCosts.load(planner.settings.checkpoint),
                                  seed=args.seed, on_prompt=bar.advance)  # fmt: skip
    methods = [
        {
            "draft": result.draft,
            "latency_ms": latency_summary([with_total(plan.stage_ms) for plan in result.plans]),
            "reasoning": reasoning_summary(result.plans),
            "identical": result.mismatches == 0,
        }
        for result in results
        if result.draft in drafts
    ]
    return {
        "version": 1,
        "model": str(args.model),
        "runtime": args.runtime,
        "threads": args.threads,
        "cycles": args.prompts,
        "methods": methods,
    }


def with_total(stage_ms: dict[str, float]) -> dict[str, float]:
    return {**stage_ms, "total": sum(stage_ms.values())}


def lines_of(document: dict) -> list[str]:
    """One block per method, with a line for each stage that occurred."""
    lines = [f"{document['model']} on {document['runtime']}, {document['threads']} threads, "
             f"{document['cycles']} cycles; ms"]
    for row in document["methods"]:
        same = "identical" if row["identical"] else "MISMATCHES"
        lines.append(f"{row['draft']}   L {row['reasoning']['accepted_length']:.2f}   {same}")
        lines += [
            f"  {stage:<8} median {ms['median']:8.2f}  p90 {ms['p90']:8.2f}  p99 {ms['p99']:8.2f}  max {ms['max']:8.2f}"
            for stage, ms in row["latency_ms"].items()
            if ms["max"]
        ]
    return lines
