"""What decoding starts from and what it leaves: the target's state after the prompt, and the reasoning.

Knows no strategy: plain decoding and speculation read and leave the same.
"""

from dataclasses import dataclass, field

import numpy as np

from specdrive_ros.runtime.networks import KeyValueCache


@dataclass
class DecodingState:
    """The target after the tokens whose keys and values are in `cache`.

    logits:     [vocabulary], what follows the newest token
    taps:       [T, n_taps E] of the newest pass, for drafts
    rope_delta: what to add to a token's cache slot to get its position
    """

    cache: KeyValueCache
    logits: np.ndarray
    taps: np.ndarray
    rope_delta: int


@dataclass(frozen=True)
class Reasoning:
    """The chain of causation as the target wrote it; the cache ends with the row of the last token.

    token_ids:     all that was written, `<|cot_end|>` and `<|traj_future_start|>` included
    truncated:     it was closed before the target ended it
    target_passes: passes of the target, prefill not counted
    stage_ms:      milliseconds of `draft` and `verify`
    """

    token_ids: tuple[int, ...]
    truncated: bool
    target_passes: int
    stage_ms: dict[str, float] = field(default_factory=dict)
