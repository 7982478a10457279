"""What a runtime must offer for a draft: its networks as passes over NumPy arrays.

`torch_drafts.py` (the reference), `onnx_drafts.py` (the embedded default) and `tensorrt_drafts.py` implement it.
Float32, no batch axis. If a target keeps hidden states on a device, `taps` and `hidden` are `DeviceStates`; past and
new are rows of the draft's cache, wherever it lies. Sizes: T rows of a pass, S rows before, A accepted tokens, B slots
of a block, L layers, H key-value heads, D head size, E hidden size. `token_ids` [words] are the target's ids of the
draft's vocabulary, which logits are for.
"""

from collections.abc import Callable
from typing import Protocol

import numpy as np

from specdrive_ros.draft.config import DFlashConfig, Eagle3Config

Embed = Callable[[np.ndarray], np.ndarray]  # [T] ids -> [T, E]: the target's embedding


class Eagle3Networks(Protocol):
    """EAGLE-3's passes: `newest` over written tokens, `step` over its own guesses."""

    config: Eagle3Config
    token_ids: np.ndarray

    def newest(self, embeddings, taps, cos, sin, past, new) -> tuple[np.ndarray, np.ndarray]:
        """Takes in true tokens: embeddings [T, E], taps [T, taps * E], cos/sin [T, D]; past [1, S, 2, H, D] is read,
        new [1, T, 2, H, D] is written. Returns hidden [1, E] and logits [1, words] of the last row."""

    def step(self, embeddings, hidden, cos, sin, mask, past, new) -> tuple[np.ndarray, np.ndarray]:
        """Runs ahead: embeddings and hidden [T, E], additive mask [T, S + T]. Returns hidden [T, E] and logits
        [T, words]."""


class DFlashNetworks(Protocol):
    """DFlash's passes: `inject` the target's states, `fill` a block."""

    config: DFlashConfig
    token_ids: np.ndarray

    def inject(self, taps, cos, sin, new) -> None:
        """Takes in true tokens: taps [A, taps * E], cos/sin [A, D]; new [L, A, 2, H, D] is written."""

    def fill(self, embeddings, cos, sin, past) -> np.ndarray:
        """Fills a block: embeddings [B, E], cos/sin [B, D], past [L, S, 2, H, D] -> logits [B, words]."""
