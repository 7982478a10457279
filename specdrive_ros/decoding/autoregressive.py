"""Plain decoding: one pass of the target per token. What every other way of decoding must agree with."""

import time
from typing import Protocol

import numpy as np

from specdrive_ros.decoding.choice import Choose, greedy
from specdrive_ros.decoding.pace import UNHURRIED, Pace
from specdrive_ros.decoding.rules import ReasoningRules
from specdrive_ros.decoding.state import DecodingState, Reasoning
from specdrive_ros.runtime.networks import TargetNetworks
from specdrive_ros.target.rope import text_positions


class Decoder(Protocol):
    """Any way of writing a chain of causation.

    spare_rows: cache rows that a pass needs beyond those of the longest reasoning
    forbidden:  [vocabulary] bool if the networks are to choose greedily among the other tokens, in the prefill as well;
                None if logits are wanted
    reads_taps: whether the target's hidden states are read
    """

    spare_rows: int
    forbidden: np.ndarray | None
    reads_taps: bool

    def carried(self) -> tuple[int, ...]:
        """Tokens that should ride along after the prompt in the next prefill; `decode` verifies them."""

    def decode(self, state: DecodingState, pace: Pace = UNHURRIED) -> Reasoning:
        """Writes until `<|traj_future_start|>`, whose row is then the last in the cache."""

    def forget(self) -> None:
        """The scene has changed: nothing of earlier reasonings is carried on."""


class AutoregressiveDecoder:
    """One token a pass, or those that close the reasoning together. choose: from masked logits."""

    spare_rows, reads_taps = 0, False

    def __init__(self, networks: TargetNetworks, rules: ReasoningRules, choose: Choose = greedy):
        self.networks, self.rules, self.choose = networks, rules, choose
        self.forbidden = rules.forbidden if networks.chooses and choose is greedy else None

    def carried(self) -> tuple[int, ...]:
        return ()

    def forget(self) -> None:
        """There is nothing to forget."""

    def decode(self, state: DecodingState, pace: Pace = UNHURRIED) -> Reasoning:
        written, truncated, passes, begun = [], False, 0, time.perf_counter()
        while not self.rules.ended(written):
            tokens, forced = self._next(state, written, pace)
            pass_begun = time.perf_counter()
            extend(self.networks, state, tokens, self.forbidden)
            pace.note_pass(len(tokens), 1000 * (time.perf_counter() - pass_begun))
            written += tokens
            truncated |= forced
            passes += 1
        stage_ms = {"draft": 0.0, "verify": 1000 * (time.perf_counter() - begun)}
        return Reasoning(tuple(written), truncated, passes, stage_ms)

    def _next(self, state: DecodingState, written: list[int], pace: Pace) -> tuple[list[int], bool]:
        """The tokens to write next and whether they were forced."""
        if pace.must_close():
            return self.rules.closing(written), True
        choice = self.choose(self.rules.allowed(state.logits)) if state.choice is None else state.choice
        return self.rules.settle(choice, written)


def extend(
    networks: TargetNetworks, state: DecodingState, token_ids: list[int], forbidden: np.ndarray | None = None
) -> None:
    """Runs tokens through the target in one pass; the state is then that after the last of them.

    forbidden: the state then has the greedy choice among the other tokens instead of logits, and no usable taps.
    """
    positions = text_positions(state.cache.length, len(token_ids), state.rope_delta)
    output = networks.extend(
        networks.embed(np.asarray(token_ids)),
        positions,
        state.cache,
        logit_rows=np.array([len(token_ids) - 1]),
        forbidden=forbidden,
        taps=False,
    )
    state.follow(output.logits, output.choices, 0)
    state.taps = output.taps
