"""The tokens after a draft's rows: what any kind of draft may read from a context. NumPy only."""

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from specdrive_ros.draft.draft import DraftContext


def following_tokens(context: "DraftContext", first: int) -> np.ndarray:
    """[A] the token following each accepted row; the rows begin at sequence index `first`, and the last token is the
    root. Raises ValueError if rows are missing."""
    sequence = np.concatenate([context.prompt_ids, context.written, [context.newest_token]]).astype(np.int64)
    tokens = sequence[first + 1 : first + 1 + len(context.taps)]
    if len(tokens) != len(context.taps) or not len(tokens) or tokens[-1] != context.newest_token:
        raise ValueError(
            f"draft: {len(context.taps)} accepted rows behind {first} do not end before the newest token; "
            "call begin() for every prompt and hand over each accepted row once"
        )
    return tokens


def word_places(token_ids: np.ndarray, vocabulary: int) -> np.ndarray:
    """[vocabulary] index of each of the target's ids among the tokens a draft has logits for, -1 if it has none."""
    places = np.full(vocabulary, -1)
    places[token_ids] = np.arange(len(token_ids))
    return places
