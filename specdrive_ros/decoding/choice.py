"""How a token is chosen from masked logits: the largest, or drawn from the warped distribution."""

from collections.abc import Callable

import numpy as np

from specdrive_ros.errors import InputError

Choose = Callable[[np.ndarray], int]  # [vocabulary] masked logits -> token id


def greedy(logits: np.ndarray) -> int:
    """The largest logit; of equal ones the first."""
    return int(np.argmax(logits))


class Sampler:
    """Draws after temperature and top-p, in this order, from a generator of its own."""

    def __init__(self, temperature: float = 0.6, top_p: float = 0.98, seed: int = 0):
        if not temperature > 0:
            raise InputError(f"temperature {temperature}: must be over 0; use greedy decoding for 0")
        if not 0 < top_p <= 1:
            raise InputError(f"top_p {top_p}: must be over 0 and at most 1")
        self.temperature, self.top_p = temperature, top_p
        self._random = np.random.default_rng(seed)

    def __call__(self, logits: np.ndarray) -> int:
        probabilities = softmax(self.warp(logits))
        return int(self._random.choice(len(probabilities), p=probabilities))

    def warp(self, logits: np.ndarray) -> np.ndarray:
        """Scores [vocabulary]: over the temperature, -inf outside the smallest set that holds top_p."""
        scores = logits / self.temperature
        order = np.argsort(scores, kind="stable")  # ascending, so the tail that is cut comes first
        tail = np.cumsum(softmax(scores[order])) <= 1 - self.top_p
        tail[-1] = False
        scores[order[tail]] = -np.inf
        return scores


def softmax(scores: np.ndarray) -> np.ndarray:
    """[vocabulary] float64, -inf becomes 0."""
    weights = np.exp(np.asarray(scores, np.float64) - np.max(scores))
    return weights / weights.sum()
