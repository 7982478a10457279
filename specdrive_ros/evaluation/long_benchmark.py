"""Cost per token, and tokens per pass, for ever longer reasonings: does the advantage fade?

The tokens that end a reasoning are forbidden, so that every method writes the same number of tokens. This measures
cost, and acceptance on a text that goes on where the model would have stopped. To measure acceptance on reasonings
that are long by nature, take a model trained on them (`data lengthen`, docs/tutorials/training_mini.md) and
`own_ends`: each reasoning then ends where the model ends it, and a length is only the limit. Greedy; each prompt is
decoded alone by every method, plain decoding always included. CPU time is taken besides wall time, because other load
affects it less.
"""

import csv
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

import numpy as np

from specdrive_ros.cycle import Planner, make_decoder
from specdrive_ros.decoding.rules import ReasoningRules
from specdrive_ros.decoding.statistics import accepted_length
from specdrive_ros.draft.company import PassCosts
from specdrive_ros.draft.registry import CARRYOVER, NO_DRAFT, check_names, rope_of
from specdrive_ros.errors import InputError
from specdrive_ros.evaluation.decode_benchmark import observations
from specdrive_ros.evaluation.plots import lines_over
from specdrive_ros.evaluation.report_page import page, table, write_page

LENGTHS = (20, 64, 128, 256, 512)
APART = 25  # cycles between two prompts, so that each world gives one
COLUMNS = ("draft", "rope", "length", "tokens", "target_passes", "accepted_length", "accepted_length_beyond",
           "ms_per_token",
           "ms_per_token_beyond", "cpu_ms_per_token", "speedup", "identical")  # fmt: skip


def endless(rules: ReasoningRules, tokens: int) -> ReasoningRules:
    """Rules under which a reasoning has exactly this many tokens, its two closing tokens included."""
    forbidden = rules.forbidden.copy()
    forbidden[[rules.cot_end, rules.future_start, rules.end_of_turn]] = True
    return replace(rules, forbidden=forbidden, max_new_tokens=tokens)


@dataclass
class LongResult:
    """One method at one length over all prompts."""

    draft: str
    length: int
    ms: list[float] = field(default_factory=list)
    cpu_ms: list[float] = field(default_factory=list)
    tokens: int = 0
    target_passes: int = 0
    mismatches: int = 0


def measure_lengths(
    planner: Planner, drafts: Sequence[str], lengths: Sequence[int], prompts: int, *, costs: PassCosts, seed: int = 0,
    own_ends: bool = False, on_reasoning: Callable[[], None] = lambda: None,
) -> list[LongResult]:  # fmt: skip
    """Runs every method at every length on every prompt, plain decoding first.

    The planner must have been loaded for the longest length. own_ends: the model may end a reasoning before its
    length. Raises `InputError` for a carry-over draft: no prompt here has a predecessor.
    """
    names = [NO_DRAFT, *(draft for draft in dict.fromkeys(drafts) if draft != NO_DRAFT)]
    if carried := [name for name in names if CARRYOVER in check_names(name)]:
        raise InputError(f"bench long: {carried[0]} has nothing to carry over, prompts stand alone; name it without")
    rules = planner.rules if own_ends else endless(planner.rules, max(lengths))
    folder = planner.settings.checkpoint
    decoders = [make_decoder(planner.networks, rules, name, folder, planner.tokenizer, costs) for name in names]
    results = [LongResult(name, length) for name in names for length in lengths]
    for observation in islice(observations(planner, seed), 0, APART * prompts, APART):
        expected: dict[int, tuple[int, ...]] = {}
        for decoder in decoders:
            planner.decoder = decoder
            for length in lengths:
                result = results[len(lengths) * decoders.index(decoder) + list(lengths).index(length)]
                _decode(planner, observation, replace(rules, max_new_tokens=length), result, expected)
                on_reasoning()
    return results


def _decode(planner, observation, rules: ReasoningRules, result: LongResult, expected: dict) -> None:
    planner.decoder.rules = rules
    state = planner.perceive(observation, {})
    begun, begun_cpu = time.perf_counter(), time.process_time()
    reasoning = planner.decoder.decode(state)
    result.ms.append(1000 * (time.perf_counter() - begun))
    result.cpu_ms.append(1000 * (time.process_time() - begun_cpu))
    result.tokens += len(reasoning.token_ids)
    result.target_passes += reasoning.target_passes
    result.mismatches += reasoning.token_ids != expected.setdefault(result.length, reasoning.token_ids)


def rows_of(results: Sequence[LongResult]) -> list[dict]:
    """One row per method and length. `…_beyond` counts only what lies beyond the previous length, i.e. the end of the
    text, not its mean; None if no reasoning went that far."""
    plain = {result.length: result for result in results if result.draft == NO_DRAFT}
    rows, before = [], None
    for result in results:
        before = before if before and before.draft == result.draft else None
        rows.append(_row(result, before, plain[result.length]))
        before = result
    return rows


def _row(result: LongResult, before: LongResult | None, plain: LongResult) -> dict:
    tokens, passes, ms = result.tokens, result.target_passes, sum(result.ms)
    if before:
        tokens, passes, ms = tokens - before.tokens, passes - before.target_passes, ms - sum(before.ms)
    return {
        "draft": result.draft,
        "rope": rope_of(result.draft),
        "length": result.length,
        "tokens": result.tokens,
        "target_passes": result.target_passes,
        "accepted_length": round(accepted_length(result.tokens, result.target_passes, len(result.ms)), 4),
        "accepted_length_beyond": round(accepted_length(tokens, passes), 4) if tokens else None,
        "ms_per_token": round(sum(result.ms) / result.tokens, 4),
        "ms_per_token_beyond": round(ms / tokens, 4) if tokens else None,
        "cpu_ms_per_token": round(sum(result.cpu_ms) / result.tokens, 4),
        "speedup": round(sum(plain.ms) / sum(result.ms), 3),
        "identical": result.mismatches == 0,
    }


def write_files(folder: Path, document: dict) -> list[Path]:
    """Writes `long.csv` and `long.html` with the table and two plots. Raises `InputError` if they cannot be
    written."""
    rows = document["rows"]
    paths = [folder / "long.csv", folder / "long.html"]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with paths[0].open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, COLUMNS)
            writer.writeheader()
            writer.writerows(rows)
        write_page(paths[1], page("Long reasoning", _report(document)))
    except OSError as error:
        raise InputError(f"{folder}: cannot be written ({error.strerror or error})") from None
    return paths


def ends_in_words(document: dict) -> str:
    return "the model ends its reasonings" if document["own_ends"] else "the tokens that end a reasoning are forbidden"


def _report(document: dict) -> str:
    rows = document["rows"]
    lengths = np.array(sorted({row["length"] for row in rows}), float)

    def plot(column: str, unit: str) -> str:
        series = {row["draft"]: [] for row in rows}
        for row in rows:
            series[row["draft"]].append(row[column] or 0.0)
        return f'<div class="card">{lines_over(lengths, series, "tokens of the reasoning", unit)}</div>'

    head = f"{document['model']} on {document['runtime']}, {document['threads']} threads, {document['prompts']} prompts"
    return (
        f"<h1>Long reasoning</h1><p class='soft'>{head}; {ends_in_words(document)}</p>"
        + plot("cpu_ms_per_token", "CPU milliseconds a token")
        + plot("accepted_length_beyond", "tokens a pass beyond the length before")
        + f'<div class="card">{table(COLUMNS, [[row[name] for name in COLUMNS] for row in rows])}</div>'
    )
