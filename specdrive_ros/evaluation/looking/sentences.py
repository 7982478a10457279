"""Compares sentences with the label's, and reads them back into the phrases they were made from.

Tokens here are words and punctuation marks, so that models with other tokenizers can be compared.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from specdrive_ros.sim.phrases import PHRASES

MOST_SLOT_WORDS = 5  # "about 20 m ahead" has four
_TOKEN = re.compile(r"\w+|[^\w\s]")
_PIECE = re.compile(r"\{(\w+)\}|\[([^\]]+)\]")
_SLOT = rf"([\w'-]+(?: [\w'-]+){{0,{MOST_SLOT_WORDS - 1}}}?)"


@dataclass(frozen=True)
class Reading:
    """What a sentence says. slots: names and words, as in sim/phrases.py; if two slots are adjacent, how their words
    are divided between them is a guess."""

    decision: str
    cause: str
    slots: dict[str, str]


def read_sentence(text: str) -> Reading | None:
    """The phrase of which this is an instance, and its slots; None if it matches no phrase.

    If several phrases match, the one with the most fixed characters, which leaves the least to its slots.
    """
    for pattern, names, decision, cause in _patterns():
        found = pattern.fullmatch(text.strip())
        if found is not None:
            return Reading(decision, cause, dict(zip(names, found.groups())))
    return None


@cache
def _patterns() -> list[tuple[re.Pattern, tuple[str, ...], str, str]]:
    """(pattern, slot names, decision, cause) of every phrase, most fixed characters first."""
    rows = []
    for (decision, cause), phrases in PHRASES.items():
        for phrase in phrases:
            parts = _PIECE.split(phrase)  # fixed, slot or None, word or None, fixed, …
            fixed, names, words = parts[0::3], parts[1::3], parts[2::3]
            pattern = re.escape(fixed[0])
            for name, word, after in zip(names, words, fixed[1:]):
                pattern += (_SLOT if name else re.escape(word)) + re.escape(after)
            size = sum(map(len, fixed)) + sum(len(word) for word in words if word)
            rows.append((size, re.compile(pattern), tuple(filter(None, names)), decision, cause))
    return [row[1:] for row in sorted(rows, key=lambda row: -row[0])]


def token_f1(answer: str, label: str) -> float:
    """Harmonic mean of precision and recall of the label's tokens, each counted as often as it occurs; 1 if both are
    empty."""
    ours, theirs = Counter(_TOKEN.findall(answer)), Counter(_TOKEN.findall(label))
    common = sum((ours & theirs).values())
    total = sum(ours.values()) + sum(theirs.values())
    return 2 * common / total if total else 1.0


def slots_right(answer: str, label: str, spans: Sequence[tuple[int, int]]) -> int:
    """How many of the label's visual words (character spans) the answer has in their place.

    Both are aligned by their longest common subsequence of tokens. A slot is right if all of its tokens are aligned
    with adjacent tokens: the word is there, in the same order relative to what both have in common. The answer's
    phrase may be a different one.
    """
    tokens = list(_TOKEN.finditer(label))
    place = _aligned([token.group() for token in tokens], _TOKEN.findall(answer))
    right = 0
    for start, end in spans:
        places = [place[k] for k, token in enumerate(tokens) if start < token.end() and token.start() < end]
        right += None not in places and places == list(range(places[0], places[0] + len(places)))
    return right


def _aligned(ours: list[str], theirs: list[str]) -> list[int | None]:
    """For each of our tokens, the index of its partner in a longest common subsequence, or None."""
    best = [[0] * (len(theirs) + 1) for _ in range(len(ours) + 1)]
    for i in reversed(range(len(ours))):
        for j in reversed(range(len(theirs))):
            same = ours[i] == theirs[j]
            best[i][j] = best[i + 1][j + 1] + 1 if same else max(best[i + 1][j], best[i][j + 1])
    place: list[int | None] = [None] * len(ours)
    i = j = 0
    while i < len(ours) and j < len(theirs):
        if ours[i] == theirs[j]:
            place[i], i, j = j, i + 1, j + 1
        elif best[i + 1][j] >= best[i][j + 1]:
            i += 1
        else:
            j += 1
    return place
