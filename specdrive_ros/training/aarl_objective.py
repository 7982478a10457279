"""The objective of action-aware RL: GRPO (arXiv 2402.03300) with an anchor on a draft's canonical positions.

Groups of K rollouts start in one state. A rollout's advantage is how much better it did than its group; tokens of
better ones are made more probable, as far as a clipped ratio goes. The anchor is the Kullback-Leibler divergence from a
reference draft at *canonical* positions, those where the draft's first choice is the target's token:

`static`  the reference's set, as it was when post-training began (arXiv 2606.31160)
`self`    the current policy's set: a position it drifts away from is no longer held back

Pure functions of tensors. Letters: B samples, A states a sample, K rollouts a state, n tokens ahead, W words.
"""

import torch
from torch import Tensor

ANCHORS = ("static", "self")
LEAST_SPREAD = 0.01  # of a group's rewards, a centimetre of mean displacement: less is what the plans' rounding makes of it


def group_advantages(rewards: Tensor) -> Tensor:
    """[..., K] rewards of a group -> how many (population) standard deviations, or `LEAST_SPREAD` where they are less,
    each is above the group's mean; 0 where all are equal."""
    apart = rewards - rewards.mean(-1, keepdim=True)
    return apart / rewards.std(-1, keepdim=True, unbiased=False).clamp(min=LEAST_SPREAD)


def clipped_surrogate(new: Tensor, old: Tensor, advantages: Tensor, real: Tensor, low: float, high: float) -> Tensor:
    """The loss to descend: minus the mean over rollouts of the mean over their tokens of
    min(ratio A, clip(ratio, 1 - low, 1 + high) A).

    new, old:   [..., K, n] log-probabilities of the tokens written, under the policy now and when it wrote them
    advantages: [..., K]
    real:       [..., K, n] bool: tokens that count; a rollout without one does not
    """
    ratio, each = torch.exp(new - old), advantages[..., None]
    gain = torch.minimum(ratio * each, ratio.clamp(1 - low, 1 + high) * each)
    counts = real.sum(-1)
    per_rollout = (gain * real).sum(-1) / counts.clamp(min=1)
    kept = counts > 0
    return -(per_rollout * kept).sum() / kept.sum().clamp(min=1)


def canonical(log_probs: Tensor, places: Tensor) -> Tensor:
    """[..., n] bool: the first choice of log_probs [..., n, W] is the target's token; places [..., n] among the words,
    -1 where there is no token or the draft has no word for it."""
    return log_probs.argmax(-1) == places


def divergence(log_probs: Tensor, reference: Tensor) -> Tensor:
    """[..., n] Kullback-Leibler divergence of the policy [..., n, W] from the reference, in nats."""
    return (log_probs.exp() * (log_probs - reference)).sum(-1)


def anchor_set(anchor: str, log_probs: Tensor, reference: Tensor, places: Tensor) -> Tensor:
    """[..., n] bool: positions the anchor holds."""
    return canonical(reference if anchor == "static" else log_probs.detach(), places)


def anchored_divergence(log_probs: Tensor, reference: Tensor, held: Tensor) -> Tensor:
    """Mean divergence over the positions held; 0 where there is none."""
    return (divergence(log_probs, reference) * held).sum() / held.sum().clamp(min=1)
