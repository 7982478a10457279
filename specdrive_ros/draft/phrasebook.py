"""The phrasebook: what a driver usually says next. A trie of chains of causation with counts; no network.

Holds every known sentence from its beginning and every stretch of up to `CONTEXT` tokens, each with its count. The
next token is predicted from everything written so far, from ever shorter suffixes of it and from the bare token counts,
each smoothing the one before by absolute discounting (Ney et al. 1994): a beginning never seen falls back on its
longest known suffix. Sentences end with the tokens that close a reasoning.

    ./specdrive train draft --kind phrasebook --data data/mini --model mini

Knows token ids only; the tokenizer they are of is recognised by its fingerprint.
"""

import heapq
import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from specdrive_ros.atomic_file import atomic_write
from specdrive_ros.decoding.token_tree import ROOT, TokenTree
from specdrive_ros.draft.draft import DraftContext
from specdrive_ros.errors import InputError

FILE = "phrasebook.safetensors"
VERSION = "1"
CONTEXT = 8  # tokens of a stretch, the predicted one included; with 5 a chain is 3 % shorter, with 30 no longer
DISCOUNT = 0.5
BRANCHES = 24  # of one context, the most frequent ones
LEAST_PROBABILITY = 1e-4  # of a path; what is rarer is not worth a node
REMEMBERED = 50_000  # contexts whose predictions are kept
BEGINNING = -1  # the token before a sentence

Context = tuple[int, ...]  # nodes of the trie that end here, the longest known context first, the trie's root last


class Phrasebook:
    """A draft; also the trie itself.

    tokens:      [N] int32, the token each node adds to its parent's context; node 0 is the empty context
    counts:      [N] int64, how often the context of the node was seen
    first_child: [N + 1] int32, children of node k are first_child[k] … first_child[k + 1] - 1, the most frequent first
    end:         the token every sentence ends with
    """

    name = "phrasebook"
    reads_taps = False

    def __init__(self, tokens: np.ndarray, counts: np.ndarray, first_child: np.ndarray, end: int):
        self.tokens, self.counts, self.first_child, self.end = tokens, counts, first_child, end
        self._children: dict[int, dict[int, int]] = {}
        self._predictions: dict[Context, list[tuple[int, float, Context]]] = {}

    @classmethod
    def learn(cls, sentences: Iterable[Sequence[int]], context: int = CONTEXT) -> "Phrasebook":
        """sentences: token ids, all with the same last token; one that was said often counts often."""
        times = Counter(tuple(int(token) for token in sentence) for sentence in sentences)
        ends = {sentence[-1] for sentence in times if sentence}
        if len(ends) != 1 or () in times:
            raise InputError(f"a phrasebook needs sentences that end alike, got {len(ends)} different ends")
        counts: Counter[tuple[int, ...]] = Counter()
        for sentence, often in times.items():
            whole = (BEGINNING, *sentence)
            for stop in range(1, len(whole) + 1):
                counts[whole[:stop]] += often
            for start in range(1, len(whole)):
                for stop in range(start + 1, min(start + context, len(whole)) + 1):
                    counts[whole[start:stop]] += often
        return cls(*_flatten(counts), end=ends.pop())

    def begin(self) -> None:
        """There is nothing to forget."""

    def propose(self, context: DraftContext, nodes: int) -> TokenTree:
        return self.tree(context.written, nodes)

    def tree(self, written: Sequence[int], nodes: int) -> TokenTree:
        """The `nodes` most probable continuations of the words, best first."""
        tokens, parents, log_probs = [], [], []
        waiting = [(0.0, 0, ROOT, -1, self.context(written))]  # -log p, tie, parent, token, context behind it
        tie = 0
        while waiting and len(tokens) < nodes + 1:
            cost, _, parent, token, behind = heapq.heappop(waiting)
            place = len(tokens) - 1
            tokens.append(token)
            parents.append(parent)
            log_probs.append(-cost)
            if token == self.end or (not tokens[1:] and written and written[-1] == self.end):
                continue
            for following, surprise, after in self.predictions(behind):
                if cost + surprise > -math.log(LEAST_PROBABILITY):
                    break
                tie += 1
                heapq.heappush(waiting, (cost + surprise, tie, place, following, after))
        return TokenTree(np.array(tokens[1:], np.int64), np.array(parents[1:], np.int64), np.array(log_probs[1:]))

    def chain(self, written: Sequence[int], nodes: int) -> TokenTree:
        """The most probable next token, and after it the most probable next …"""
        tokens, log_probs, cost, behind = [], [], 0.0, self.context(written)
        while len(tokens) < nodes and (not tokens or tokens[-1] != self.end):
            predictions = self.predictions(behind)
            if not predictions:
                break
            token, surprise, behind = predictions[0]
            cost += surprise
            tokens.append(token)
            log_probs.append(-cost)
        return TokenTree.chain(tokens, log_probs)

    def context(self, written: Sequence[int]) -> Context:
        """The known contexts at the end of a sentence's beginning."""
        context: Context = (self._after(0).get(BEGINNING, 0), 0)
        for token in written:
            context = self._follow(context, int(token))
        return context

    def predictions(self, context: Context) -> list[tuple[int, float, Context]]:
        """(token, -log p, context behind it) of what may come next, the most probable first."""
        known = self._predictions.get(context)
        if known is None:
            if len(self._predictions) >= REMEMBERED:
                self._predictions.clear()
            shares = self._shares(context)
            ranked = sorted(shares.items(), key=lambda item: (-item[1], item[0]))
            known = [
                (token, -math.log(share), self._follow(context, token))
                for token, share in ranked
                if share > LEAST_PROBABILITY
            ]
            self._predictions[context] = known
        return known

    def _shares(self, context: Context) -> dict[int, float]:
        """Token -> probability, from the shortest context to the longest."""
        shares: dict[int, float] = {}
        for node in reversed(context):
            children = self._after(node)
            seen = {token: int(self.counts[child]) for token, child in children.items() if token != BEGINNING}
            total = sum(seen.values())
            if not total:
                continue
            left = DISCOUNT * len(seen) / total
            shares = {token: left * share for token, share in shares.items()}
            for token, count in list(seen.items())[:BRANCHES]:
                shares[token] = shares.get(token, 0.0) + (count - DISCOUNT) / total
        return shares

    def _follow(self, context: Context, token: int) -> Context:
        """Contexts behind one more token; those that nothing was ever seen after are left out."""
        after = (self._after(node).get(token, 0) for node in context)
        return (*(node for node in after if node and self.first_child[node] < self.first_child[node + 1]), 0)

    def _after(self, node: int) -> dict[int, int]:
        """Token -> child of a node, the most frequent first."""
        children = self._children.get(node)
        if children is None:
            first, last = int(self.first_child[node]), int(self.first_child[node + 1])
            children = dict(zip(self.tokens[first:last].tolist(), range(first, last)))
            self._children[node] = children
        return children

    def save(self, path: str | Path, fingerprint: str) -> None:
        """fingerprint: of the tokenizer, see `TargetTokenizer.fingerprint`. The file appears whole or not at all."""
        counts = np.minimum(self.counts, np.iinfo(np.int32).max).astype(np.int32)  # half the bytes
        arrays = {"tokens": self.tokens, "counts": counts, "first_child": self.first_child}
        about = {"kind": self.name, "version": VERSION, "tokenizer": fingerprint, "end": json.dumps(self.end)}
        path = Path(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_write(path) as unfinished:
                save_file(arrays, unfinished, metadata=about)
        except OSError as error:
            raise InputError(f"{path}: cannot be written ({error.strerror or error})") from None

    @classmethod
    def load(cls, path: str | Path, fingerprint: str) -> "Phrasebook":
        """Raises `InputError` if the file is missing, damaged or made for another tokenizer."""
        path = Path(path)
        learn = "learn one with: ./specdrive train draft --kind phrasebook"
        if not path.is_file():
            raise InputError(f"{path}: no phrasebook there; {learn}")
        try:
            with safe_open(str(path), "numpy") as file:
                about = file.metadata() or {}
                tokens, counts, first_child = (file.get_tensor(name) for name in ("tokens", "counts", "first_child"))
            whole = about["kind"] == cls.name and about["version"] == VERSION
            end, made_for = int(json.loads(about["end"])), about["tokenizer"]
            whole = whole and _is_trie(tokens, counts, first_child)
        except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
            raise InputError(f"{path}: is no whole phrasebook ({' '.join(str(error).split())}); {learn}") from None
        if not whole:
            raise InputError(f"{path}: is no phrasebook of version {VERSION}; {learn}")
        if made_for != fingerprint:
            raise InputError(
                f"{path}: is a phrasebook of tokenizer {made_for}, the model's is {fingerprint}; {learn} --model MODEL"
            )
        return cls(tokens, counts.astype(np.int64), first_child, end)


def _flatten(counts: Counter) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tokens, counts and first children of contexts, level by level, the most frequent sibling first."""
    children: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
    for context in counts:
        children.setdefault(context[:-1], []).append(context)
    order, first_child, index = [()], [], 0
    while index < len(order):
        first_child.append(len(order))
        order += sorted(children.get(order[index], ()), key=lambda context: (-counts[context], context[-1]))
        index += 1
    tokens = np.array([context[-1] if context else BEGINNING for context in order], np.int32)
    seen = np.array([counts[context] if context else 0 for context in order], np.int64)
    return tokens, seen, np.array([*first_child, len(order)], np.int32)


def _is_trie(tokens: np.ndarray, counts: np.ndarray, first_child: np.ndarray) -> bool:
    """Whether the arrays can be walked without a fault."""
    size = len(tokens)
    return bool(
        size
        and tokens.shape == counts.shape
        and first_child.shape == (size + 1,)
        and first_child[0] == 1
        and first_child[-1] == size
        and (np.diff(first_child) >= 0).all()
        and (first_child[:-1] > np.arange(size)).all()
        and (counts[1:] > 0).all()
    )
