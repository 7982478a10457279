"""What is computed from a cell's network itself: where it attends, and which tokens it gets right. Kept per cell."""

import json
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from specdrive_ros.draft.checkpoint import load_draft_network
from specdrive_ros.draft.config import DFlashConfig
from specdrive_ros.draft.taps import TapSelection
from specdrive_ros.evaluation.ablation.attention import attention_figures
from specdrive_ros.evaluation.ablation.cells import Cell
from specdrive_ros.evaluation.ablation.tokens import (
    NEEDS,
    TokensRight,
    routine_less_vision,
    token_figures,
    tokens_right,
)
from specdrive_ros.evaluation.ablation.traces import Trace
from specdrive_ros.target.config import TextConfig
from specdrive_ros.training.aarl_policy import make_policy
from specdrive_ros.training.frozen_target import FrozenTarget

LOOKED = "looked.json"


def look_at(
    folder: Path, text: TextConfig, target: FrozenTarget, given: tuple[int, ...], traces: Sequence[Trace], block: int
) -> dict:
    """Attention and right tokens of the draft in a folder; given: tap layers of the networks that made the traces."""
    draft = load_draft_network(folder, text)
    policy, ahead = make_policy(draft, target), block - 1
    if isinstance(draft.config, DFlashConfig):
        ahead = min(ahead, draft.config.block_size - 1)
    select = TapSelection(draft.config.tap_layers, given, draft.config.hidden_size, str(folder))
    right = [tokens_right(policy, each, select, ahead) for each in traces]
    return {
        "attention": attention_figures(policy, traces, select, ahead),
        "first": [each.first.astype(int).tolist() for each in right],
        "supplied": [each.supplied.astype(int).tolist() for each in right],
    }


def write_looked(path: Path, asked: dict, found: dict) -> None:
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(json.dumps({"asked": asked, **found}) + "\n", encoding="utf-8")
    os.replace(unfinished, path)


def read_looked(path: Path, asked: dict) -> dict | None:
    """None if there is none, or if it answers another question."""
    found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found if found.get("asked") == asked else None


def tokens_by_row(looked: dict[Cell, dict], needs: Sequence[dict[str, Sequence[bool]]]) -> dict[str, dict]:
    """The figures of `tokens.py` per row of the table, over its seeds."""
    where = [{need: np.array(each[need], bool) for need in NEEDS} for each in needs]
    rows: dict[str, dict[int, list[TokensRight]]] = {}
    for cell in sorted(looked):
        found = looked[cell]
        rows.setdefault(cell.row, {})[cell.seed] = [
            TokensRight(np.array(first, bool), np.array(given, bool))
            for first, given in zip(found["first"], found["supplied"])
        ]
    return {
        row: token_figures(right, where) | {"routine_less_vision": routine_less_vision(right, where)}
        for row, right in rows.items()
    }


def attention_by_row(looked: dict[Cell, dict]) -> dict[str, dict]:
    """Attention of each row's first seed."""
    found: dict[str, dict] = {}
    for cell in sorted(looked):
        found.setdefault(cell.row, {"seed": cell.seed, **looked[cell]["attention"]})
    return found


def frozen_target(folder: Path, forbidden: np.ndarray) -> tuple[FrozenTarget, TextConfig]:
    from specdrive_ros.target.checkpoint import load_target

    with torch.no_grad():
        network = load_target(folder)
        return FrozenTarget.of(network, forbidden), network.config.text
