"""How far a phrasebook alone gets on a text of chains of causation: no model, no network.

Five random 80/20 splits, repetitions kept: learn four fifths, then write the rest with the phrasebook's proposals as
the decoding loop would: a pass writes the target's own token and as much of the proposal after it as agrees. The first
token of a sentence is thus given, as by the prefill; `guessed` counts as if it were not, and each sentence began with
a pass over guesses.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from specdrive_ros.decoding.token_tree import TokenTree
from specdrive_ros.draft.company import agreeing
from specdrive_ros.draft.phrasebook import Phrasebook
from specdrive_ros.errors import InputError

SPLITS, HELD_OUT, BLOCK = 5, 0.2, 16
SHAPES = (("chain", BLOCK), ("tree", 16), ("tree", 60), ("tree", 128))  # rows of a pass, the root included
LEAST_SENTENCES = 10
END = 0

Propose = Callable[[Sequence[int]], TokenTree]


@dataclass(frozen=True)
class PhraseResult:
    """One shape over all splits. unseen: only sentences that the phrasebook had not learnt."""

    shape: str
    rows: int
    by_split: tuple[float, ...]
    tokens: int
    target_passes: int
    guessed: float
    unseen: float | None

    @property
    def accepted_length(self) -> float:
        return self.tokens / self.target_passes


def words_as_tokens(lines: Sequence[str]) -> list[tuple[int, ...]]:
    """Words and punctuation marks as token ids, each sentence closed by the end token."""
    ids: dict[str, int] = {}
    return [
        (*(ids.setdefault(word, len(ids) + 1) for word in re.findall(r"\w+|[^\w\s]", line)), END) for line in lines
    ]


def measure_phrases(sentences: Sequence[tuple[int, ...]], seed: int = 0) -> list[PhraseResult]:
    """sentences: token ids including the end token. Raises `InputError` if there are too few."""
    if len(sentences) < LEAST_SENTENCES:
        raise InputError(f"{len(sentences)} sentences: at least {LEAST_SENTENCES} are needed to learn and to measure")
    splits = [_split(sentences, seed + number) for number in range(SPLITS)]
    books = [Phrasebook.learn(learnt) for learnt, _ in splits]
    return [_measure(shape, rows, splits, books) for shape, rows in SHAPES]


def _split(sentences, seed: int) -> tuple[list, list]:
    """(to learn, to write): four fifths and one fifth."""
    order = np.random.default_rng(seed).permutation(len(sentences))
    held_out = max(1, round(HELD_OUT * len(sentences)))
    return [sentences[index] for index in order[held_out:]], [sentences[index] for index in order[:held_out]]


def _measure(shape: str, rows: int, splits, books: list[Phrasebook]) -> PhraseResult:
    counts = []  # per split: tokens, passes, passes with the first token guessed, and tokens and passes of unseen ones
    for (learnt, held_out), book in zip(splits, books, strict=True):
        propose = _proposals(book, shape, rows - 1)
        known = set(learnt)
        passes = {sentence: count_passes(sentence, propose) for sentence in set(held_out)}
        guessed = {sentence: count_passes(sentence, propose, guess_first=True) for sentence in set(held_out)}
        unseen = [sentence for sentence in held_out if sentence not in known]
        counts.append(
            (
                sum(map(len, held_out)),
                sum(passes[sentence] for sentence in held_out),
                sum(guessed[sentence] for sentence in held_out),
                sum(map(len, unseen)),
                sum(passes[sentence] for sentence in unseen),
            )
        )
    tokens, passes, guessed, unseen_tokens, unseen_passes = (int(total) for total in np.sum(counts, axis=0))
    by_split = tuple(split[0] / split[1] for split in counts)
    unseen = unseen_tokens / unseen_passes if unseen_passes else None
    return PhraseResult(shape, rows, by_split, tokens, passes, tokens / guessed, unseen)


def _proposals(book: Phrasebook, shape: str, nodes: int) -> Propose:
    propose = book.chain if shape == "chain" else book.tree
    return lambda written: propose(written, nodes)


def count_passes(sentence: Sequence[int], propose: Propose, *, guess_first: bool = False) -> int:
    """Passes of the target that it takes to write a sentence with these proposals."""
    written, passes = 0, 0
    while written < len(sentence):
        own = 0 if guess_first else 1  # the target's own token comes before its proposal, or after it
        tree = propose(sentence[: written + own])
        written += own + agreeing(tree, sentence[written + own :]) + (1 - own)
        passes += 1
    return passes
