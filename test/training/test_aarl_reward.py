"""Rewards of token swaps by hand, with targets that are formulas: one plans by its words, one looks actions up."""

import math

import numpy as np
import pytest

from specdrive_ros.decoding.rules import ReasoningRules
from specdrive_ros.errors import InputError
from specdrive_ros.training.aarl_reward import Disturbance, Rewards, RewardScale, accepted, closed_text

COT_END, FUTURE_START, END_OF_TURN, BIN = 8, 9, 10, 11
ANSWER = (3, 1, 4, 1, 5, COT_END, FUTURE_START)


@pytest.fixture
def rules():
    return ReasoningRules(np.arange(12) == BIN, COT_END, FUTURE_START, END_OF_TURN, 10)


class Straight:
    """Drives straight on, a metre further a waypoint for each word of the text summed up; turns at the end by a tenth
    of a radian for each word 7."""

    def __init__(self):
        self.asked = []

    def trajectories(self, requests):
        self.asked.append(list(requests))
        plans = np.zeros((len(requests), 4, 3))
        for plan, (_, text) in zip(plans, requests):
            words = [token for token in text if token < COT_END]
            plan[:, 0] = np.arange(1, 5) + 0.1 * sum(words)
            plan[-1, 2] = 0.1 * words.count(7)
        return plans


@pytest.mark.parametrize(
    "newest, rollout, text",
    [
        (1, [4, 1, 5], ANSWER),
        (1, [4, 2, 5], (3, 1, 4, 2, 5, COT_END, FUTURE_START)),
        (0, [COT_END, FUTURE_START, 6], (3, COT_END, FUTURE_START)),  # ended early, what follows is void
        (0, [2, COT_END], (3, 2, COT_END, FUTURE_START)),  # its last word closes the text
        (3, [5, COT_END, FUTURE_START], ANSWER),
        (3, [5, 6, FUTURE_START], None),  # not closed before the plan begins
        (3, [5, COT_END, 6], None),  # runs past the end of the target's answer
        (1, [COT_END, 4], None),  # goes on behind its own end
        (1, [BIN, 4], None),  # a trajectory bin
        (1, [END_OF_TURN, 4], None),
    ],
)
def test_texts_that_can_be_closed(rules, newest, rollout, text):
    assert closed_text(ANSWER, newest, rollout, rules) == text


def test_a_text_that_is_too_long_is_none(rules):
    long = (*range(7), 1, COT_END, FUTURE_START)
    assert closed_text(long, 2, [3], rules) == long
    assert closed_text((0, *long), 2, [2], rules) is None


def test_tokens_the_target_would_accept():
    assert accepted(ANSWER, 1, [4, 1, 5]) == 3
    assert accepted(ANSWER, 1, [4, 2, 5]) == 1
    assert accepted(ANSWER, 1, [2, 1, 5]) == 0


def test_disturbance_of_two_plans():
    own = np.array([[1.0, 0.0, 0.0], [2.0, 0.0, 3.0]])
    other = np.array([[1.0, 3.0, 0.0], [5.0, 4.0, -3.0]])
    apart = Disturbance.between(own, other)
    assert apart.ade_m == pytest.approx((3 + 5) / 2)
    assert apart.heading_rad == pytest.approx(2 * math.pi - 6)  # the short way round


def test_rewards_of_token_swaps_by_hand(rules):
    """Word 1 -> 2 at place 3: a tenth of a metre everywhere. 1 -> 7: 0.6 m and a tenth of a radian. Scales 0.5 m and
    0.2 rad, floor -2, length 0.6."""
    rewards = Rewards(Straight(), rules, RewardScale(ade_m=0.5, heading_rad=0.2, floor=-2.0, length=0.6))
    found = rewards.of(
        [
            (0, ANSWER, 1, [4, 1, 5]),
            (0, ANSWER, 1, [4, 2, 5]),
            (0, ANSWER, 1, [4, 7, 5]),
            (0, ANSWER, 1, [7, 7, 7]),
            (0, ANSWER, 1, [COT_END, 4, 5]),
        ]
    )
    assert found.tolist() == pytest.approx(
        [
            0.6,  # identical: nothing is disturbed, all accepted
            -0.1 / 0.5 + 0.6 / 3,
            -0.6 / 0.5 - 0.1 / 0.2 + 0.6 / 3,
            -2.0,  # 1.1 m and 0.3 rad would be -3.7: no disturbance costs more than the floor
            -2.0,  # cannot be closed, so no length term either
        ]
    )


def test_the_targets_own_tokens_cost_nothing_however_its_answer_was_closed(rules):
    cut_off = (3, COT_END, 4, COT_END, FUTURE_START)
    assert closed_text(cut_off, 0, [COT_END, 4], rules) is None
    found = Rewards(Straight(), rules, RewardScale(length=0.5)).of(
        [(0, cut_off, 0, [COT_END, 4]), (0, cut_off, 0, [4, 4])]
    )
    assert found.tolist() == pytest.approx([0.5, -0.4])  # the other is closed properly, and 0.4 m further


def test_a_text_is_planned_once_and_many_in_a_batch(rules):
    source = Straight()
    rewards = Rewards(source, rules, RewardScale(), batch=3)
    swaps = [(number, ANSWER, 1, [4, word, 5]) for number in (0, 1) for word in (2, 6)]
    first = rewards.of(swaps + swaps)
    assert [len(requests) for requests in source.asked] == [2, 3, 1]  # the answers, then four texts in threes
    assert rewards.of(swaps + swaps).tolist() == first.tolist() and len(source.asked) == 3
    assert first[:4].tolist() == first[4:].tolist()


def test_what_is_known_survives_in_a_file(rules, tmp_path):
    rewards = Rewards(Straight(), rules, RewardScale())
    swaps = [(0, ANSWER, 1, [4, 2, 5]), (5, ANSWER, 0, [7, 4])]
    first = rewards.of(swaps)
    rewards.save(tmp_path / "rewards.json")
    again = Rewards(Straight(), rules, RewardScale())
    again.load(tmp_path / "rewards.json")
    assert again.of(swaps).tolist() == first.tolist() and again.asked == 0
    (tmp_path / "rewards.json").write_text("{")
    with pytest.raises(InputError, match="is no file of known rewards"):
        again.load(tmp_path / "rewards.json")


class Codebook:
    """A target without a flow head: every word of the text is a manoeuvre of a codebook, as action tokens are."""

    STEPS = np.random.default_rng(0).standard_normal((12, 3))

    def trajectories(self, requests):
        return np.stack([np.cumsum(self.STEPS[list(text[:4])], axis=0) for _, text in requests])


def test_a_target_without_a_flow_head_rewards_through_the_same_interface(rules):
    """The last of four words exchanged moves the last of four waypoints only."""
    rewards = Rewards(Codebook(), rules, RewardScale(ade_m=1e3, heading_rad=1e3, length=0.0))
    (found,) = rewards.of([(0, ANSWER, 2, [6])])
    step = Codebook.STEPS[6] - Codebook.STEPS[1]
    assert found == pytest.approx(-np.hypot(*step[:2]) / 4 / 1e3 - abs(step[2]) / 1e3)


@pytest.mark.parametrize("wrong", [{"ade_m": 0.0}, {"heading_rad": -1.0}, {"floor": 0.0}, {"length": -0.1}])
def test_scales_that_mean_nothing_are_refused(wrong):
    with pytest.raises(InputError, match="train aarl"):
        RewardScale(**wrong)
