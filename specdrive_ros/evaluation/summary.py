"""summary.json: the numbers of a drive or a replay, as fixed by the contract.

Builds each part of the document from plain rows, checks the whole against the table of names and types below, and
writes it. Knows nothing about where the rows come from.
"""

import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from specdrive_ros.atomic_file import atomic_write
from specdrive_ros.decoding.statistics import accepted_length, routine_share
from specdrive_ros.errors import InputError, WorkFailed
from specdrive_ros.plan import Plan
from specdrive_ros.quantiles import PERCENT, quantiles

VERSION = 1
LATENCY_STAGES = (
    "total",
    "wait",
    "decode",
    "vision",
    "prefill",
    "draft",
    "verify",
    "action",
    "check",
    "publish",
)
OUTCOMES = ("success", "collision", "red_light", "stop_sign", "off_road", "timeout")
ERROR_HORIZONS = ("1s", "3s", "6.4s")

_COUNT, _NUMBER, _TEXT = "a count (integer, 0 or more)", "a number", "text"
_NUMBER_OR_NULL = "a number, or null where nothing could be judged"
_LATENCY = {name: _NUMBER for name in PERCENT}
_HORIZONS = {horizon: _NUMBER_OR_NULL for horizon in ERROR_HORIZONS}
REQUIRED_PARTS = {
    "version": _COUNT,
    "model": _TEXT,
    "runtime": _TEXT,
    "draft": _TEXT,
    "seed": _COUNT,
    "cycles": {
        "observed": _COUNT,
        "planned": _COUNT,
        "late": _COUNT,
        "fallback": {"republished": _COUNT, "stop": _COUNT},
        "dropped": _COUNT,
    },
    "latency_ms": {stage: _LATENCY for stage in LATENCY_STAGES},
    "reasoning": {
        "tokens": _COUNT,
        "target_passes": _COUNT,
        "accepted_length": _NUMBER,
        "routine_share": _NUMBER,
        "truncated": _COUNT,
    },
    "inputs": {"frames": _COUNT, "odometry": _COUNT, "rejected": {}},
}
SCENARIO_PART = {"name": _TEXT, "seed": _COUNT, "outcome": _TEXT, "distance_m": _NUMBER, "why": _TEXT}
TRAJECTORY_PART = {
    "ade_m": _HORIZONS,
    "fde_m": _HORIZONS,
    "constant_velocity_ade_m": _HORIZONS,
    "evaluated": _COUNT,
}


def latency_summary(rows: Sequence[Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Quantiles per stage.

    rows: one mapping per cycle, stage of `LATENCY_STAGES` -> milliseconds. A cycle without a stage is left out of that
    stage's quantiles; a stage that no cycle has is all zero.
    """
    by_stage = {stage: [row[stage] for row in rows if stage in row] or [0.0] for stage in LATENCY_STAGES}
    return {stage: quantiles(values_ms, tuple(PERCENT), digits=3) for stage, values_ms in by_stage.items()}


def reasoning_summary(plans: Iterable[Plan]) -> dict[str, float]:
    """Token and pass counts, accepted length and routine share over all plans, as `decoding/statistics.py` defines
    them."""
    plans = list(plans)
    tokens = sum(len(plan.token_ids) for plan in plans)
    passes = sum(plan.target_passes for plan in plans)
    return {
        "tokens": tokens,
        "target_passes": passes,
        "accepted_length": round(accepted_length(tokens, passes, len(plans)), 4),
        "routine_share": round(routine_share(tokens, passes), 4),
        "truncated": sum(plan.truncated for plan in plans),
    }


def cycles_summary(
    *, observed: int, planned: int, late: int = 0, republished: int = 0, stop: int = 0, dropped: int = 0
) -> dict:
    """Counts of cycles: of `observed` complete observations, `planned` led to a plan of the model."""
    return {
        "observed": observed,
        "planned": planned,
        "late": late,
        "fallback": {"republished": republished, "stop": stop},
        "dropped": dropped,
    }


def inputs_summary(
    *,
    frames: int,
    odometry: int,
    rejected: Mapping[str, int] | None = None,
    rejected_by_input: Mapping[str, Mapping[str, int]] | None = None,
) -> dict:
    """Counts of messages received; `rejected` maps a reason to the number of messages refused for it.

    rejected_by_input: the same per input; `rejected` is then their sum. Left out of the document if None.
    """
    counted = {"frames": frames, "odometry": odometry}
    if rejected_by_input is None:
        return counted | {"rejected": dict(sorted((rejected or {}).items()))}
    total = sum((Counter(reasons) for reasons in rejected_by_input.values()), Counter())
    inputs = {name: dict(sorted(reasons.items())) for name, reasons in sorted(rejected_by_input.items())}
    return counted | {"rejected": dict(sorted(total.items())), "rejected_by_input": inputs}


def build_summary(
    *,
    model: str,
    runtime: str,
    draft: str,
    seed: int,
    cycles: dict,
    latency_ms: dict,
    reasoning: dict,
    inputs: dict,
    scenarios: list[dict] | None = None,
    trajectory: dict | None = None,
) -> dict:
    """The document in the contract's order. `scenarios` for a drive, `trajectory` for a replay."""
    summary = {
        "version": VERSION,
        "model": model,
        "runtime": runtime,
        "draft": draft,
        "seed": seed,
        "cycles": cycles,
        "latency_ms": latency_ms,
        "reasoning": reasoning,
    }
    if scenarios is not None:
        summary["scenarios"] = scenarios
    if trajectory is not None:
        summary["trajectory"] = trajectory
    summary["inputs"] = inputs
    return summary


def validate_summary(summary: Mapping) -> None:
    """Raises WorkFailed naming the first key that is missing or has a wrong type or value."""
    _check(summary, REQUIRED_PARTS, "summary")
    if summary["version"] != VERSION:
        raise WorkFailed(f"summary.version: {summary['version']}; this program writes {VERSION}")
    for reason, count in summary["inputs"]["rejected"].items():
        _check(count, _COUNT, f"summary.inputs.rejected[{reason!r}]")
    for name, reasons in summary["inputs"].get("rejected_by_input", {}).items():
        for reason, count in reasons.items():
            _check(count, _COUNT, f"summary.inputs.rejected_by_input[{name!r}][{reason!r}]")
    for index, scenario in enumerate(summary.get("scenarios", ())):
        _check(scenario, SCENARIO_PART, f"summary.scenarios[{index}]")
        _check_outcome(scenario["outcome"], f"summary.scenarios[{index}].outcome")
    if "trajectory" in summary:
        _check(summary["trajectory"], TRAJECTORY_PART, "summary.trajectory")


def _check_outcome(outcome: str, where: str) -> None:
    if outcome not in OUTCOMES:
        raise WorkFailed(f"{where}: {outcome!r}; must be one of {', '.join(OUTCOMES)}")


def _check(value, rule, where: str) -> None:
    if isinstance(rule, dict):
        _check_mapping(value, rule, where)
    elif not _fits(value, rule):
        raise WorkFailed(f"{where}: {value!r}; must be {rule}")


def _check_mapping(value, rules: dict, where: str) -> None:
    if not isinstance(value, Mapping):
        raise WorkFailed(f"{where}: {value!r}; must be an object")
    for name, rule in rules.items():
        if name not in value:
            raise WorkFailed(f"{where}.{name}: missing")
        _check(value[name], rule, f"{where}.{name}")


def _fits(value, rule: str) -> bool:
    if isinstance(value, bool):
        return False
    if rule == _TEXT:
        return isinstance(value, str)
    if rule == _COUNT:
        return isinstance(value, int) and value >= 0
    if rule == _NUMBER_OR_NULL and value is None:
        return True
    return isinstance(value, (int, float)) and bool(np.isfinite(value))


def summary_text(summary: Mapping) -> str:
    """JSON with keys in the contract's order; the same numbers always give the same bytes. Raises WorkFailed if
    invalid."""
    validate_summary(summary)
    return json.dumps(summary, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def write_summary(path: Path, summary: Mapping) -> None:
    """Checks the document, then replaces `path` in one step."""
    text = summary_text(summary)
    with atomic_write(Path(path)) as unfinished:
        unfinished.write_text(text, encoding="utf-8")


def prepare_out_file(path: Path) -> Path:
    """Checks that a file can be written, leaving an existing one as it is. Raises InputError if not."""
    path = Path(path)
    prepare_out_folder(path.parent)
    if path.is_dir() or path.exists() and not os.access(path, os.W_OK):
        raise InputError(f"cannot write to --out {path}; name a file you may write to")
    return path


def prepare_out_folder(folder: Path, option: str = "--out") -> Path:
    """Makes the folder and checks that files can be written there. Raises InputError naming the option if not."""
    folder = Path(folder)
    probe = folder / ".specdrive-write-test"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        raise InputError(
            f"cannot write to {option} {folder}: {error.strerror or error}; name a folder you may write to"
        ) from error
    return folder
