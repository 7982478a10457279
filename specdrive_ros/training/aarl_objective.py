"""The objective of action-aware RL: GRPO (arXiv 2402.03300) plus an anchor on a draft's canonical positions.

A group is K rollouts from one state. A rollout's advantage is how much better it did than its group; the tokens of
better rollouts are made more probable, within a clipped ratio. The anchor is the Kullback-Leibler divergence from a
reference draft at *canonical* positions, those where the draft's first choice is the target's token:

`static`  canonical under the reference, i.e. under the draft as it was when post-training began (arXiv 2606.31160)
`self`    canonical under the current policy: a position it drifts away from is no longer held back

Pure functions of tensors. Letters: B samples, A states per sample, K rollouts per state, n tokens ahead, W draft
vocabulary.
"""

import torch
from torch import Tensor

ANCHORS = ("static", "self")
LEAST_SPREAD = 0.01  # of rewards; a centimetre of mean displacement: less comes from rounding the plans


def group_advantages(rewards: Tensor) -> Tensor:
    """[..., K] rewards of a group -> [..., K] standard deviations above the group's mean; 0 where all are equal.

    The standard deviation is the population's, but at least `LEAST_SPREAD`.
    """
    apart = rewards - rewards.mean(-1, keepdim=True)
    return apart / rewards.std(-1, keepdim=True, unbiased=False).clamp(min=LEAST_SPREAD)


def clipped_surrogate(new: Tensor, old: Tensor, advantages: Tensor, real: Tensor, low: float, high: float) -> Tensor:
    """The loss to minimise: minus the mean over rollouts of the mean over their tokens of
    min(ratio A, clip(ratio, 1 - low, 1 + high) A).

    new, old:   [..., K, n] log-probabilities of the sampled tokens, under the current policy and the one that sampled
                them
    advantages: [..., K]
    real:       [..., K, n] bool: tokens that count; a rollout without any is left out
    """
    ratio, each = torch.exp(new - old), advantages[..., None]
    gain = torch.minimum(ratio * each, ratio.clamp(1 - low, 1 + high) * each)
    counts = real.sum(-1)
    per_rollout = (gain * real).sum(-1) / counts.clamp(min=1)
    kept = counts > 0
    return -(per_rollout * kept).sum() / kept.sum().clamp(min=1)


def canonical(log_probs: Tensor, places: Tensor) -> Tensor:
    """[..., n] bool: whether the first choice of log_probs [..., n, W] is the target's token.

    places: [..., n] index of the target's token in the draft's vocabulary, -1 if there is no token or the draft lacks
            it.
    """
    return log_probs.argmax(-1) == places


def divergence(log_probs: Tensor, reference: Tensor) -> Tensor:
    """[..., n] Kullback-Leibler divergence of the policy [..., n, W] from the reference [..., n, W], in nats."""
    return (log_probs.exp() * (log_probs - reference)).sum(-1)


def anchor_set(anchor: str, log_probs: Tensor, reference: Tensor, places: Tensor) -> Tensor:
    """[..., n] bool: positions that the anchor holds; arguments as in `canonical` and `divergence`."""
    return canonical(reference if anchor == "static" else log_probs.detach(), places)


def anchored_divergence(log_probs: Tensor, reference: Tensor, held: Tensor) -> Tensor:
    """Mean divergence over the held positions, in nats; 0 if there are none."""
    return (divergence(log_probs, reference) * held).sum() / held.sum().clamp(min=1)
