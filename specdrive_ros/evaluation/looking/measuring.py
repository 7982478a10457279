"""Plans every sample under every condition, running freely, and takes the greedy choices along the `as_it_is` answer.

Knows no networks: a planner and a function for the choices are passed in.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from specdrive_ros.decoding.teacher_forcing import greedy_choices
from specdrive_ros.evaluation.looking.conditions import CONDITIONS, condition, other_scenes
from specdrive_ros.evaluation.looking.rows import Row, rounded
from specdrive_ros.evaluation.looking.samples import HeldOutSample
from specdrive_ros.observation.observation import Observation
from specdrive_ros.plan import Plan

if TYPE_CHECKING:
    from specdrive_ros.cycle import Planner

Choices = Callable[[Observation, tuple[int, ...]], list[int]]


class MakesPlans(Protocol):
    """The part of a planner that is measured."""

    def plan(self, observation: Observation) -> Plan: ...


def choices_of(planner: "Planner") -> Choices:
    """Makes the function (observation, answer) -> the planner's greedy choice at each position of the answer."""

    def choices(observation: Observation, token_ids: tuple[int, ...]) -> list[int]:
        state = planner.perceive(observation, {})
        return greedy_choices(planner.networks, planner.rules, state, token_ids)

    return choices


def measure(planner: MakesPlans, choices: Choices, samples: Sequence[HeldOutSample]
            ) -> Iterator[tuple[HeldOutSample, list[tuple[Row, np.ndarray, Plan]]]]:
    """For each sample and each of `CONDITIONS`: the row, the newest frame shown [H, W, 3] and the plan."""
    for sample, other in zip(samples, other_scenes(samples)):
        yield sample, _measure_one(planner, choices, sample, other)


def _measure_one(planner: MakesPlans, choices: Choices, sample: HeldOutSample, other: HeldOutSample
                 ) -> list[tuple[Row, np.ndarray, Plan]]:
    measured, answer = [], ()
    for name in CONDITIONS:  # the first condition gives the answer that is scored under all of them
        observation = condition(name, sample.observation, other.observation)
        plan = planner.plan(observation)
        answer = answer or plan.token_ids
        row = _row(name, sample, other, plan, choices(observation, answer))
        measured.append((row, next(iter(observation.frames.values()))[-1], plan))
    return measured


def _row(name: str, sample: HeldOutSample, other: HeldOutSample, plan: Plan, choices: list[int]) -> Row:
    return Row(
        family=sample.family, seed=sample.seed, time_s=sample.time_s, condition=name,
        label=sample.label, spans=[list(map(int, span)) for span in sample.spans],
        decision=sample.decision, cause=sample.cause,
        reasoning=plan.reasoning, truncated=bool(plan.truncated),
        token_ids=[int(token) for token in plan.token_ids], choices=[int(token) for token in choices],
        plan=rounded(np.column_stack([plan.xyz[:, :2], plan.yaw])), future=rounded(sample.future),
        history=rounded(sample.history), lane=rounded(sample.lane),
        speed_mps=round(float(sample.observation.history.speed_mps), 4),
        other_family=other.family, other_seed=other.seed)
