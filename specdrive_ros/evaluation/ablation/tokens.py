"""Which tokens a draft gets right by itself: routine ones, or those that need the cameras or the history.

What a token needs is measured as in `evaluation/looking`: without it, the target's greedy choice there is another one,
given the answer before it. A draft gets a token right

`first`     as the first token ahead, with everything before it true
`supplied`  in decoding, as a chain of one block: the target only confirmed it
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from specdrive_ros.cycle import Planner
from specdrive_ros.draft.taps import TapSelection
from specdrive_ros.evaluation.ablation.traces import Trace
from specdrive_ros.evaluation.bootstrap import crossed_difference, crossed_mean
from specdrive_ros.evaluation.looking.conditions import CONDITIONS, condition, other_scenes
from specdrive_ros.evaluation.looking.figures import token_needs
from specdrive_ros.evaluation.looking.measuring import choices_of
from specdrive_ros.training.aarl_policy import DraftPolicy, run_lengths
from specdrive_ros.training.aarl_training import every_state

NEEDS = ("routine", "vision", "history")


@dataclass(frozen=True)
class TokensRight:
    """Of one draft and one answer: [n] bool per token; the first token comes with the prefill and counts for
    nobody."""

    first: np.ndarray
    supplied: np.ndarray


def needs_of(planner: Planner, traces: Sequence[Trace]) -> list[dict[str, np.ndarray]]:
    """Per answer: need -> [n] bool."""
    choices = choices_of(planner)
    found = []
    for each, other in zip(traces, other_scenes([each.sample for each in traces])):
        observations = {name: condition(name, each.sample.observation, other.observation) for name in CONDITIONS}
        found.append(token_needs({name: choices(seen, each.answer) for name, seen in observations.items()}))
    return found


@torch.no_grad()
def tokens_right(policy: DraftPolicy, each: Trace, select: TapSelection, ahead: int) -> TokensRight:
    batch = each.batch(select)
    right = policy.first_choices(batch, every_state(batch, ahead))[0]
    first = np.concatenate([[False], right[:-1, 0].numpy()])
    return TokensRight(first, supplied(run_lengths(right).numpy()))


def supplied(runs: np.ndarray) -> np.ndarray:
    """[n] bool: tokens accepted from a proposal, given the run accepted after each token, were it the newest."""
    found, newest = np.zeros(len(runs), bool), 0
    while newest < len(runs):
        found[newest + 1 : newest + 1 + runs[newest]] = True
        newest += int(runs[newest]) + 1
    return found


def token_figures(right: Mapping[int, Sequence[TokensRight]], needs: Sequence[Mapping[str, np.ndarray]]) -> dict:
    """Shares right by need, with intervals over prompts and seeds. right: seed -> one entry per answer, in `needs`'
    order."""
    sides = {(how, need): _sides(right, needs, how, need) for how in ("first", "supplied") for need in NEEDS}
    return {
        "tokens": {need: int(sides["first", need][1][0].sum()) for need in NEEDS},
        **{
            how: {need: crossed_mean(*sides[how, need]) if sides[how, need][1].sum() else None for need in NEEDS}
            for how in ("first", "supplied")
        },
    }


def routine_less_vision(
    right: Mapping[int, Sequence[TokensRight]], needs: Sequence[Mapping[str, np.ndarray]]
) -> dict | None:
    """How much more often a routine token is right as the first ahead than one that needs the cameras; None if either
    kind is missing."""
    routine, vision = (_sides(right, needs, "first", need) for need in ("routine", "vision"))
    return crossed_difference(*routine, *vision) if routine[1].sum() and vision[1].sum() else None


def _sides(right: Mapping[int, Sequence[TokensRight]], needs: Sequence[Mapping[str, np.ndarray]], how: str, need: str):
    """Parts and wholes [seeds, answers]; the first token of an answer is left out."""
    parts = [
        [float((getattr(one, how) & where[need])[1:].sum()) for one, where in zip(ones, needs)]
        for ones in right.values()
    ]
    wholes = [[float(where[need][1:].sum()) for where in needs] for _ in right]
    return np.array(parts), np.array(wholes)
