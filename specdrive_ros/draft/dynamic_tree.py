"""The dynamic tree of EAGLE-2 and EAGLE-3 (arXiv 2406.16858, 2503.01840): grow wide, keep the likeliest.

At each level, the K likeliest beams get K children each; at the end, the best of all candidates by path
log-probability are kept. A path's log-probability never increases with its length, so the parent of every kept node is
kept, too. With K = 1 this is a chain. NumPy; knows no network.
"""

from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

# (tokens [K] of the draft's vocabulary, parents [K] in the previous level) -> log-probabilities [K, words]
Expand = Callable[[np.ndarray, np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Candidates:
    """In order of creation. tokens [M] of the draft's vocabulary; parents [M] index of a candidate, -1 the root;
    scores [M] log-probability of the path."""

    tokens: np.ndarray
    parents: np.ndarray
    scores: np.ndarray

    def best(self, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """The `count` likeliest, still in order of creation: indices of the chosen candidates, tokens, parents among
        the chosen (-1 the root), scores. Of equal ones the earlier is preferred, so that a parent comes before its
        child."""
        chosen = np.sort(np.argsort(-self.scores, kind="stable")[:count])
        place = np.full(len(self.scores) + 1, -1)
        place[chosen] = np.arange(len(chosen))
        return chosen, self.tokens[chosen], place[self.parents[chosen]], self.scores[chosen]


def grow(
    first: np.ndarray, expand: Expand, depth: int, top_k: int, least: float = -np.inf, end: int = -1
) -> Candidates:
    """first [words]: log-probabilities after the root. The beams are expanded `depth` times, giving depth + 1 levels;
    fewer if no beam's path reaches the log-probability `least`, or all of them end with the token `end`."""
    beams = likeliest(first, top_k)
    tokens, parents, scores = [beams], [np.full(len(beams), -1)], [first[beams]]
    level, beam_candidates, beam_scores = np.zeros(len(beams), np.int64), np.arange(len(beams)), first[beams]
    made = len(beams)
    for _ in range(depth):
        running = beams != end
        beams, level, beam_candidates, beam_scores = (
            each[running] for each in (beams, level, beam_candidates, beam_scores)
        )
        if not len(beams) or not beam_scores.max() >= least:
            break
        log_probs = expand(beams, level)
        children = np.stack([likeliest(row, top_k) for row in log_probs])
        paths = np.take_along_axis(log_probs, children, axis=1) + beam_scores[:, None]
        tokens.append(children.ravel())
        parents.append(np.repeat(beam_candidates, children.shape[1]))
        scores.append(paths.ravel())
        kept = likeliest(paths.ravel(), top_k)
        level, beam_candidates = kept // children.shape[1], made + kept
        beams, beam_scores = children.ravel()[kept], paths.ravel()[kept]
        made += children.size
    return Candidates(*(np.concatenate(part) for part in (tokens, parents, scores)))


def best_of_slots(
    slots: np.ndarray, nodes: int, top_k: int, end: int = -1
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The likeliest tree of `nodes` nodes if every position is predicted independently of what precedes it.

    slots [D, words]: log-probabilities at each depth, of which the `top_k` likeliest are tried; no path continues
    after the token `end`. Returns tokens, parents (-1 the root) and log-probabilities of the paths, likeliest node
    first.
    """
    choices = [likeliest(row, top_k) for row in slots]
    words, parents, scores = [], [], []
    waiting = []  # cost, depth, parent, rank
    if len(slots) and nodes > 0:
        waiting.append((-float(slots[0, choices[0][0]]), 0, -1, 0))
    while waiting and len(words) < nodes:
        cost, depth, parent, rank = heappop(waiting)
        word, place = choices[depth][rank], len(words)
        words.append(int(word))
        parents.append(parent)
        scores.append(-cost)
        if rank + 1 < len(choices[depth]):
            further = float(slots[depth, word] - slots[depth, choices[depth][rank + 1]])
            heappush(waiting, (cost + further, depth, parent, rank + 1))
        if depth + 1 < len(slots) and word != end:
            heappush(waiting, (cost - float(slots[depth + 1, choices[depth + 1][0]]), depth + 1, place, 0))
    return np.array(words, np.int64), np.array(parents, np.int64), np.array(scores)


def likeliest(values: np.ndarray, count: int) -> np.ndarray:
    """Indices of the `count` largest values, largest first."""
    if count == 1:
        return np.array([int(np.argmax(values))])
    count = min(count, len(values))
    chosen = np.argpartition(-values, count - 1)[:count]
    return chosen[np.argsort(-values[chosen], kind="stable")]


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """[..., words] float32."""
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
