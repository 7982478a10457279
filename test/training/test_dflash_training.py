"""Anchors, blocks and masks; losses and gradients are held by test/golden."""

import numpy as np
import pytest
import torch

from specdrive_ros.draft.checkpoint import new_draft
from specdrive_ros.draft.config import DFlashConfig
from specdrive_ros.training.dflash_training import (
    block_mask,
    block_rotary,
    block_states,
    default_gamma,
    draw_anchors,
    make_blocks,
    own_block_states,
)


def test_anchors_stand_where_two_supervised_tokens_follow():
    mask = np.array([[0, 0, 1, 1, 0, 1, 1, 1], [0, 0, 0, 0, 0, 0, 0, 1]])
    anchors, keep = draw_anchors(mask, 5, np.random.default_rng(0))
    assert anchors[0][keep[0]].tolist() == [2, 5, 6]
    assert not keep[1].any()
    few, kept = draw_anchors(mask, 2, np.random.default_rng(0))
    assert kept[0].all() and set(few[0]) < {2, 5, 6}
    drawn = [draw_anchors(mask, 2, np.random.default_rng(7))[0].tolist() for _ in range(2)]
    assert drawn[0] == drawn[1]


def test_a_block_sees_what_lies_before_its_anchor_and_itself():
    seen = block_mask(torch.tensor([[2, 4]]), torch.tensor([[True, True]]), 3, 6)[0, 0]
    assert seen[:3, :6].tolist() == [[True, True, False, False, False, False]] * 3
    assert seen[3:, :6].tolist() == [[True] * 4 + [False] * 2] * 3
    assert seen[:3, 6:].tolist() == [[True] * 3 + [False] * 3] * 3  # both ways, never the other block
    assert seen[3:, 6:].tolist() == [[False] * 3 + [True] * 3] * 3


def test_labels_are_the_true_tokens_and_near_ones_weigh_most():
    ids, mask = torch.tensor([[10, 11, 12, 13, 14]]), torch.tensor([[0, 0, 1, 1, 1]])
    blocks = make_blocks(ids, mask, torch.tensor([[2, 3]]), torch.tensor([[True, True]]), 4, 99, gamma=2.0)
    assert blocks.token_ids[0].tolist() == [[12, 99, 99, 99], [13, 99, 99, 99]]
    assert blocks.labels[0, 0, :3].tolist() == [12, 13, 14]
    weights = blocks.weights[0].numpy()
    np.testing.assert_allclose(weights[0], [0, 1, np.exp(-0.5), 0], rtol=1e-6)  # the anchor, and behind the end: none
    np.testing.assert_allclose(weights[1], [0, 1, 0, 0])
    assert blocks.positions.tolist() == [[2, 3, 4, 5, 3, 4, 5, 6]]


def test_published_decays():
    assert default_gamma(8) == 4.0 and default_gamma(16) == 7.0 and default_gamma(32) == 14.0


@pytest.mark.parametrize("rope", ["flat", "mirror"])
def test_blocks_by_themselves_are_the_blocks_of_the_mask(rope):
    """States and gradients of the quick way are those of one long sequence under `block_mask`."""
    section = (2, 1, 1) if rope == "mirror" else None
    config = DFlashConfig(hidden_size=16, intermediate_size=24, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
                          vocab_size=24, target_layers=4, tap_layers=(1, 2), rope_theta=1e4, num_hidden_layers=2,
                          block_size=6, mask_token_id=1, rope=rope, mrope_section=section)  # fmt: skip
    torch.manual_seed(0)
    draft, ids = new_draft(config), torch.randint(2, 24, (2, 15))
    written = torch.arange(15) >= torch.tensor([[6], [7]])
    anchors, keep = torch.tensor([[6, 8, 9], [7, 11, 0]]), torch.tensor([[True] * 3, [True, True, False]])
    blocks = make_blocks(ids, written, anchors, keep, 6, 1, 2.0)
    rotary = block_rotary(config.make_rope(), torch.arange(15).expand(3, 2, 15), blocks.positions)
    given = draft, torch.randn(24, 16)[blocks.token_ids.flatten(1)], torch.randn(2, 15, 32), *rotary
    found = []
    for states in (block_states(*given, blocks.mask), own_block_states(*given, anchors)):
        draft.zero_grad()
        kept = states.unflatten(1, (3, 6))[blocks.supervised > 0]
        kept.pow(3).sum().backward()
        found.append([kept.detach(), *(parameter.grad.clone() for parameter in draft.parameters())])
    for one, other in zip(*found):
        assert torch.allclose(one, other, rtol=1e-4, atol=1e-4 * float(one.abs().max()))
