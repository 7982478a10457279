"""DFlash as a routine reasoner: one pass fills a block of mask tokens after the newest token.

The target's states of accepted tokens become keys and values once and stay; a block's own are never kept. Slot 0
stands for the newest token, and its output is not used. Knows no runtime.
"""

from typing import TYPE_CHECKING

import numpy as np

from specdrive_ros.decoding.token_tree import TokenTree
from specdrive_ros.draft.accepted import following_tokens, word_places
from specdrive_ros.draft.cache import DraftCache
from specdrive_ros.draft.dynamic_tree import best_of_slots, log_softmax
from specdrive_ros.draft.taps import TapSelection
from specdrive_ros.runtime.draft_networks import DFlashNetworks, Embed

if TYPE_CHECKING:
    from specdrive_ros.draft.draft import DraftContext

BRANCHES = 4  # tokens tried per slot


class DFlashDraft:
    """block_size: the one it was trained with unless another is given; end_token: the target's token that ends a
    reasoning, after which nothing is proposed; select: picks the draft's taps from the target's; cache: given if the
    networks want it elsewhere than in host memory."""

    name = "dflash"

    def __init__(
        self, networks: DFlashNetworks, embed: Embed, *, block_size: int | None = None, end_token: int | None = None,
        select: TapSelection | None = None, cache: DraftCache | None = None,
    ):
        self.networks, self.embed, self.config = networks, embed, networks.config
        self.block_size = block_size or self.config.block_size
        self.select = select or TapSelection.everything()
        self.rope, self.cache = self.config.make_rope(), cache or DraftCache(self.config)
        self.words = word_places(networks.token_ids, self.config.vocab_size)
        self.end = -1 if end_token is None else int(self.words[end_token])
        self.slots = np.zeros((0, len(networks.token_ids)), np.float32)  # log-probabilities of the newest block

    def begin(self) -> None:
        """Starts a new prompt: nothing is known."""
        self.cache.truncate(0)

    def propose(self, context: "DraftContext", nodes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """A chain: tokens [n], parents [n] (-1: follows the newest token) and path log-probabilities [n], n <=
        nodes."""
        log_probs = log_softmax(self.block_logits(context)[1 : nodes + 1])
        words = log_probs.argmax(-1)
        if ends := np.flatnonzero(words == self.end).tolist():
            words = words[: ends[0] + 1]
        count = np.arange(len(words))
        return self.networks.token_ids[words], count - 1, np.cumsum(log_probs[count, words])

    def tree(self, context: "DraftContext", nodes: int) -> TokenTree:
        """The likeliest tree: where a slot is unsure, its next choices branch off, and the block continues below
        each."""
        self.slots = log_softmax(self.block_logits(context)[1:])
        words, parents, log_probs = best_of_slots(self.slots, nodes, BRANCHES, self.end)
        return TokenTree(self.networks.token_ids[words], parents, log_probs)

    def edges(self, tree: TokenTree) -> np.ndarray:
        """[n] log-probability of each node at its depth, NaN beyond the block and for tokens the draft lacks."""
        depths, words = tree.depths, self.words[tree.tokens]
        known = (depths <= len(self.slots)) & (words >= 0)
        found = np.full(len(tree), np.nan)
        found[known] = self.slots[depths[known] - 1, words[known]]
        return found

    def block_logits(self, context: "DraftContext") -> np.ndarray:
        """Logits [block, words], slot 0 included."""
        self.take_up(context)
        ids = np.full(self.block_size, self.config.mask_token_id)
        ids[0] = context.newest_token
        tables = self.rope.tables(self.rope.beyond(self.cache.length, self.block_size, context.rope_delta))
        return self.networks.fill(self.embed(ids), *tables, self.cache.known)

    def take_up(self, context: "DraftContext") -> None:
        first = self.cache.length
        following_tokens(context, first)  # raises if rows are missing
        tables = self.rope.tables(self.rope.rows(first, context.positions))
        self.networks.inject(self.select(context.taps), *tables, self.cache.reserve(len(context.taps)))
        self.cache.advance(len(context.taps))
