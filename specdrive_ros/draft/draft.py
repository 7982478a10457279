"""The interface of a draft (routine reasoner): it proposes how the reasoning continues, and the target decides.

A draft is asked once before each pass of the target. Whatever it answers, raises or claims, the reasoning stays the
target's own: a bad proposal only costs time. Knows neither networks nor the decoding loop.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from specdrive_ros.decoding.token_tree import TokenTree


@dataclass(frozen=True)
class DraftContext:
    """What a draft may read before a pass, for one car; arrays are read-only.

    The newest token is the target's own choice and is not in the cache yet: it runs in the same pass as the tree, as
    the tree's root. So the tapped states end with the token before it; over all proposals of a prompt, the taps add up
    to the rows of the prompt and of `written[:-1]`, each once and in order.

    prompt_ids:   [P] ids of the prompt
    written:      the reasoning so far; the last one is the newest token
    newest_token: the root of the tree to propose
    taps:         [A, n_taps * E] hidden states of the rows accepted since the last proposal (for the first one, the
                  whole prompt and what was accepted of a text that rode along with it); tap k is the state that
                  enters layer tap_layers[k] of the target
    positions:    [3, A] M-RoPE positions of those rows, as the target sees them. The newest token's is
                  positions[:, -1].max() + 1 on all three axes, and a node's is its depth more.
    rope_delta:   position of a token minus its index in prompt and reasoning
    previous:     the previous cycle's reasoning, with its closing tokens; () if there is none
    """

    prompt_ids: np.ndarray
    written: tuple[int, ...]
    newest_token: int
    taps: np.ndarray
    positions: np.ndarray
    rope_delta: int
    previous: tuple[int, ...] = ()


class Draft(Protocol):
    """A routine reasoner. One instance serves one car, by one thread at a time.

    reads_taps: whether it reads hidden states, True if left out; if False, it gets none where providing them is costly
    """

    name: str
    reads_taps: bool

    def begin(self) -> None:
        """A new prompt begins: forget what was read of the previous one."""

    def propose(self, context: DraftContext, nodes: int) -> TokenTree:
        """A tree of at most `nodes` continuations of the newest token; an empty one is fine.

        Called once before every pass. If `nodes` is 0, the draft only takes note of the context.
        """
