"""What the target would choose at each place of a given answer (teacher forcing), in one pass.

Used to find where a choice depends on what was perceived: the same answer after another prompt.
"""

import numpy as np

from specdrive_ros.decoding.choice import greedy
from specdrive_ros.decoding.rules import ReasoningRules
from specdrive_ros.decoding.state import DecodingState
from specdrive_ros.runtime.networks import TargetNetworks
from specdrive_ros.target.rope import text_positions


def forced_logits(networks: TargetNetworks, state: DecodingState, token_ids: tuple[int, ...]) -> np.ndarray:
    """[n, vocabulary] logits at each place k of `token_ids`, given the prompt in `state` and the answer before k.

    The state's cache is then longer by all but the last of the answer's rows.
    """
    forced = np.asarray(token_ids[:-1], np.int64)
    if not len(forced):
        return state.logits[None]
    positions = text_positions(state.cache.length, len(forced), state.rope_delta)
    return np.vstack([state.logits[None], networks.extend(networks.embed(forced), positions, state.cache).logits])


def greedy_choices(
    networks: TargetNetworks, rules: ReasoningRules, state: DecodingState, token_ids: tuple[int, ...]
) -> list[int]:
    """The greedy choice at each place, of what may be written."""
    return [greedy(rules.allowed(row)) for row in forced_logits(networks, state, token_ids)]
