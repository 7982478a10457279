import numpy as np
import pytest

from specdrive_ros.draft.carryover import Carryover, places
from specdrive_ros.draft.draft import DraftContext

SENTENCE = (10, 11, 12, 13, 14, 15, 90, 91)


def propose(written, previous=SENTENCE, nodes: int = 20):
    nothing = np.zeros((0, 1))
    context = DraftContext(np.zeros(1, int), written, written[-1], nothing, np.zeros((3, 0)), 0, previous)
    return Carryover().propose(context, nodes)


def paths(tree) -> list[list[int]]:
    return [tree.tokens[path].tolist() for path in tree.paths()]


def test_the_rest_of_the_sentence_where_all_agrees():
    tree = propose((10, 11))
    assert tree.is_chain and tree.tokens.tolist() == [12, 13, 14, 15, 90, 91]
    assert (np.diff(tree.log_probs) < 0).all() and tree.log_probs[0] < 0


@pytest.mark.parametrize(
    "written, first",
    [
        ((10, 99), [12, 13, 14, 15, 90, 91]),  # a word exchanged
        ((10, 99, 12), [13, 14, 15, 90, 91]),  # and agreeing again behind it
        ((10, 99, 98, 12, 13), [14, 15, 90, 91]),  # one word became two
        ((10, 12), [13, 14, 15, 90, 91]),  # one left out
        ((10, 11, 99, 12), [13, 14, 15, 90, 91]),  # one put in
    ],
)
def test_resynchronises_after_a_changed_word(written, first):
    tree = propose(written)
    best = paths(tree.pruned(len(first)))
    assert best == [first]


def test_the_second_place_is_a_branch_of_its_own():
    branches = paths(propose((10, 99)))
    assert [12, 13, 14, 15, 90, 91] in branches and [11, 12, 13, 14, 15, 90, 91] in branches


def test_nothing_to_carry_over():
    assert len(propose((10,), previous=())) == 0
    assert len(propose(SENTENCE)) == 0
    assert places((1,), ()) == []


def test_budget():
    assert len(propose((10, 99), nodes=4)) == 4 and len(propose((10,), nodes=0)) == 0
