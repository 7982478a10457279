"""How much of a proposed tree the target agrees with. Lossless: the text is what plain decoding writes.

At each node the target chooses as in plain decoding, from the logits after that node. A choice among the node's
children is accepted, and its logits are consulted next; any other choice is the target's own token, and the rest of the
tree is discarded. Sampling is lossless as well: a draft's child is a point mass, so accepting child x with
probability p(x), else drawing from p without x, is drawing from p (Leviathan et al. 2023, Chen et al. 2023; over
siblings: Miao et al. 2023, SpecInfer, and EAGLE).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from specdrive_ros.decoding.choice import Sampler, greedy, softmax
from specdrive_ros.decoding.rules import ReasoningRules
from specdrive_ros.decoding.token_tree import ROOT, TokenTree

ChooseAmong = Callable[[np.ndarray, Sequence[int]], int]  # [vocabulary] masked logits, proposed tokens -> token id


@dataclass(frozen=True)
class Verdict:
    """path:   accepted nodes of the tree from the root down
    tokens: what the target itself writes after them: one token, or those that close the reasoning; () at its end
    forced: whether the reasoning is closed by force
    """

    path: tuple[int, ...]
    tokens: tuple[int, ...]
    forced: bool


def verify(
    tree: TokenTree,
    logits: np.ndarray | None,
    rules: ReasoningRules,
    written: Sequence[int],
    choose: ChooseAmong,
    choices: np.ndarray | None = None,
) -> Verdict:
    """Walks the tree from the root as far as the target agrees.

    logits:  [1 + n, vocabulary], row 0 for what follows the root, row 1 + k for what follows node k
    written: the tokens up to the root
    choices: [1 + n], what the networks chose after each row, in place of logits and `choose`
    """
    written, path, node = list(written), [], ROOT
    while not rules.ended(written):
        siblings = {int(tree.tokens[child]): child for child in tree.children.get(node, ())}
        if choices is None:
            choice = choose(rules.allowed(logits[node + 1]), list(siblings))
        else:
            choice = int(choices[node + 1])
        tokens, forced = rules.settle(choice, written)
        if forced:
            closing = tree.following(tokens, node)
            if len(closing) < len(tokens):
                return Verdict(tuple(path), tuple(tokens), True)
            return Verdict((*path, *closing), (), True)
        if choice not in siblings:
            return Verdict(tuple(path), tuple(tokens), False)
        node = siblings[choice]
        path.append(node)
        written.append(choice)
    return Verdict(tuple(path), (), False)


def greedy_among(logits: np.ndarray, proposed: Sequence[int]) -> int:
    """The largest logit, whatever was proposed."""
    return greedy(logits)


class RejectionSampler:
    """Draws from the sampler's distribution, trying the proposed tokens first, one uniform number each."""

    def __init__(self, sampler: Sampler, seed: int = 0):
        self.sampler, self._random = sampler, np.random.default_rng(seed)

    def __call__(self, logits: np.ndarray, proposed: Sequence[int]) -> int:
        probabilities = softmax(self.sampler.warp(logits))
        accepted, rest = reject_siblings(probabilities, proposed, self._random.random)
        return int(self._random.choice(len(rest), p=rest)) if accepted is None else accepted


def reject_siblings(
    probabilities: np.ndarray, proposed: Sequence[int], uniform: Callable[[], float]
) -> tuple[int | None, np.ndarray]:
    """The accepted token, or None, and what is left of the distribution [vocabulary].

    Each proposed token is accepted with its probability; a rejected one gets probability 0, the others are scaled up.
    """
    rest = np.array(probabilities, np.float64)
    for token in proposed:
        if uniform() <= rest[token] and rest[token] > 0:
            return token, rest
        rest[token] = 0.0
        rest /= rest.sum()
    return None, rest
