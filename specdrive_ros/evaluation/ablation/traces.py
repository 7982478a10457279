"""A prompt and the target's own answer in the form that drafts are trained on: tokens, positions, states of every row.

Made with the driving path's networks, so that held-out prompts need no training data. Gives PyTorch tensors.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from specdrive_ros.cycle import Planner
from specdrive_ros.decoding.autoregressive import AutoregressiveDecoder
from specdrive_ros.draft.taps import TapSelection
from specdrive_ros.evaluation.ablation.measuring import Start
from specdrive_ros.evaluation.looking.samples import HeldOutSample
from specdrive_ros.target.rope import text_positions

VISION, HISTORY, PROMPT_TEXT, WRITTEN, AHEAD = range(5)
SOURCES = ("vision", "history", "prompt text", "written", "ahead")  # ahead: the draft's own rows beyond the true tokens


@dataclass(frozen=True)
class Trace:
    """sources: [S] index into `SOURCES` for each row; taps: [S, given * E] of the networks' tap layers."""

    sample: HeldOutSample
    answer: tuple[int, ...]
    token_ids: np.ndarray
    positions: np.ndarray
    taps: np.ndarray
    sources: np.ndarray

    def batch(self, select: TapSelection) -> dict[str, Tensor]:
        """The same as `DraftFeatures.batch`, for this one trace."""
        size = len(self.token_ids)
        written = torch.arange(size) >= size - len(self.answer)
        return {
            "token_ids": torch.from_numpy(self.token_ids)[None],
            "loss_mask": written.to(torch.uint8)[None],
            "visible": torch.ones(1, size, dtype=torch.bool),
            "taps": torch.from_numpy(select(self.taps))[None],
            "positions": torch.from_numpy(self.positions)[:, None],
        }


def trace(planner: Planner, sample: HeldOutSample) -> Trace:
    planner.decoder = AutoregressiveDecoder(planner.networks, planner.rules)
    start = Start(planner, sample)
    answer = planner.decoder.decode(start.fresh()).token_ids
    state = start.fresh()
    behind = text_positions(start.length, len(answer), state.rope_delta)
    output = planner.networks.extend(planner.networks.embed(np.asarray(answer)), behind, state.cache)
    ids = np.concatenate([state.prompt_ids, answer]).astype(np.int64)
    return Trace(
        sample,
        answer,
        ids,
        np.concatenate([state.positions, behind], axis=1),
        np.concatenate([state.taps, output.taps]),
        sources_of(planner, ids, start.length),
    )


def sources_of(planner: Planner, token_ids: np.ndarray, prompt: int) -> np.ndarray:
    sources = np.where(np.arange(len(token_ids)) < prompt, PROMPT_TEXT, WRITTEN)
    of_prompt = np.arange(len(token_ids)) < prompt
    sources[of_prompt & (token_ids == planner.tokenizer.ids["image_pad"])] = VISION
    sources[of_prompt & planner.tokenizer.is_history_token(token_ids)] = HISTORY
    return sources
