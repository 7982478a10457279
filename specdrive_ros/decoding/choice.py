"""How a token is chosen from masked logits: the largest one, or a draw from the warped distribution."""

from collections.abc import Callable

import numpy as np

from specdrive_ros.errors import InputError

Choose = Callable[[np.ndarray], int]  # [vocabulary] masked logits -> token id


def greedy(logits: np.ndarray) -> int:
    """The token with the largest logit, the first of equals."""
    return int(np.argmax(logits))


class Sampler:
    """Samples after temperature, top-k and top-p, in this order, with its own random generator. top_k 0: no limit."""

    def __init__(self, temperature: float = 0.6, top_p: float = 0.98, seed: int = 0, top_k: int = 0):
        if not temperature > 0:
            raise InputError(f"temperature {temperature}: must be over 0; use greedy decoding for 0")
        if not 0 < top_p <= 1:
            raise InputError(f"top_p {top_p}: must be over 0 and at most 1")
        if top_k < 0:
            raise InputError(f"top_k {top_k}: must be 0 for no limit, or more")
        self.temperature, self.top_p, self.top_k = temperature, top_p, top_k
        self._random = np.random.default_rng(seed)

    def __call__(self, logits: np.ndarray) -> int:
        probabilities = softmax(self.warp(logits))
        return int(self._random.choice(len(probabilities), p=probabilities))

    def warp(self, logits: np.ndarray) -> np.ndarray:
        """Scores [vocabulary]: divided by the temperature, -inf outside top_k and top_p."""
        return nucleus(likeliest_few(logits / self.temperature, self.top_k), self.top_p)


def likeliest_few(scores: np.ndarray, top_k: int) -> np.ndarray:
    """Scores [vocabulary], -inf under the `top_k`-th largest; ties with it stay. 0 leaves all."""
    if not 0 < top_k < len(scores):
        return scores
    return np.where(scores < np.partition(scores, -top_k)[-top_k], -np.inf, scores)


def nucleus(scores: np.ndarray, top_p: float) -> np.ndarray:
    """Scores [vocabulary], -inf outside the smallest set of likeliest ones that holds `top_p`."""
    order = np.argsort(scores, kind="stable")  # ascending, so the tail that is cut comes first
    tail = np.cumsum(softmax(scores[order])) <= 1 - top_p
    tail[-1] = False
    kept = np.array(scores)
    kept[order[tail]] = -np.inf
    return kept


def softmax(scores: np.ndarray) -> np.ndarray:
    """[vocabulary] float64, -inf becomes 0."""
    weights = np.exp(np.asarray(scores, np.float64) - np.max(scores))
    return weights / weights.sum()
