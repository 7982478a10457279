"""GRPO and the anchor, each formula by numbers worked out by hand, and what the two anchors do to a toy policy."""

import math

import pytest
import torch

from specdrive_ros.training.aarl_objective import (
    anchor_set,
    anchored_divergence,
    canonical,
    clipped_surrogate,
    divergence,
    group_advantages,
)


def test_advantages_are_deviations_of_the_group():
    """Mean 2, deviations -1, -1, 0, 2: variance 6 / 4."""
    spread = math.sqrt(1.5)
    found = group_advantages(torch.tensor([[1.0, 1.0, 2.0, 4.0], [7.0, 7.0, 7.0, 7.0]]))
    assert found[0].tolist() == pytest.approx([-1 / spread, -1 / spread, 0.0, 2 / spread], abs=1e-6)
    assert found[1].tolist() == [0.0] * 4


def test_the_rounding_of_plans_decides_nothing():
    """Rewards that differ by a tenth of a millimetre: no rollout is a standard deviation better than another."""
    found = group_advantages(torch.tensor([0.5, 0.5001, 0.5, 0.5001]))
    assert found.abs().max() < 0.01 and found[1] > found[0]


def test_the_ratio_is_clipped_where_it_would_gain_by_going_further():
    """Two rollouts of two tokens. Advantage 1: ratios 1.5 (clipped to 1.28) and 0.5 (left alone, it is worse).
    Advantage -1: ratios 0.5 (clipped to 0.8) and 1.5 (left alone); of its tokens the second does not count."""
    new = torch.log(torch.tensor([[1.5, 0.5], [0.5, 1.5]]))
    real = torch.tensor([[True, True], [True, False]])
    loss = clipped_surrogate(new, torch.zeros(2, 2), torch.tensor([1.0, -1.0]), real, 0.2, 0.28)
    assert float(loss) == pytest.approx(-((1.28 + 0.5) / 2 + (-0.8)) / 2, abs=1e-6)


def test_a_clipped_ratio_has_no_gradient_and_one_within_has():
    for ratio, moves in ((1.1, True), (1.4, False)):
        new = torch.tensor([[math.log(ratio)]], requires_grad=True)
        clipped_surrogate(
            new, torch.zeros(1, 1), torch.ones(1), torch.ones(1, 1, dtype=torch.bool), 0.2, 0.28
        ).backward()
        assert bool(new.grad.abs().sum() > 0) is moves


def test_rollouts_without_a_token_do_not_count():
    real = torch.tensor([[True], [False]])
    loss = clipped_surrogate(torch.zeros(2, 1), torch.zeros(2, 1), torch.tensor([3.0, 100.0]), real, 0.2, 0.28)
    assert float(loss) == pytest.approx(-3.0)


def test_divergence_of_two_known_distributions():
    """0.5 log(0.5 / 0.25) + 0.5 log(0.5 / 0.75)."""
    own, reference = torch.log(torch.tensor([[0.5, 0.5]])), torch.log(torch.tensor([[0.25, 0.75]]))
    assert float(divergence(own, reference)) == pytest.approx(0.5 * math.log(2) + 0.5 * math.log(2 / 3), abs=1e-6)


def test_static_holds_the_references_positions_and_self_the_policys():
    """Three places; the target's words are 0, 1 and one the draft does not have."""
    reference = torch.log(torch.tensor([[0.7, 0.3], [0.2, 0.8], [0.6, 0.4]]))
    own = torch.log(torch.tensor([[0.4, 0.6], [0.1, 0.9], [0.5, 0.5]]))
    places = torch.tensor([0, 1, -1])
    assert canonical(reference, places).tolist() == [True, True, False]
    assert anchor_set("static", own, reference, places).tolist() == [True, True, False]
    assert anchor_set("self", own, reference, places).tolist() == [False, True, False]
    each = divergence(own, reference)
    assert float(anchored_divergence(own, reference, torch.tensor([True, True, False]))) == pytest.approx(
        float(each[:2].mean())
    )
    assert float(anchored_divergence(own, reference, torch.zeros(3, dtype=torch.bool))) == 0.0


def post_trained(anchor: str, seed: int = 0) -> tuple[list[int], list[float]]:
    """A policy of two words at 60 places, logits of its own each, whose first choice is the target's word (0) at every
    place, with a margin that differs. Rewards are noise: neither word is better. Set size and agreement a step."""
    torch.manual_seed(seed)
    places, rollouts = 60, 4
    margins = torch.linspace(0.05, 2.0, places)
    reference = torch.log_softmax(torch.stack([margins, torch.zeros(places)], -1), -1)
    logits = reference.clone().requires_grad_(True)
    optimizer = torch.optim.SGD([logits], lr=1.0)
    wanted, sizes, agreements = torch.zeros(places, dtype=torch.long), [], []
    for _ in range(300):
        log_probs = torch.log_softmax(logits, -1)
        tokens = torch.multinomial(log_probs.detach().exp(), rollouts, replacement=True)
        chosen = log_probs.gather(-1, tokens)
        advantages = group_advantages(torch.randn(places, rollouts))
        gain = clipped_surrogate(
            chosen[..., None],
            chosen.detach()[..., None],
            advantages,
            torch.ones(places, rollouts, 1, dtype=torch.bool),
            0.2,
            0.28,
        )
        held = anchor_set(anchor, log_probs, reference, wanted)
        sizes.append(int(held.sum()))
        agreements.append(float(canonical(log_probs, wanted).float().mean()))
        optimizer.zero_grad()
        (places * (gain + 1.0 * anchored_divergence(log_probs, reference, held))).backward()
        optimizer.step()
    return sizes, agreements


def test_the_set_of_self_shrinks_and_that_of_static_does_not():
    """Noise pushes near ties over. The frozen set pulls them back; the policy's own set lets them go, one by one."""
    static_sizes, static_agreement = post_trained("static")
    own_sizes, own_agreement = post_trained("self")
    assert set(static_sizes) == {60}
    assert own_sizes[0] == 60 and own_sizes[-1] < 50
    assert own_agreement[-1] < static_agreement[-1]
