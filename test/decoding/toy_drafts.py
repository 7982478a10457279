"""Drafts for tests: right, sometimes right, silent, and malicious."""

import numpy as np

from specdrive_ros.decoding.token_tree import TokenTree

from .toy_target import VOCABULARY


class Oracle:
    """Knows the answer; with probability `wrong` a node of its trees has a sibling or is false."""

    name = "oracle"

    def __init__(self, answer, wrong: float = 0.0, seed: int = 0):
        self.answer, self.wrong, self.random = tuple(answer), wrong, np.random.default_rng(seed)
        self.contexts = []

    def begin(self):
        self.contexts = []

    def propose(self, context, nodes):
        self.contexts.append(context)
        rest = self.answer[len(context.written) :]
        tokens, parents, parent = [], [], -1
        for token in rest:
            row = [token]
            if self.random.random() < self.wrong:
                row = [(token + 1) % VOCABULARY, (token + 2) % VOCABULARY] + row * (self.random.random() < 0.7)
            self.random.shuffle(row)
            if len(tokens) + len(row) > nodes:
                break
            first = len(tokens)
            tokens += row
            parents += [parent] * len(row)
            parent = first + int(self.random.integers(len(row)))
            if tokens[parent] != token and token in row and self.random.random() < 0.8:
                parent = first + row.index(token)
        return TokenTree(np.array(tokens, int), np.array(parents, int), -0.1 * np.arange(len(tokens)))


class Rubbish:
    """Every kind of wrong answer, one after the other, by seed."""

    name = "rubbish"

    def __init__(self, seed: int):
        self.random = np.random.default_rng(seed)

    def begin(self):
        pass

    def propose(self, context, nodes):
        kind = self.random.integers(10)
        if kind == 0:
            raise RuntimeError("the draft is broken")
        if kind == 1:
            return None
        if kind == 2:
            return TokenTree.chain([1, 2], [np.nan, np.nan])
        if kind == 3:
            return TokenTree.chain([0] * (nodes + 5))
        if kind == 4:
            return TokenTree.chain([VOCABULARY + 3])
        if kind == 5:
            return TokenTree.chain([-1, 4])
        if kind == 6:
            return TokenTree.empty()
        if kind == 7:
            context.taps[:] = 0
        if kind == 8:
            return TokenTree(np.array([1, 1]), np.array([-1, -1]), np.zeros(2))
        return random_tree(self.random, int(self.random.integers(nodes + 1)))


def random_tree(random, nodes: int) -> TokenTree:
    tokens, parents, taken = [], [], set()
    for _ in range(nodes):
        parent, token = int(random.integers(-1, len(tokens))), int(random.integers(VOCABULARY))
        if (parent, token) not in taken:
            taken.add((parent, token))
            tokens.append(token)
            parents.append(parent)
    return TokenTree(np.array(tokens, int), np.array(parents, int), -random.random(len(tokens)))
