"""A target of twelve words whose logits depend on every row a token may look at, and on where each row stands.

Every key row is (token, position). So a wrong mask, position or kept row changes what is written.
"""

import numpy as np

from specdrive_ros.decoding.rules import ReasoningRules
from specdrive_ros.decoding.state import DecodingState
from specdrive_ros.runtime.networks import KeyValueCache, TextOutput

WORDS, COT_END, FUTURE_START, END_OF_TURN, BIN = 8, 8, 9, 10, 11
VOCABULARY, POSITIONS = 12, 96
PROMPT = np.array([3, 1, 2])


class ToyTarget:
    chooses = False

    def __init__(self, seed: int = 0, sharpness: float = 3.0):
        table = np.random.default_rng(seed).standard_normal((VOCABULARY, POSITIONS, VOCABULARY))
        self.table = sharpness * table
        self.table[..., END_OF_TURN] -= 2.0  # turns end seldom
        self.passes: list[int] = []

    def embed(self, token_ids):
        return np.asarray(token_ids, np.float32)[:, None]

    def new_cache(self, capacity):
        return KeyValueCache(1, 1, 2, capacity)

    def extend(
        self, embeddings, position_ids, cache, *, mask=None, deepstack=None, logit_rows=None, forbidden=None, taps=True
    ):
        tokens, cached = len(embeddings), cache.length
        new = np.stack([embeddings[:, 0], position_ids[0].astype(np.float32)], -1)
        cache.append(np.broadcast_to(new[None, :, None, None], (1, tokens, 2, 1, 2)))
        if mask is None:
            mask = np.tri(tokens, cached + tokens, cached, dtype=bool)
        seen = cache.rows[0, : cached + tokens, 0, 0].astype(np.int64)
        scores = self.table[seen[:, 0], seen[:, 1]]
        logits = (mask @ scores) / np.sqrt(mask.sum(1, keepdims=True))
        self.passes.append(tokens)
        logits = logits[slice(None) if logit_rows is None else logit_rows].astype(np.float32)
        if forbidden is None:
            return TextOutput(logits, new)
        return TextOutput(None, new, np.where(forbidden, -np.inf, logits).argmax(-1))


class ChoosingTarget(ToyTarget):
    """The same target where it chooses by itself and logits are never seen."""

    chooses = True


def toy_rules(limit: int = 24) -> ReasoningRules:
    forbidden = np.zeros(VOCABULARY, bool)
    forbidden[BIN] = True
    return ReasoningRules(forbidden, COT_END, FUTURE_START, END_OF_TURN, limit)


def toy_state(target: ToyTarget, room: int = 60, rope_delta: int = 2) -> DecodingState:
    """The target after the prompt."""
    cache = target.new_cache(len(PROMPT) + room)
    positions = np.broadcast_to(np.arange(len(PROMPT)) + rope_delta, (3, len(PROMPT))).copy()
    output = target.extend(target.embed(PROMPT), positions, cache)
    return DecodingState(cache, output.logits[-1], output.taps, rope_delta, PROMPT, positions)
