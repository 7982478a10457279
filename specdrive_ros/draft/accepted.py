"""The tokens behind a draft's rows: what it may read of a context, whatever kind it is. NumPy only."""

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from specdrive_ros.draft.draft import DraftContext


def following_tokens(context: "DraftContext", first: int) -> np.ndarray:
    """[A] the token behind each accepted row, whose sequence index begins at `first`; the last one is the root."""
    sequence = np.concatenate([context.prompt_ids, context.written, [context.newest_token]]).astype(np.int64)
    tokens = sequence[first + 1 : first + 1 + len(context.taps)]
    if len(tokens) != len(context.taps) or not len(tokens) or tokens[-1] != context.newest_token:
        raise ValueError(
            f"draft: {len(context.taps)} accepted rows behind {first} do not end before the newest token; "
            "call begin() for every prompt and hand over each accepted row once"
        )
    return tokens


def word_places(token_ids: np.ndarray, vocabulary: int) -> np.ndarray:
    """[vocabulary] place of each of the target's ids among the words a draft has logits for, -1 where it has none."""
    places = np.full(vocabulary, -1)
    places[token_ids] = np.arange(len(token_ids))
    return places
