from dataclasses import replace

import numpy as np
import pytest

from specdrive_ros.decoding.token_tree import TokenTree
from specdrive_ros.draft.asking import AskingCost
from specdrive_ros.draft.company import ASKED_AGAIN, Company, PassCosts, agreeing, best_width, reranked
from specdrive_ros.draft.draft import DraftContext
from specdrive_ros.errors import InputError

FLAT = PassCosts((1, 64), (1.0, 1.0))
STEEP = PassCosts((1, 2), (1.0, 2.0))


class Fixed:
    """Always the same chain; keeps what it was told."""

    def __init__(self, name, tokens, log_probs=None):
        self.name, self.tree, self.contexts = name, TokenTree.chain(tokens, log_probs), []

    def begin(self):
        self.contexts = []

    def propose(self, context, nodes):
        self.contexts.append(context)
        return self.tree


def context(written=(1,), row: int = 0, previous=()):
    return DraftContext(np.zeros(1, int), written, written[-1], np.full((1, 2), row), np.full((3, 1), row), 0, previous)


def test_costs_between_and_beyond_the_table():
    costs = PassCosts((1, 8, 16), (1.0, 2.0, 4.0))
    np.testing.assert_allclose(costs.of(np.array([1, 8, 12, 16, 24])), [1, 2, 3, 4, 6])
    assert FLAT.most_nodes == 127 and STEEP.most_nodes == 1


@pytest.mark.parametrize(
    "rows, ms",
    [((1,), (1.0,)), ((1, 1), (1.0, 1.0)), ((0, 2), (1.0, 1.0)), ((1, 2), (1.0, 0.0)), ((1, 2), (1.0, np.nan))],
)
def test_wrong_costs(rows, ms):
    with pytest.raises(InputError, match="pass costs"):
        PassCosts(rows, ms)


def test_costs_are_kept_beside_a_model(tmp_path):
    assert PassCosts.load(tmp_path) == PassCosts()
    STEEP.save(tmp_path)
    assert PassCosts.load(tmp_path) == STEEP
    known = replace(STEEP, drafts={"dflash-flat": AskingCost(0.5, 0.01)})
    known.save(tmp_path)
    assert PassCosts.load(tmp_path) == known
    (tmp_path / "drafts" / "pass_costs.json").write_text('{"rows": 3}')
    with pytest.raises(InputError, match="pass_costs.json: is no table"):
        PassCosts.load(tmp_path)


def test_free_rows_are_all_taken_and_dear_ones_only_while_they_pay():
    assert best_width([0.9, 0.5, 0.1, 0.01], FLAT) == (4, pytest.approx(2.51))
    assert best_width([0.9, 0.5], STEEP)[0] == 0  # 1.9 tokens for twice the time
    costs = PassCosts((1, 2, 3), (1.0, 1.2, 2.4))
    assert best_width([0.2, 0.9], costs) == (1, pytest.approx(1.9 / 1.2))
    assert best_width([], FLAT) == (0, 1.0)


def test_trees_are_merged_and_credited():
    company = Company([Fixed("a", [5, 6], [-0.1, -0.9]), Fixed("b", [5, 7], [-0.2, -0.3])], FLAT)
    tree = company.propose(context(), 10)
    assert company.name == "a+b" and tree.tokens.tolist() == [5, 6, 7] and tree.proposers == ("a", "a", "b")
    assert len(company.propose(context(), 1)) == 1


def test_width_follows_the_costs():
    company = Company([Fixed("a", [5, 6], [-0.01, -3.0])], PassCosts((1, 2, 3), (1.0, 1.1, 2.0)))
    assert len(company.propose(context(), 9)) == 1


def test_a_dear_draft_that_brings_nothing_is_asked_no_more_and_loses_no_rows():
    cheap, dear = Fixed("cheap", [5, 6], [-0.1, -0.2]), Fixed("dear", [9])
    company = Company([cheap, dear], FLAT, {"dear": AskingCost(0.5)})
    company.begin()
    written = [1]
    for row in range(3):
        company.propose(context(tuple(written), row), 10)
        written += [5, 6, 1]  # what the cheap one said, and a word of the target's own
    assert len(cheap.contexts) == 3 and len(dear.contexts) == 1 and company.expected["dear"] == 0
    company.expected["dear"] = 9.0
    company.propose(context(tuple(written), 3), 10)
    assert dear.contexts[-1].taps[:, 0].tolist() == [1, 2, 3] and dear.contexts[-1].positions.shape == (3, 3)


def test_a_draft_that_foretells_a_whole_reasoning_is_credited_with_it():
    """There is no second proposal in such a reasoning; a cycle that is carried over whole makes none at all."""
    company = Company([Fixed("a", [5, 6, 7])], FLAT, {"a": AskingCost(0.5)})
    company.begin()
    company.propose(context((1,)), 10)
    assert company.expected == {}
    company.begin()
    company.begin()
    company.propose(context((2,), previous=(1, 5, 6, 7)), 10)
    assert company.expected == {"a": 3.0}
    company.propose(context((2, 8), previous=(1, 5, 6, 7)), 10)
    assert company.expected["a"] < 3.0


def test_a_draft_that_does_not_pay_gets_another_try():
    """And what it reads of the prompt counts: spread over the proposals of a reasoning."""
    cheap, dear = Fixed("cheap", [5], [-0.1]), Fixed("dear", [5, 6, 7])
    company = Company([cheap, dear], FLAT, {"dear": AskingCost(0.5)})
    company.begin()
    for row in range(ASKED_AGAIN + 2):
        company.propose(context((*[1, 9] * row, 1), row), 10)  # nobody is ever right
    assert len(dear.contexts) == 2 and len(dear.contexts[1].taps) == ASKED_AGAIN + 1
    assert AskingCost(0.5, 0.1).of(101, proposals=4) == pytest.approx(0.5 + 10 / 4)


class Judge(Fixed):
    """A network that thinks little of any word but 5."""

    def edges(self, tree):
        return np.where(tree.tokens == 5, -0.01, np.where(tree.tokens == 8, np.nan, -9.0))


def test_a_network_ranks_the_words_of_the_cheap_ones():
    phrases = TokenTree(np.array([4, 5, 8]), np.array([-1, -1, 1]), np.log([0.6, 0.3, 0.3 * 0.9]))
    cheap = Fixed("cheap", [])
    cheap.tree = phrases
    alone = Company([cheap], FLAT).propose(context(), 3).pruned(2)
    together = Company([cheap, Judge("judge", [])], FLAT).propose(context(), 3).pruned(2)
    assert alone.tokens.tolist() == [4, 5] and together.tokens.tolist() == [5, 8]
    np.testing.assert_allclose(np.exp(together.log_probs), [(0.3 + np.exp(-0.01)) / 2, (0.3 + np.exp(-0.01)) / 2 * 0.9])


def test_an_opinion_that_is_rubbish_leaves_a_tree_that_can_be_ranked():
    tree = TokenTree.chain([1, 2, 3], [-0.1, -0.5, -0.7])
    np.testing.assert_allclose(reranked(tree, np.full(3, np.nan)).log_probs, tree.log_probs)
    assert np.isfinite(reranked(tree, np.full(3, -np.inf)).log_probs).all()
    assert (reranked(tree, np.full(3, np.inf)).log_probs <= 0).all()


def test_a_judge_that_raises_leaves_the_others_words():
    class Broken(Fixed):
        def edges(self, tree):
            raise ZeroDivisionError("oh")

    assert Company([Fixed("a", [5]), Broken("b", [6])], FLAT).propose(context(), 5).tokens.tolist() == [5, 6]


def test_a_broken_member_leaves_the_others_words(caplog):
    class Broken(Fixed):
        def propose(self, context, nodes):
            raise ZeroDivisionError("oh")

    company = Company([Broken("broken", []), Fixed("a", [5])], FLAT)
    assert company.propose(context(), 5).tokens.tolist() == company.propose(context(), 5).tokens.tolist() == [5]
    assert [record.message for record in caplog.records] == ["draft broken: no proposal (ZeroDivisionError: oh)"]


@pytest.mark.parametrize("token", [-1, 10, 2**40])
def test_a_member_outside_of_the_vocabulary_leaves_the_others_words(token, caplog):
    company = Company([Fixed("broken", [5, token]), Fixed("a", [5, 9])], FLAT, vocabulary=10)
    for _ in range(2):
        tree = company.propose(context(), 5)
        assert tree.tokens.tolist() == [5, 9] and tree.proposers == ("a", "a")
    said = "draft broken: no proposal (ValueError: proposed a token outside of the vocabulary of 10)"
    assert [record.message for record in caplog.records] == [said]


def test_agreeing_follows_one_path():
    tree = TokenTree(np.array([1, 2, 3, 4]), np.array([-1, -1, 1, 0]), np.zeros(4))
    assert agreeing(tree, [2, 3, 9]) == 2 and agreeing(tree, [1, 3]) == 1 and agreeing(tree, [9]) == 0
    assert agreeing(TokenTree.empty(), [1]) == 0
