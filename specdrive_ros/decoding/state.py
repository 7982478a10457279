"""What decoding starts from and what it leaves: the target's state after the prompt, and the reasoning.

Knows no strategy: plain decoding and speculation read and leave the same.
"""

from dataclasses import dataclass, field

import numpy as np

from specdrive_ros.decoding.token_tree import TokenTree
from specdrive_ros.runtime.networks import KeyValueCache


@dataclass(frozen=True)
class Carried:
    """Text that rode along behind the prompt and waits for its verification.

    tree:    of n tokens; their rows are the last n in the cache
    logits:  [n, vocabulary], what follows each of them; None where the networks have chosen
    choices: [n], what they chose
    """

    tree: TokenTree
    logits: np.ndarray | None
    choices: np.ndarray | None = None


@dataclass
class DecodingState:
    """The target after the tokens whose keys and values are in `cache`.

    logits:     [vocabulary], what follows the newest token (with `carried`: the prompt); None where the networks
                have chosen
    taps:       [T, n_taps E] of the newest pass, for drafts
    rope_delta: what to add to a token's cache slot to get its position
    prompt_ids: [P], for drafts
    positions:  [3, T] of the rows of `taps`, for drafts
    carried:    text behind the prompt that is not verified yet
    choice:     the target's greedy choice behind the newest token, in place of `logits`
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
        """From here on that row of a pass says what comes next; it has logits or choices."""
        self.logits = None if logits is None else logits[row]
        self.choice = None if choices is None else int(choices[row])


@dataclass(frozen=True)
class Reasoning:
    """The chain of causation as the target wrote it; the cache ends with the row of the last token.

    token_ids:     all that was written, `<|cot_end|>` and `<|traj_future_start|>` included
    truncated:     it was closed before the target ended it
    target_passes: passes of the target, prefill not counted
    stage_ms:      milliseconds of `draft` and `verify`
    drafted:       accepted tokens by draft
    proposed:      nodes that drafts proposed, accepted or not
    draft_faults:  proposals that raised or were no token tree
    """

    token_ids: tuple[int, ...]
    truncated: bool
    target_passes: int
    stage_ms: dict[str, float] = field(default_factory=dict)
    drafted: dict[str, int] = field(default_factory=dict)
    proposed: int = 0
    draft_faults: int = 0
