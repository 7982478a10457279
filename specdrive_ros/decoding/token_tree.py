"""The one shape of a proposal: a tree of tokens below the newest token.

Every kind of draft proposes one; a chain is a tree of width one. The target verifies the whole tree in one pass under
its attention mask (Miao et al. 2023, SpecInfer). Knows neither drafts nor networks.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from specdrive_ros.target.rope import text_positions

ROOT = -1


@dataclass(frozen=True)
class TokenTree:
    """n proposed tokens; n may be 0.

    tokens:    [n] token ids
    parents:   [n] index of each node's parent, smaller than its own; -1 is the root, the newest token, itself no node
    log_probs: [n] log-probability of the path from the root to the node, under the proposer
    proposers: [n] which draft each node is credited to; () where one draft proposed all

    Raises ValueError for an invalid tree.
    """

    tokens: np.ndarray
    parents: np.ndarray
    log_probs: np.ndarray
    proposers: tuple[str, ...] = ()

    def __post_init__(self):
        for name in ("tokens", "parents"):
            values = np.array(getattr(self, name))
            if values.size and values.dtype.kind not in "iu":
                raise ValueError(f"token tree: {name} must be whole numbers, got {values.dtype}")
            object.__setattr__(self, name, values.astype(np.int64))
        object.__setattr__(self, "log_probs", np.array(self.log_probs, np.float64))
        self._check()
        for array in (self.tokens, self.parents, self.log_probs):
            array.setflags(write=False)

    def _check(self) -> None:
        shapes = {self.tokens.shape, self.parents.shape, self.log_probs.shape}
        if shapes != {(len(self),)}:
            raise ValueError(f"token tree: tokens, parents and log_probs must be [n] of one n, got {shapes}")
        if self.proposers and len(self.proposers) != len(self):
            raise ValueError(f"token tree: {len(self.proposers)} proposers for {len(self)} nodes")
        if not all(isinstance(proposer, str) for proposer in self.proposers):
            raise ValueError("token tree: proposers must be names")
        if not len(self):
            return
        if not ((self.parents >= ROOT) & (self.parents < np.arange(len(self)))).all():
            raise ValueError("token tree: a parent must come before its children and be -1 or more")
        if not np.isfinite(self.log_probs).all():
            raise ValueError("token tree: log-probabilities must be finite")
        if len(set(zip(self.parents.tolist(), self.tokens.tolist()))) < len(self):
            raise ValueError("token tree: two siblings have the same token")

    @classmethod
    def empty(cls) -> "TokenTree":
        return cls(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))

    @classmethod
    def copy_of(cls, proposal: "TokenTree", vocabulary: int | None = None) -> "TokenTree":
        """A checked copy: whoever made the proposal may have bypassed the checks, or may write to it later.

        vocabulary: tokens are below it; None: of any size. Raises TypeError or ValueError for an invalid proposal.
        """
        if not isinstance(proposal, TokenTree):
            raise TypeError(f"proposed {type(proposal).__name__}, not a TokenTree")
        tree = cls(proposal.tokens, proposal.parents, proposal.log_probs, proposal.proposers)
        if vocabulary is not None and not ((tree.tokens >= 0) & (tree.tokens < vocabulary)).all():
            raise ValueError(f"proposed a token outside of the vocabulary of {vocabulary}")
        return tree

    @classmethod
    def chain(
        cls,
        tokens: Sequence[int],
        log_probs: Sequence[float] | None = None,
        proposers: tuple[str, ...] = (),
    ) -> "TokenTree":
        """Tokens one after the other; log_probs of the paths, 0 (certain) if not given."""
        tokens = np.asarray(tokens, np.int64).reshape(-1)
        log_probs = np.zeros(len(tokens)) if log_probs is None else log_probs
        return cls(tokens, np.arange(len(tokens)) - 1, log_probs, proposers)

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def is_chain(self) -> bool:
        return bool((self.parents == np.arange(len(self)) - 1).all())

    @cached_property
    def depths(self) -> np.ndarray:
        """[n], 1 at the root's children."""
        depths = np.zeros(len(self) + 1, np.int64)  # the last entry is the root's, which index -1 reads
        for node, parent in enumerate(self.parents.tolist()):
            depths[node] = depths[parent] + 1
        return depths[:-1]

    @cached_property
    def children(self) -> dict[int, list[int]]:
        """Parent -> its children in their order; -1 is the root. Leaves are left out."""
        children: dict[int, list[int]] = {}
        for node, parent in enumerate(self.parents.tolist()):
            children.setdefault(parent, []).append(node)
        return children

    def following(self, words: Sequence[int], node: int = ROOT) -> list[int]:
        """The nodes that spell these tokens downwards from `node`, as far as the tree has them."""
        nodes = []
        for word in words:
            node = next((child for child in self.children.get(node, ()) if self.tokens[child] == word), ROOT)
            if node == ROOT:
                break
            nodes.append(node)
        return nodes

    def path(self, node: int) -> list[int]:
        """Nodes from the root's child down to `node`."""
        nodes = []
        while node != ROOT:
            nodes.append(node)
            node = int(self.parents[node])
        return nodes[::-1]

    def paths(self) -> list[list[int]]:
        """The path to every leaf, by the leaf's index."""
        return [self.path(node) for node in range(len(self)) if node not in self.children]

    def attention_mask(self, cached: int, stem: int = 1) -> np.ndarray:
        """[T, S + T] bool for a pass over `stem` tokens, the root the last of them, and the n nodes.

        A node attends to the S `cached` rows, the stem, its ancestors and itself. T = stem + n.
        """
        ancestors = np.eye(len(self), dtype=bool)
        for node, parent in enumerate(self.parents.tolist()):
            if parent != ROOT:
                ancestors[node] |= ancestors[parent]
        mask = np.ones((stem + len(self), cached + stem + len(self)), bool)
        mask[:stem, cached:] = np.tri(stem, stem + len(self), dtype=bool)
        mask[stem:, cached + stem :] = ancestors
        return mask

    def positions(self, root_slot: int, rope_delta: int) -> np.ndarray:
        """[3, n] M-RoPE positions; root_slot is the cache slot of the root."""
        deepest = int(self.depths.max(initial=0))
        return text_positions(root_slot + 1, deepest, rope_delta)[:, self.depths - 1]

    def pruned(self, nodes: int) -> "TokenTree":
        """The `nodes` most probable nodes, in their order, the first of equals. Their ancestors always stay."""
        if nodes >= len(self):
            return self
        kept = np.sort(np.argsort(-self._least_on_path(), kind="stable")[: max(nodes, 0)])
        place = np.full(len(self) + 1, ROOT)
        place[kept] = np.arange(len(kept))
        proposers = tuple(self.proposers[node] for node in kept) if self.proposers else ()
        return TokenTree(self.tokens[kept], place[self.parents[kept]], self.log_probs[kept], proposers)

    @property
    def probabilities(self) -> np.ndarray:
        """[n] path probabilities, at most 1 and never rising from parent to child, whatever the proposer claims."""
        return np.exp(self._least_on_path())

    def _least_on_path(self) -> np.ndarray:
        """[n] log-probabilities that are at most 0 and never rise from parent to child."""
        least = np.append(self.log_probs, 0.0)
        for node, parent in enumerate(self.parents.tolist()):
            least[node] = min(least[node], least[parent])
        return least[:-1]


def merge(trees: Sequence[TokenTree], nodes: int, names: Sequence[str] = ()) -> TokenTree:
    """One tree of the `nodes` most probable nodes of several trees; a path proposed twice keeps its best probability.

    names: of the proposers; a node is credited to the one that gave it the highest probability, the first of equals.
    """
    places: dict[tuple[int, int], int] = {}
    tokens, parents, log_probs, proposers = [], [], [], []
    for number, tree in enumerate(trees):
        merged = [ROOT] * (len(tree) + 1)
        for node, (token, parent) in enumerate(zip(tree.tokens.tolist(), tree.parents.tolist())):
            key, log_prob = (merged[parent], token), float(tree.log_probs[node])
            if key not in places:
                places[key] = len(tokens)
                tokens.append(token)
                parents.append(key[0])
                log_probs.append(log_prob)
                proposers.append(number)
            merged[node] = place = places[key]
            if log_prob > log_probs[place]:
                log_probs[place], proposers[place] = log_prob, number
    credited = tuple(names[number] for number in proposers) if names else ()
    merged_tree = TokenTree(np.array(tokens, np.int64), np.array(parents, np.int64), np.array(log_probs), credited)
    return merged_tree.pruned(nodes)
