"""What a runtime must offer: the target's three networks and its key-value cache.

The planner and the decoding loop know only this file; `torch_networks.py` (the reference), `onnx_networks.py` (the
embedded default) and `tensorrt_networks.py` implement it. Arrays are NumPy, float32, without a batch axis: one car,
one prompt. Sizes: T tokens of a pass, S cached tokens, V image tokens, L layers, H key-value heads, D head size, E
hidden size.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from specdrive_ros.target.config import TargetConfig

if TYPE_CHECKING:
    from specdrive_ros.runtime.device_states import DeviceStates


@dataclass(frozen=True)
class VisionFeatures:
    """Image tokens ready for the text model. A runtime may have a class of its own that keeps them on a device.

    embeddings: [V, E], take the rows of the image placeholders.
    deepstack:  [K, V, E], added to the outputs of text layers 0 … K-1 at the same rows.
    """

    embeddings: np.ndarray
    deepstack: np.ndarray

    def split(self, tokens: Sequence[int]) -> list["VisionFeatures"]:
        """One object per image; `tokens` gives the number of image tokens of each."""
        ends = np.cumsum(tokens)[:-1]
        pairs = zip(np.split(self.embeddings, ends), np.split(self.deepstack, ends, axis=1), strict=True)
        return [VisionFeatures(*pair) for pair in pairs]

    def followed_by(self, others: Sequence["VisionFeatures"]) -> "VisionFeatures":
        """These image tokens followed by those of `others`."""
        parts = [self, *others]
        return VisionFeatures(
            np.concatenate([part.embeddings for part in parts]),
            np.concatenate([part.deepstack for part in parts], axis=1),
        )


@dataclass(frozen=True)
class ImageRows:
    """Image tokens of a pass. rows: [V], ascending; features: from `TargetNetworks.encode_images`."""

    rows: np.ndarray
    features: VisionFeatures


@dataclass(frozen=True)
class TextOutput:
    """Output of one pass of the text model.

    logits:  [R, vocabulary], of the requested rows; None if choices were requested.
    taps:    [T, n_taps * E], hidden states that drafts read (`tap_layers` of the networks); [T, 0] if choices were
             requested without them and keeping them costs something. A runtime may have a class of its own that leaves
             them on a device (`device_states.py`).
    choices: [R], the token with the largest logit among those allowed, the first of equal ones; None if logits were
             requested.
    """

    logits: np.ndarray | None
    taps: "np.ndarray | DeviceStates"
    choices: np.ndarray | None = None


class KeyValueCache:
    """Keys and values of the accepted tokens, after q/k-norm and rotary embedding.

    rows: [L, capacity, 2, H, D]; `rows[layer, :length]` is contiguous, so a runtime can bind it without a copy. A pass
    appends its rows; `keep` compacts a tree's accepted rows; `truncate` drops the newest.
    """

    def __init__(self, layers: int, heads: int, head_size: int, capacity: int):
        self.rows = np.zeros((layers, capacity, 2, heads, head_size), np.float32)
        self.length = 0

    @property
    def capacity(self) -> int:
        return self.rows.shape[1]

    def past(self, length: int) -> np.ndarray:
        """The first `length` rows of every layer, for reading."""
        return self.rows[:, :length]

    def reserve(self, tokens: int) -> np.ndarray:
        """The rows [L, tokens, 2, H, D] after the cached ones, for writing; `advance` makes them part of the cache.

        Raises ValueError if the capacity would be exceeded.
        """
        end = self.length + tokens
        if end > self.capacity:
            raise ValueError(f"key-value cache: {end} tokens do not fit a capacity of {self.capacity}")
        return self.rows[:, self.length : end]

    def advance(self, tokens: int) -> None:
        self.length += tokens

    def append(self, new_rows: np.ndarray) -> None:
        """new_rows: [L, T, 2, H, D]. Raises ValueError if the capacity would be exceeded."""
        self.reserve(new_rows.shape[1])[:] = new_rows
        self.advance(new_rows.shape[1])

    def keep(self, start: int, accepted: np.ndarray) -> None:
        """Of the rows from `start` on, keeps only those at the offsets `accepted`, in that order."""
        accepted = np.asarray(accepted, np.int64)
        if len(accepted):
            self.rows[:, start : start + len(accepted)] = self.rows[:, start + accepted]
        self.length = start + len(accepted)

    def truncate(self, length: int) -> None:
        if not 0 <= length <= self.length:
            raise ValueError(f"key-value cache: cannot truncate {self.length} tokens to {length}")
        self.length = length


class TargetNetworks(Protocol):
    """The unmodified target. One instance is used by one thread at a time."""

    runtime: str  # name of the runtime; drafts are loaded on the same one
    config: TargetConfig
    tap_layers: tuple[int, ...]  # tap k is the hidden state entering layer k, deepstack added; see draft/taps.py
    flow_steps: int  # Euler steps of `act`
    chooses: bool  # whether `extend` chooses tokens where the logits are; then request no more than is read

    def encode_images(self, patches: np.ndarray, grid_thw: np.ndarray) -> VisionFeatures:
        """patches: [P, 3*2*16*16] normalised pixels in merge-block order; grid_thw: [images, 3]."""

    def embed(self, token_ids: np.ndarray) -> np.ndarray:
        """[T] ids -> [T, E] embeddings."""

    def new_cache(self, capacity: int) -> KeyValueCache: ...

    def extend(
        self,
        embeddings: np.ndarray,
        position_ids: np.ndarray,
        cache: KeyValueCache,
        *,
        mask: np.ndarray | None = None,
        deepstack: np.ndarray | None = None,
        images: ImageRows | None = None,
        logit_rows: np.ndarray | None = None,
        forbidden: np.ndarray | None = None,
        taps: bool = True,
    ) -> TextOutput:
        """One pass over T new tokens; their keys and values are appended to the cache.

        embeddings:   [T, E]; with `images` [T - V, E], those of the other rows in their order
        position_ids: [3, T] int64 (time, height, width axes of M-RoPE)
        mask:         [T, S + T] bool, True where a row may attend; None is causal
        deepstack:    [K, T, E], zero at rows that are not image tokens; None is all zero
        images:       image tokens and their rows, instead of `deepstack`
        logit_rows:   rows whose logits are wanted; None is all of them
        forbidden:    [vocabulary] bool: return the greedy choice among the other tokens instead of logits
        taps:         with `forbidden`: whether the hidden states are read
        """

    def takes(self, tokens: int, cached: int, logit_rows: int) -> bool:
        """Whether `extend` has room for a pass of these sizes: engines are built for ranges of them."""

    def act(
        self,
        noise: np.ndarray,
        position_ids: np.ndarray,
        cache: KeyValueCache,
        *,
        visible: int,
        steps: int | None = None,
    ) -> np.ndarray:
        """Runs all Euler steps of the flow-matching head from `noise`.

        noise:        [64, 2] standard normal at flow time 0
        position_ids: [3, 64] int64
        visible:      number of cache rows the waypoints may see (the offset after `<|traj_future_start|>`)
        steps:        None is `flow_steps`; fewer are faster and coarser
        returns       [64, 2] normalised (acceleration, curvature) at flow time 1
        """
