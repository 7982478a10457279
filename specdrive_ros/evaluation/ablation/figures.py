"""The figures of ablation.json, computed from the rows of all cells alone.

accepted_length   tokens per pass of the target, counting the target's own but not the prefill
routine_share     share of all tokens that the draft supplied, (L - 1) / L
theoretical       see `THEORETICAL`: the speedup where a wide pass costs the same as a narrow one
measured          time of plain decoding divided by that with the draft, prompts pooled, prefill left out
plan_m            the largest distance of two waypoints between the plans after both texts: 0 but for rounding, since
                  the tokens are the same and the cache was filled in passes of other widths
identical         every prompt's tokens are those of plain decoding

Means have 95 % intervals by bootstrap over prompts and seeds, both resampled. Comparisons are of the same prompts and
seeds, the first minus the second.
"""

from collections.abc import Iterable, Mapping

import numpy as np

from specdrive_ros.evaluation.ablation.cells import Cell
from specdrive_ros.evaluation.ablation.measuring import Row
from specdrive_ros.evaluation.bootstrap import crossed_difference, crossed_mean

THEORETICAL = (
    "L / (1 + p l / n): p passes of the draft a proposal, l its layers, n the target's; a pass of any width costs 1"
)
COMPARISONS = (
    ("flat less mirror", "flat", "mirror"),
    ("static less distilled", "flat+static", "flat"),
    ("self less distilled", "flat+self", "flat"),
    ("static less self", "flat+static", "flat+self"),
    ("static less distilled, mirror", "mirror+static", "mirror"),
)
Key = tuple[str, str, int]  # row of the table, split, block
Sides = dict[str, np.ndarray]  # measure -> [seeds, prompts]


def draft_overhead(kind: str, block: int, layers: int, target_layers: int) -> float:
    """Cost of a proposal, in passes of the target: EAGLE-3 runs once per token; DFlash takes in what was accepted and
    fills a block."""
    return (block - 1 if kind == "eagle3" else 2) * layers / target_layers


def table(measured: Mapping[Cell, Iterable[Row]], overhead: Mapping[Key, float]) -> list[dict]:
    """One record per row of the table, split and block. overhead: from `draft_overhead`."""
    return [_record(key, seeds, sides, overhead[key]) for key, (seeds, sides) in collected(measured).items()]


def collected(measured: Mapping[Cell, Iterable[Row]]) -> dict[Key, tuple[list[int], Sides]]:
    """(seeds, measure -> [seeds, prompts]) per row of the table, split and block; prompts in the same order
    everywhere."""
    per_key: dict[Key, dict[int, list[Row]]] = {}
    for cell in sorted(measured):
        for row in measured[cell]:
            per_key.setdefault((cell.row, row.split, row.block), {}).setdefault(cell.seed, []).append(row)
    return {key: (list(seeds), _sides(list(seeds.values()))) for key, seeds in per_key.items()}


def _sides(rows_of_seeds: list[list[Row]]) -> Sides:
    prompts = [[(row.family, row.seed) for row in rows] for rows in rows_of_seeds]
    if any(one != prompts[0] for one in prompts):
        raise ValueError("ablation: two seeds of one row were measured on different prompts")
    return {
        name: np.array([[float(getattr(row, name) or 0.0) for row in rows] for rows in rows_of_seeds])
        for name in ("tokens", "passes", "ms", "plain_ms", "identical", "plan_m")
    }


def _record(key: Key, seeds: list[int], sides: Sides, overhead: float) -> dict:
    length = crossed_mean(sides["tokens"], sides["passes"])
    return {
        "row": key[0],
        "split": key[1],
        "block": key[2],
        "seeds": seeds,
        "prompts": sides["tokens"].shape[1],
        "accepted_length": length,
        "accepted_length_by_seed": [round(float(each), 4) for each in sides["tokens"].sum(1) / sides["passes"].sum(1)],
        "routine_share": crossed_mean(sides["tokens"] - sides["passes"], sides["tokens"]),
        "theoretical": {
            name: value if name == "n" or value is None else round(value / (1 + overhead), 4)
            for name, value in length.items()
        },
        "measured": crossed_mean(sides["plain_ms"], sides["ms"]),
        "ms_per_reasoning": {"plain": _mean(sides["plain_ms"]), "draft": _mean(sides["ms"])},
        "plan_m": float(sides["plan_m"].max()),
        "identical": bool(sides["identical"].all()),
        "mismatches": int((sides["identical"] == 0).sum()),
    }


def _mean(values: np.ndarray) -> float:
    return round(float(values.mean()), 4)


def comparisons(measured: Mapping[Cell, Iterable[Row]]) -> list[dict]:
    """Differences of accepted length, and whether their interval excludes zero."""
    found, sides_of = [], collected(measured)
    for row, split, block in sides_of:
        kind, _, variant = row.partition("-")
        for title, ours, theirs in COMPARISONS:
            if variant == ours and (f"{kind}-{theirs}", split, block) in sides_of:
                one, other = sides_of[row, split, block], sides_of[f"{kind}-{theirs}", split, block]
                found.append(
                    {"comparison": f"{kind}: {title}", "split": split, "block": block, **_difference(one, other)}
                )
    return found


def _difference(one: tuple[list[int], Sides], other: tuple[list[int], Sides]) -> dict:
    common = [seed for seed in one[0] if seed in other[0]]
    (ours, theirs) = (
        [sides[name][[seeds.index(seed) for seed in common]] for name in ("tokens", "passes")]
        for seeds, sides in (one, other)
    )
    figure = crossed_difference(*ours, *theirs)
    apart = figure["low"] is not None and (figure["low"] > 0 or figure["high"] < 0)
    return {"seeds": common, "accepted_length": figure, "differs": apart}


def best(records: Iterable[dict], split: str) -> dict | None:
    """The row with the most tokens per pass on a split, at any block; None if there is none."""
    rows = [record for record in records if record["split"] == split]
    if not rows:
        return None
    found = max(rows, key=lambda record: record["accepted_length"]["mean"])
    return {name: found[name] for name in ("row", "block", "accepted_length", "measured")}
