"""Compares this implementation of the target with reference numbers, array by array.

Works on any folder laid out as `golden/alpamayo_A` (a checkpoint in the released layout, its inputs, and the
reference's results at every stage) or as `golden/drafts_A` (a target, drafts, and the reference's results for them).
Each stage is computed by the same code that trains and drives (PyTorch, float32), from the stage's own inputs, so that
an error shows where it arises. Knows no other layout, and not how a stage is computed (`golden_stages.py`,
`golden_drafts.py`).

    ./specdrive golden test/golden/alpamayo_A
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from specdrive_ros.errors import InputError
from specdrive_ros.evaluation import golden_drafts, golden_stages
from specdrive_ros.evaluation.golden_drafts_reference import DraftReference
from specdrive_ros.evaluation.golden_reference import Reference
from specdrive_ros.evaluation.golden_stages import EXACT, Outcome

KNOWN_LAYOUTS = (
    "alpamayo (as golden/alpamayo_A: checkpoint/, backbone/, inputs.npz, expected_*.npz, meta.json)",
    "drafts (as golden/drafts_A: PARAMS.json, target/, eagle3/, dflash/)",
)

STAGES = {
    "inputs": golden_stages.recompute_inputs,
    "expected_history_tokens": golden_stages.recompute_history_tokens,
    "expected_vision": golden_stages.recompute_vision,
    "expected_prefill": golden_stages.recompute_prefill,
    "expected_greedy": golden_stages.recompute_greedy,
    "expected_kv": golden_stages.recompute_key_values,
    "expected_action": golden_stages.recompute_action,
    "expected_sampled": golden_stages.recompute_sampled,
    "expected_edge": golden_stages.recompute_edge,
    "expected_unicycle": golden_stages.recompute_unicycle,
}
# Names of inputs: not compared if a stage does not compute them.
GIVEN = frozenset((
    "images", "camera_indices", "ego_history_xyz", "ego_history_rot", "noise", "noise3", "x_probe", "t_probe",
    "case_names", "xyz", "logit_positions", "seed", "max_new_tokens", "history_xyz", "history_rot",
    "future_xyz", "future_rot", "act_names", "act_action", "act_history_xyz", "act_history_rot",
    "sequences_raw",
))  # fmt: skip


@dataclass(frozen=True)
class Comparison:
    """One array: largest absolute error, its tolerance, and a note."""

    array: str
    error: float
    tolerance: float
    note: str = ""

    @property
    def passed(self) -> bool:
        return self.error <= self.tolerance


def compare_folder(folder: str | Path) -> list[Comparison]:
    """Compares every array of a golden folder, stage by stage. Raises `InputError` for a folder of another layout."""
    folder, holds_drafts = Path(folder), (Path(folder) / "PARAMS.json").is_file()
    check = check_draft_layout if holds_drafts else check_layout
    check(folder)
    try:
        return _compare_drafts(DraftReference(folder)) if holds_drafts else _compare_all(Reference(folder))
    except KeyError as error:
        raise InputError(
            f"{folder}: {error} is missing from its arrays or settings; copy the folder again"
        ) from error


def _compare_all(reference: Reference) -> list[Comparison]:
    comparisons = [
        compare("meta/prompt_text", str(reference.meta["prompt_text"]), reference.prompt_text, EXACT),
        compare("special_tokens/ids", *reference.special_token_ids(), EXACT),
    ]
    for file, stage in STAGES.items():
        if reference.has(file):
            comparisons += compare_stage(file, reference.arrays(file), stage(reference))
    return comparisons


def _compare_drafts(reference: DraftReference) -> list[Comparison]:
    comparisons = []
    for pattern, stage in golden_drafts.STAGES.items():
        for file in reference.files(pattern):
            comparisons += compare_stage(file, reference.arrays(file), stage(reference, file), golden_drafts.GIVEN)
    return comparisons


def check_draft_layout(folder: Path) -> Path:
    """The folder, if it has a target and arrays of drafts. Raises InputError otherwise."""
    if not (folder / "target" / "config.json").is_file() or not any(
        any(folder.glob(f"{pattern}.safetensors")) for pattern in golden_drafts.STAGES
    ):
        raise InputError(
            f"{folder}: unknown layout, it has no target/config.json or no arrays of drafts; known are: "
            f"{'; '.join(KNOWN_LAYOUTS)}"
        )
    return folder


def check_layout(folder: Path) -> Path:
    """The folder, if its layout is known. Raises InputError otherwise."""
    if not folder.is_dir():
        raise InputError(
            f"{folder} is no folder; it must be laid out as one of: {'; '.join(KNOWN_LAYOUTS)}"
        )
    needed = ("checkpoint/config.json", "inputs.npz", "meta.json", "special_tokens.json")
    missing = [name for name in needed if not (folder / name).is_file()]
    if missing or not any((folder / f"{file}.npz").is_file() for file in STAGES if file != "inputs"):
        lacks = ", ".join(missing) or "expected_*.npz"
        raise InputError(
            f"{folder}: unknown layout, it has no {lacks}; known are: {'; '.join(KNOWN_LAYOUTS)}"
        )
    return folder


def compare_stage(
    file: str, expected: dict[str, np.ndarray], ours: Outcome, given: frozenset[str] = GIVEN
) -> list[Comparison]:
    """One comparison for every array of a file that is a result; inputs are not compared with themselves."""
    comparisons = []
    for name, array in expected.items():
        if name in ours:
            comparisons.append(compare(f"{file}/{name}", array, *ours[name]))
        elif name.rpartition(".")[2].rpartition("/")[2] not in given:
            comparisons.append(Comparison(f"{file}/{name}", 0.0, 0.0, "not compared: no such array is known"))
    return comparisons


def compare(name: str, expected: object, ours: object, tolerance: float) -> Comparison:
    """Texts are equal or not; numbers must have the same shape and be finite in the same places."""
    expected, ours = np.asarray(expected), np.asarray(ours)
    if expected.shape != ours.shape:
        return Comparison(
            name, np.inf, tolerance, f"shape {list(ours.shape)} must be {list(expected.shape)}"
        )
    if expected.dtype.kind in "USO" or ours.dtype.kind in "USO":
        different = int(np.sum(expected.astype(str) != ours.astype(str)))
        return Comparison(name, float(different), tolerance, f"{different} texts differ" if different else "")
    expected, ours = expected.astype(np.float64), ours.astype(np.float64)
    finite = np.isfinite(expected) & np.isfinite(ours)
    odd = ~finite & ~((expected == ours) | (np.isnan(expected) & np.isnan(ours)))
    if odd.any():
        return Comparison(
            name, np.inf, tolerance, f"{int(odd.sum())} values are finite in one and not in the other"
        )
    return Comparison(name, float(np.abs(expected[finite] - ours[finite]).max(initial=0.0)), tolerance)
