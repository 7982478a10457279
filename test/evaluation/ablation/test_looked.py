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


def looked_at(kind: str):
    """States and weights per step of a draft of chance weights, behind a prompt of four and five tokens of answer."""
    from specdrive_ros.draft.checkpoint import new_draft
    from specdrive_ros.draft.config import DFlashConfig, Eagle3Config
    from specdrive_ros.evaluation.ablation.attention import weights_of
    from specdrive_ros.training.aarl_policy import make_policy
    from specdrive_ros.training.aarl_training import every_state
    from specdrive_ros.training.frozen_target import FrozenTarget

    torch.manual_seed(0)
    sizes = dict(hidden_size=16, intermediate_size=16, num_attention_heads=2, num_key_value_heads=1, head_dim=8)
    sizes |= dict(vocab_size=12, target_layers=4, tap_layers=(1, 2), rope_theta=1e4)
    if kind == "dflash":
        draft = new_draft(DFlashConfig(**sizes, num_hidden_layers=2, block_size=4, mask_token_id=1))
    else:
        draft = new_draft(Eagle3Config(**sizes, num_hidden_layers=1, draft_vocab_size=12))
        draft.set_vocabulary(np.arange(12))
    target = FrozenTarget(torch.randn(12, 16), torch.ones(16), torch.randn(12, 16), 1e-6)
    written = torch.arange(9)[None] >= 4
    batch = {
        "token_ids": torch.randint(0, 12, (1, 9)),
        "loss_mask": written.to(torch.uint8),
        "visible": torch.ones(1, 9, dtype=torch.bool),
        "taps": torch.randn(1, 9, 32),
        "positions": torch.arange(9).expand(3, 1, 9),
    }
    states = every_state(batch, 3)
    with torch.no_grad():
        return states, weights_of(make_policy(draft, target), batch, states)


@pytest.mark.parametrize("kind, layers", [("eagle3", 1), ("dflash", 2)])
def test_a_draft_looks_at_the_true_rows_before_it_and_at_its_own(kind, layers):
    """Behind the newest token at place 4 … 8 the target's states are known up to the place before it."""
    states, looked = looked_at(kind)
    assert len(looked) == 3
    for step, weights in enumerate(looked):
        own = 4 if kind == "dflash" else step  # a block sees all of itself, a chain what it has written
        assert weights.shape == (layers, 2, 5, 9 + own)
        assert torch.allclose(weights.sum(-1), torch.ones(layers, 2, 5), atol=1e-5)
        for place, newest in enumerate(states.anchors[0].tolist()):
            assert (weights[:, :, place, :newest] > 0).all() and (weights[:, :, place, newest:9] == 0).all()
            assert (weights[:, :, place, 9:] > 0).all()


def test_a_block_begins_with_a_true_word():
    """Its first slot holds the newest token of the text: what looks there does not look ahead."""
    looked = torch.zeros(1, 1, 1, 7)
    looked[..., 5] = 0.75
    looked[..., 6] = 0.25
    share, _ = shares_of([looked], SOURCES, np.ones((1, 1)), (WRITTEN,))
    assert share[0, 0, 0, WRITTEN] == pytest.approx(0.75) and share[0, 0, 0, AHEAD] == pytest.approx(0.25)
