"""`specdrive golden DIR`: compares this implementation with reference numbers, one line per array."""

import math
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from specdrive_ros.cli.answer import print_answer

if TYPE_CHECKING:
    from specdrive_ros.evaluation.golden import Comparison

EXAMPLE = "example: specdrive golden test/golden/alpamayo_A"


def add_arguments(parser: ArgumentParser) -> None:
    parser.epilog = EXAMPLE
    parser.add_argument(
        "folder", type=Path, metavar="DIR", help="reference folder laid out like test/golden/alpamayo_A"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of lines")


def run(args: Namespace) -> int:
    from specdrive_ros.evaluation.golden import compare_folder

    comparisons = compare_folder(args.folder)
    print_answer(args, document_of(args.folder, comparisons), lines_of(comparisons))
    return 0 if all(comparison.passed for comparison in comparisons) else 1


def document_of(folder: Path, comparisons: list["Comparison"]) -> dict:
    """The result as JSON; an infinite error (another shape, a value that is not finite) is null."""
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


def lines_of(comparisons: list["Comparison"]) -> list[str]:
    """One line per array, then how many exceed their tolerance."""
    width, lines = max((len(one.array) for one in comparisons), default=0), []
    for one in comparisons:
        verdict = "ok  " if one.passed else "OVER"
        numbers = f"error {one.error:8.2e}  tolerance {one.tolerance:8.2e}"
        lines.append(f"{verdict} {one.array:<{width}}  {numbers}  {one.note}".rstrip())
    over = sum(not one.passed for one in comparisons)
    return [*lines, f"{len(comparisons)} arrays, {over} over their tolerance"]
