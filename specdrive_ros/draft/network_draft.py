"""A draft with a network, EAGLE-3 or DFlash, in the shape of every draft: a name of its own, a token tree out.

Its name says kind and rotary embedding (`dflash-flat`). Beside proposing it can say how probable it thinks the words of
others: a company ranks a phrasebook's branches by it. Knows no runtime.
"""

from typing import Protocol

import numpy as np

from specdrive_ros.decoding.token_tree import TokenTree
from specdrive_ros.draft.config import DraftConfig
from specdrive_ros.draft.draft import DraftContext


class Inner(Protocol):
    """What `Eagle3Draft` and `DFlashDraft` share."""

    config: DraftConfig

    def begin(self) -> None: ...

    def take_up(self, context: DraftContext) -> object: ...

    def tree(self, context: DraftContext, nodes: int) -> TokenTree: ...

    def edges(self, tree: TokenTree) -> np.ndarray: ...


class NetworkDraft:
    """`inner` as a draft; asked for no nodes it only takes up what was written since."""

    reads_taps = True

    def __init__(self, name: str, inner: Inner):
        self.name, self.inner = name, inner

    def begin(self) -> None:
        self.inner.begin()

    def propose(self, context: DraftContext, nodes: int) -> TokenTree:
        if nodes < 1:
            self.inner.take_up(context)
            return TokenTree.empty()
        return self.inner.tree(context, nodes)

    def edges(self, tree: TokenTree) -> np.ndarray:
        """[n] log-probability of each node of another's tree behind its parent, as of the newest proposal; NaN where
        the network says nothing of it."""
        return self.inner.edges(tree)
