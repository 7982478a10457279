"""A draft with a network, EAGLE-3 or DFlash, with the interface of every draft: its own name, a token tree out.

Its name gives kind and rotary embedding (`dflash-flat`). Besides proposing, it can say how probable it finds the
tokens of others: a company uses that to rank a phrasebook's branches. Knows no runtime.
"""

from typing import Protocol

import numpy as np

from specdrive_ros.decoding.token_tree import TokenTree
from specdrive_ros.draft.config import DraftConfig
from specdrive_ros.draft.draft import DraftContext


class Inner(Protocol):
    """What `Eagle3Draft` and `DFlashDraft` have in common."""

    config: DraftConfig

    def begin(self) -> None: ...

    def take_up(self, context: DraftContext) -> object: ...

    def tree(self, context: DraftContext, nodes: int) -> TokenTree: ...

    def edges(self, tree: TokenTree) -> np.ndarray: ...


class NetworkDraft:
    """`inner` as a draft; asked for no nodes, it only takes in what was written since."""

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
        """[n] log-probability of each node of another draft's tree given its parent, as of the latest proposal; NaN
        where the network gives none."""
        return self.inner.edges(tree)
