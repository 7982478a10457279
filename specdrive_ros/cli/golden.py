"""`specdrive golden DIR`: this implementation against reference numbers, a line per array."""

import json
import math
import sys
from pathlib import Path

EXAMPLE = "example: specdrive golden test/golden/alpamayo_A"


def add_arguments(parser):
    parser.epilog = EXAMPLE
    parser.add_argument(
        "folder", type=Path, metavar="DIR", help="reference folder laid out like test/golden/alpamayo_A"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of lines")


def run(args) -> int:
    from specdrive_ros.evaluation.golden import compare_folder

    comparisons = compare_folder(args.folder)
    if args.json:
        json.dump(as_document(args.folder, comparisons), sys.stdout, indent=1)
        print()
    else:
        print_lines(comparisons)
    return 0 if all(comparison.passed for comparison in comparisons) else 1


def as_document(folder: Path, comparisons) -> dict:
    """An infinite error (another shape, a value that is not finite) has no number in JSON: it is null."""
    return {
        "version": 1,
        "folder": str(folder),
        "passed": all(comparison.passed for comparison in comparisons),
        "arrays": [
            {
                "array": one.array,
                "error": one.error if math.isfinite(one.error) else None,
                "tolerance": one.tolerance,
                "passed": one.passed,
                "note": one.note,
            }
            for one in comparisons
        ],
    }


def print_lines(comparisons) -> None:
    width = max(len(comparison.array) for comparison in comparisons)
    for one in comparisons:
        verdict = "ok  " if one.passed else "OVER"
        numbers = f"error {one.error:8.2e}  tolerance {one.tolerance:8.2e}"
        print(f"{verdict} {one.array:<{width}}  {numbers}  {one.note}".rstrip())
    over = sum(not comparison.passed for comparison in comparisons)
    print(f"{len(comparisons)} arrays, {over} over their tolerance")
