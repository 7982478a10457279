"""Carry-over: a driver's thought is mostly the same as a tenth of a second ago.

Proposes the rest of the previous cycle's reasoning from where the tokens written now agree with it. After a changed
token it continues after the position in the old reasoning whose beginning is nearest (edit distance of tokens), as if
the token had been replaced; that one was inserted or left out are the other branches. (In a routine cycle nothing is
left to propose: the whole reasoning rode along in the prefill, see `cycle.Planner`.)
"""

from collections.abc import Sequence

import numpy as np

from specdrive_ros.decoding.token_tree import TokenTree, merge
from specdrive_ros.draft.draft import DraftContext

AGREEING, CHANGED = np.log(0.97), np.log(0.85)  # log-probability of a token, while nothing differs and after a change
PLACES = 2  # positions in the old reasoning that are tried
ANOTHER_PLACE = np.log(0.2)  # value of continuing at the second of them


class Carryover:
    """Proposes the previous reasoning from the positions where it agrees with what is written, as a tree of chains."""

    name = "carryover"
    reads_taps = False

    def begin(self) -> None:
        """Nothing to reset: the previous reasoning comes with the context."""

    def propose(self, context: DraftContext, nodes: int) -> TokenTree:
        previous = context.previous
        chains = []
        for rank, (place, edits) in enumerate(places(context.written, previous)[:PLACES]):
            rest = previous[place : place + nodes]
            surprises = np.arange(1, len(rest) + 1) * (CHANGED if edits else AGREEING) + rank * ANOTHER_PLACE
            chains.append(TokenTree.chain(rest, surprises))
        return merge(chains, nodes)


def places(written: Sequence[int], previous: Sequence[int]) -> list[tuple[int, int]]:
    """(position in `previous` to continue at, edits up to there), likeliest first; only the exact position if there is
    one.

    A position is likelier the fewer edits (Levenshtein) separate its beginning from the tokens written; among equal
    ones, those with the longer common end first, then the one of nearest length.
    """
    if tuple(written) == tuple(previous[: len(written)]):
        return [(len(written), 0)] if len(written) < len(previous) else []
    edits = list(range(len(previous) + 1))
    for row, word in enumerate(written, 1):
        diagonal, edits[0] = edits[0], row
        for column, old in enumerate(previous, 1):
            diagonal, edits[column] = (
                edits[column],
                min(diagonal + (word != old), edits[column] + 1, edits[column - 1] + 1),
            )
    ranked = sorted(
        range(len(previous)),
        key=lambda place: (edits[place], -_common_end(written, previous[:place]), abs(place - len(written))),
    )
    return [(place, edits[place]) for place in ranked]


def _common_end(written: Sequence[int], beginning: Sequence[int]) -> int:
    common = 0
    while common < min(len(written), len(beginning)) and written[-1 - common] == beginning[-1 - common]:
        common += 1
    return common
