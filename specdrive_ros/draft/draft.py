"""What a routine reasoner is: something that proposes how the reasoning goes on. The target decides.

A draft is asked once before each pass of the target. Whatever it answers, raises or claims, the reasoning stays the
target's own: a bad proposal only costs time. Knows neither networks nor the loop.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from specdrive_ros.decoding.token_tree import TokenTree


@dataclass(frozen=True)
class DraftContext:
    """What a draft may read before a pass; one car, arrays are read-only.

    The newest token is the target's own choice and is not in the cache yet: its row runs in the same pass as the
    tree, as the tree's root. So the tapped states end with the token before it: over all proposals of a prompt the
    taps add up to the prompt's rows and those of `written[:-1]`, each once and in order.

    prompt_ids:   [P] ids of the prompt
    written:      the reasoning so far; the last one is the newest token
    newest_token: the root of the tree to propose
    taps:         [A, n_taps * E] hidden states of the rows accepted since the last proposal (at first the whole
                  prompt and what was accepted of a text that rode along with it); tap k is the state that enters
                  layer tap_layers[k] of the target
    positions:    [3, A] M-RoPE positions of those rows, as the target sees them. The newest token's is
                  positions[:, -1].max() + 1 on all three axes, and a node's is its depth more.
    rope_delta:   position of a token minus its index in prompt and reasoning
    previous:     the reasoning of the cycle before, with its closing tokens; () where there is none
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

    reads_taps: may be left out, then it does; one that says it does not gets none where bringing them costs something
    """

    name: str
    reads_taps: bool

    def begin(self) -> None:
        """A new prompt: forget what was read of the one before."""

    def propose(self, context: DraftContext, nodes: int) -> TokenTree:
        """Continuations of the newest token, at most `nodes` of them; none is fine.

        Called once before every pass; `nodes` may be 0, then there is only the context to take note of.
        """
