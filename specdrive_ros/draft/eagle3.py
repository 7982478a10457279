"""EAGLE-3 as a routine reasoner: proposes a chain or a dynamic tree, and keeps its own keys and values.

Each proposal first takes in the target's states of the tokens accepted since the last one (their rows replace what the
draft had guessed), then runs ahead on its own output. Knows no runtime: `networks` may be any of them.
"""

from typing import TYPE_CHECKING

import numpy as np

from specdrive_ros.decoding.token_tree import TokenTree
from specdrive_ros.draft.accepted import following_tokens, word_places
from specdrive_ros.draft.cache import DraftCache
from specdrive_ros.draft.dynamic_tree import Candidates, grow, log_softmax
from specdrive_ros.draft.taps import TapSelection
from specdrive_ros.runtime.bindings import HIDDEN
from specdrive_ros.runtime.draft_networks import Eagle3Networks, Embed

if TYPE_CHECKING:
    from specdrive_ros.draft.draft import DraftContext

DEPTH, TOP_K = 7, 10  # published, with 60 nodes; on a CPU narrow and cheap is better


class Eagle3Draft:
    """depth: expansions after the first level, so depth + 1 levels; top_k: number of beams and of children; 1 is a
    chain; least: log-probability of a path below which running further ahead does not pay; end_token: the target's
    token that ends a reasoning, after which the draft does not run ahead; select: picks the draft's taps from the
    target's; cache: given if the networks want it elsewhere than in host memory."""

    name = "eagle3"

    def __init__(
        self, networks: Eagle3Networks, embed: Embed, *, depth: int = DEPTH, top_k: int = TOP_K,
        least: float = -np.inf, end_token: int | None = None,
        select: TapSelection | None = None, cache: DraftCache | None = None,
    ):  # fmt: skip
        self.networks, self.embed, self.config = networks, embed, networks.config
        self.depth, self.top_k, self.least = depth, top_k, least
        self.words = word_places(networks.token_ids, self.config.vocab_size)
        self.end = -1 if end_token is None else int(self.words[end_token])
        self.behind: dict[tuple[int, ...], np.ndarray] = {}  # path -> log-probabilities of its next token
        self.select = select or TapSelection.everything()
        self.rope, self.cache = self.config.make_rope(), cache or DraftCache(self.config)

    def begin(self) -> None:
        """Starts a new prompt: nothing is known."""
        self.cache.truncate(0)

    def propose(self, context: "DraftContext", nodes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Tokens [n], parents [n] (-1: follows the newest token) and log-probabilities [n] of the paths, n <=
        nodes."""
        _, tokens, parents, scores = self.candidates(context, nodes).best(nodes)
        return self.networks.token_ids[tokens], parents, scores

    def candidates(self, context: "DraftContext", nodes: int) -> Candidates:
        """All candidates the tree is chosen from; afterwards the cache holds only true tokens again."""
        hidden, logits = self.take_up(context)
        true_rows, first = self.cache.length, log_softmax(logits[0])
        ahead, self.behind = _Ahead(self, hidden, context.rope_delta), {(): first}
        try:
            depth, top_k = min(self.depth, nodes - 1), min(self.top_k, nodes)
            return grow(first, ahead.expand, depth, top_k, self.least, self.end)
        finally:
            self.cache.truncate(true_rows)

    def tree(self, context: "DraftContext", nodes: int) -> TokenTree:
        return TokenTree(*self.propose(context, nodes))

    def edges(self, tree: TokenTree) -> np.ndarray:
        """[n] log-probability of each node given its parent, NaN where the draft did not run ahead."""
        found, paths = np.full(len(tree), np.nan), {-1: ()}
        for node, (token, parent) in enumerate(zip(tree.tokens.tolist(), tree.parents.tolist())):
            word, path = int(self.words[token]), paths.get(parent)
            if word < 0 or path is None:
                continue
            paths[node] = (*path, word)
            if path in self.behind:
                found[node] = self.behind[path][word]
        return found

    def take_up(self, context: "DraftContext") -> tuple[np.ndarray, np.ndarray]:
        """Takes in the rows of the accepted tokens -> hidden [1, E] and logits [1, words] after the newest token."""
        first = self.cache.length
        embeddings = self.embed(following_tokens(context, first))
        tables = self.rope.tables(self.rope.rows(first, context.positions))
        new, taps = self.cache.reserve(len(embeddings)), self.select(context.taps)
        hidden, logits = self.networks.newest(embeddings, taps, *tables, self.cache.known, new)
        self.cache.advance(len(embeddings))
        return hidden, logits


class _Ahead:
    """The draft beyond the true tokens: each level's beams see the true rows and their own ancestors."""

    def __init__(self, draft: Eagle3Draft, hidden: np.ndarray, rope_delta: int):
        self.draft, self.hidden, self.rope_delta = draft, hidden, rope_delta
        self.true_rows, self.level = draft.cache.length, 0
        self.ancestors = np.zeros((1, 0), bool)  # [beams of the previous level, rows made ahead]
        self.paths: list[tuple[int, ...]] = [()]

    def expand(self, tokens: np.ndarray, parents: np.ndarray) -> np.ndarray:
        draft, beams = self.draft, len(tokens)
        self.ancestors = np.concatenate([self.ancestors[parents], np.eye(beams, dtype=bool)], axis=1)
        mask = np.zeros((beams, self.true_rows + self.ancestors.shape[1]), np.float32)
        mask[:, self.true_rows :][~self.ancestors] = HIDDEN
        tables = draft.rope.tables(
            np.repeat(draft.rope.beyond(self.true_rows + self.level, 1, self.rope_delta), beams, axis=1)
        )
        new = draft.cache.reserve(beams)
        self.hidden, logits = draft.networks.step(
            draft.embed(draft.networks.token_ids[tokens]), self.hidden[parents], *tables, mask, draft.cache.known,
            new,
        )  # fmt: skip
        draft.cache.advance(beams)
        self.level += 1
        log_probs = log_softmax(logits)
        self.paths = [(*self.paths[parent], int(token)) for token, parent in zip(tokens, parents)]
        draft.behind.update(zip(self.paths, log_probs))
        return log_probs
