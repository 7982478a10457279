"""What decoding starts from and what it produces: the target's state after the prompt, and the reasoning.

Independent of the strategy: plain and speculative decoding read and leave the same.
"""

from dataclasses import dataclass, field

import numpy as np

from specdrive_ros.decoding.token_tree import TokenTree
from specdrive_ros.runtime.networks import KeyValueCache


@dataclass(frozen=True)
class Carried:
    """Text that rode along after the prompt and has yet to be verified.

    tree:    of n tokens; their rows are the last n in the cache
    logits:  [n, vocabulary], for what follows each of them; None where the networks chose the tokens
    choices: [n], the tokens they chose
    """

    tree: TokenTree
    logits: np.ndarray | None
    choices: np.ndarray | None = None


@dataclass
class DecodingState:
    """The target after the tokens whose keys and values are in `cache`.

    logits:     [vocabulary], for what follows the newest token (with `carried`: the prompt); None where the networks
                chose the token
    taps:       [T, n_taps E] hidden states of the newest pass, for drafts
    rope_delta: added to a token's cache slot, gives its position
    prompt_ids: [P], for drafts
    positions:  [3, T] of the rows of `taps`, for drafts
    carried:    text after the prompt that has yet to be verified
    choice:     the target's greedy choice after the newest token, in place of `logits`
    """

    cache: KeyValueCache
    logits: np.ndarray | None
    taps: np.ndarray
    rope_delta: int
    prompt_ids: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    positions: np.ndarray = field(default_factory=lambda: np.zeros((3, 0), np.int64))
    carried: Carried | None = None
    choice: int | None = None

    def follow(self, logits: np.ndarray | None, choices: np.ndarray | None, row: int) -> None:
        """Takes what comes next from this row of a pass, which has either logits or choices."""
        self.logits = None if logits is None else logits[row]
        self.choice = None if choices is None else int(choices[row])


@dataclass(frozen=True)
class Reasoning:
    """The chain of causation as the target wrote it; the cache ends with the row of the last token.

    token_ids:     all that was written, `<|cot_end|>` and `<|traj_future_start|>` included
    truncated:     whether it was closed before the target ended it
    target_passes: passes of the target, not counting the prefill
    stage_ms:      milliseconds of `draft` and `verify`
    drafted:       accepted tokens by draft
    proposed:      nodes that drafts proposed, accepted or not
    draft_faults:  proposals that raised or were not a valid token tree
    """

    token_ids: tuple[int, ...]
    truncated: bool
    target_passes: int
    stage_ms: dict[str, float] = field(default_factory=dict)
    drafted: dict[str, int] = field(default_factory=dict)
    proposed: int = 0
    draft_faults: int = 0
