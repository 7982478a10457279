"""Shares, entropies and tokens right, by numbers known beforehand."""

import math

import numpy as np
import pytest
import torch

from specdrive_ros.evaluation.ablation.attention import shares_of
from specdrive_ros.evaluation.ablation.tokens import TokensRight, routine_less_vision, supplied, token_figures
from specdrive_ros.evaluation.ablation.traces import AHEAD, HISTORY, PROMPT_TEXT, VISION, WRITTEN

SOURCES = np.array([PROMPT_TEXT, VISION, VISION, HISTORY, WRITTEN])


def test_an_even_look_has_the_rows_shares_and_the_largest_entropy():
    even = torch.full((2, 3, 4, 6), 1 / 6)  # the sixth row is the draft's own
    share, entropy = shares_of([even], SOURCES, np.ones((1, 4)))
    assert share.shape == (2, 3, 1, 5) and entropy.shape == (2, 3, 1)
    assert share[0, 0, 0] / 4 == pytest.approx([2 / 6, 1 / 6, 1 / 6, 1 / 6, 1 / 6])
    assert entropy[1, 2, 0] / 4 == pytest.approx(math.log(6))


def test_a_look_at_one_row_has_no_entropy_and_places_that_do_not_count_are_left_out():
    looked = torch.zeros(1, 1, 2, 6)
    looked[0, 0, 0, 3] = looked[0, 0, 1, 5] = 1.0
    share, entropy = shares_of([looked, looked], SOURCES, np.array([[1, 1], [1, 0]]))
    assert share[0, 0, 0].tolist() == [0, 1, 0, 0, 1] and share[0, 0, 1].tolist() == [0, 1, 0, 0, 0]
    assert share[0, 0, 0, AHEAD] == 1 and entropy.max() == pytest.approx(0.0)


def test_tokens_supplied_follow_the_passes():
    """Two accepted behind the first, the target's own, one accepted behind it, the target's own."""
    assert supplied(np.array([2, 0, 0, 1, 5, 0])).tolist() == [False, True, True, False, True, False]


def test_shares_of_tokens_right_by_need():
    """Two answers of four tokens, whose first is nobody's; two seeds."""
    needs = [
        {
            "routine": np.array([1, 1, 1, 0], bool),
            "vision": np.array([0, 0, 0, 1], bool),
            "history": np.array([0, 0, 0, 1], bool),
        },
        {"routine": np.array([1, 1, 0, 0], bool), "vision": np.array([0, 0, 1, 1], bool), "history": np.zeros(4, bool)},
    ]
    good = TokensRight(np.array([0, 1, 1, 0], bool), np.array([0, 1, 0, 0], bool))
    bad = TokensRight(np.array([0, 1, 0, 0], bool), np.array([0, 0, 0, 0], bool))
    found = token_figures({0: [good, good], 1: [bad, good]}, needs)
    assert found["tokens"] == {"routine": 3, "vision": 3, "history": 1}
    assert found["first"]["routine"]["mean"] == pytest.approx(5 / 6, abs=1e-4)
    assert found["first"]["vision"]["mean"] == pytest.approx(2 / 6, abs=1e-4)
    assert found["supplied"]["routine"]["mean"] == pytest.approx(3 / 6, abs=1e-4)
    assert routine_less_vision({0: [good, good], 1: [bad, good]}, needs)["mean"] == pytest.approx(0.5)
    blind = [{**each, "vision": np.zeros(4, bool)} for each in needs]
    assert routine_less_vision({0: [good, good]}, blind) is None
