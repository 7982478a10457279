"""What another precision of a model costs in accuracy: the same cycles, compared with the reference precision.

Logits are compared along the reference's own answer, so that one different token does not make all later ones
incomparable; plans are compared with each model writing its own answer, as it would drive.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice

import numpy as np

from specdrive_ros.cycle import Planner
from specdrive_ros.decoding.choice import greedy
from specdrive_ros.decoding.teacher_forcing import forced_logits
from specdrive_ros.evaluation.decode_benchmark import observations
from specdrive_ros.observation.observation import Observation
from specdrive_ros.quantiles import quantiles


@dataclass(frozen=True)
class VariantAccuracy:
    """cycles, tokens:   number compared
    logit_error:      largest difference of a logit; mean_logit_error: the mean difference
    logit_spread:     standard deviation of the reference's logits, as a scale for the errors
    token_agreement:  share of tokens that the variant would choose too, given the reference's tokens before
    same_reasoning:   share of cycles with identical tokens throughout
    plan_m:           [cycles] largest distance of a waypoint from the reference's, metres
    """

    cycles: int
    tokens: int
    logit_error: float
    mean_logit_error: float
    logit_spread: float
    token_agreement: float
    same_reasoning: float
    plan_m: np.ndarray

    def as_document(self) -> dict:
        return {
            "cycles": self.cycles,
            "tokens": self.tokens,
            "logit_error": {"max": self.logit_error, "mean": self.mean_logit_error, "spread": self.logit_spread},
            "token_agreement": self.token_agreement,
            "same_reasoning": self.same_reasoning,
            "plan_difference_m": quantiles(self.plan_m, ("median", "p90", "max")),
        }

    def lines(self) -> list[str]:
        plan_cm = quantiles(100 * self.plan_m, ("median", "p90", "max"))
        return [
            f"{self.cycles} cycles, {self.tokens} tokens compared with the model as it is",
            f"logit error      mean {self.mean_logit_error:.4f}  max {self.logit_error:.4f}  "
            f"(logits spread {self.logit_spread:.2f})",
            f"token agreement  {self.token_agreement:.2%}; same reasoning in {self.same_reasoning:.0%} of cycles",
            f"plan difference  median {plan_cm['median']:.1f} cm  p90 {plan_cm['p90']:.1f} cm  "
            f"max {plan_cm['max']:.1f} cm",
        ]


def measure_accuracy(
    reference: Planner, variant: Planner, cycles: int, *, seed: int = 0, on_cycle: Callable[[], None] = lambda: None
) -> VariantAccuracy:
    """Runs both models on `cycles` cycles of worlds that training never sees."""
    errors, spreads, agreed, same, plans = [], [], [], [], []
    for observation in islice(observations(reference, seed), cycles):
        expected, found = reference.plan(observation), variant.plan(observation)
        ours, theirs = (_forced(each, observation, expected.token_ids) for each in (reference, variant))
        errors.append(np.abs(ours - theirs))
        spreads.append(float(ours.std()))
        agreed += [_choice(reference, a) == _choice(reference, b) for a, b in zip(ours, theirs, strict=True)]
        same.append(found.token_ids == expected.token_ids)
        plans.append(float(np.linalg.norm(found.xyz - expected.xyz, axis=1).max()))
        on_cycle()
    return VariantAccuracy(
        cycles=len(same),
        tokens=len(agreed),
        logit_error=float(max(each.max() for each in errors)),
        mean_logit_error=float(np.mean([each.mean() for each in errors])),
        logit_spread=float(np.mean(spreads)),
        token_agreement=float(np.mean(agreed)),
        same_reasoning=float(np.mean(same)),
        plan_m=np.array(plans),
    )


def _forced(planner: Planner, observation: Observation, token_ids: tuple[int, ...]) -> np.ndarray:
    """[n, vocabulary] logits before each token of a given answer, whatever the model would have written."""
    return forced_logits(planner.networks, planner.perceive(observation, {}), token_ids)


def _choice(planner: Planner, logits: np.ndarray) -> int:
    return greedy(planner.rules.allowed(logits))
