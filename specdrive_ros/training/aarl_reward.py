"""The reward of a draft's rollout: how little its tokens, where they differ from the target's, change the plan.

The rollout replaces part of the target's own answer, the rest of that answer follows it, and the action head plans
from both texts with the same noise. Identical tokens cost nothing and need no plan; a text that cannot be closed gets
the floor. Tokens the target would accept add a length term. Knows no network: a `TrajectorySource` makes the plans.
"""

import json
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from specdrive_ros.decoding.rules import ReasoningRules
from specdrive_ros.errors import InputError
from specdrive_ros.target.config import require

Text = tuple[int, ...]
Request = tuple[int, Text]  # sample number, the whole answer including its closing tokens


class TrajectorySource(Protocol):
    """Any target: with a flow-matching head, or with action tokens after the reasoning that index a codebook."""

    def trajectories(self, requests: Sequence[Request]) -> np.ndarray:
        """[requests, W, 3] x, y (m) and yaw (rad) in the ego frame at t0: the plans that follow these answers.

        All use the same noise: two requests of one sample differ only in their text, and equal requests give equal
        plans.
        """


@dataclass(frozen=True)
class RewardScale:
    """ade_m, heading_rad: the mean displacement, and the change of the last heading, that cost 1 each
    floor:  reward of a text that cannot be closed; no disturbance costs more
    length: bonus when all tokens of a rollout are accepted, proportionally less for fewer
    """

    ade_m: float = 1.0
    heading_rad: float = 0.05
    floor: float = -2.0
    length: float = 0.5

    def __post_init__(self):
        for name in ("ade_m", "heading_rad"):
            require(getattr(self, name) > 0, f"train aarl {name}", "must be over 0", getattr(self, name))
        require(self.floor < 0, "train aarl floor", "must be under 0", self.floor)
        require(self.length >= 0, "train aarl length", "must be 0 or more", self.length)

    def of_disturbance(self, ade_m: float, heading_rad: float) -> float:
        """0 for no disturbance, down to the floor."""
        return max(self.floor, -ade_m / self.ade_m - heading_rad / self.heading_rad)


@dataclass(frozen=True)
class Disturbance:
    """ade_m: mean distance between two plans' waypoints; heading_rad: angle between their last headings, 0 to pi."""

    ade_m: float
    heading_rad: float

    @classmethod
    def between(cls, own: np.ndarray, other: np.ndarray) -> "Disturbance":
        """From two plans [W, 3] x, y, yaw (m, m, rad)."""
        ade_m = float(np.linalg.norm(own[:, :2] - other[:, :2], axis=-1).mean())
        turn = float(own[-1, 2] - other[-1, 2])
        return cls(ade_m, abs(math.remainder(turn, 2 * math.pi)))


def closed_text(answer: Text, newest: int, rollout: Sequence[int], rules: ReasoningRules) -> Text | None:
    """The target's answer with the tokens after its token number `newest` replaced by a rollout; cut off where the
    rollout ends it. None if it has forbidden tokens, is too long, or does not end in the two closing tokens."""
    first, last = newest + 1, newest + 1 + len(rollout)
    text = [*answer[:first], *rollout, *answer[last:]]
    if rollout and rollout[-1] == rules.cot_end:
        text[last:] = [rules.future_start]
    if rules.future_start in text:
        text = text[: text.index(rules.future_start) + 1]
    closing = text[-2:] == [rules.cot_end, rules.future_start] and text.count(rules.cot_end) == 1
    never = rules.forbidden[text].any() or rules.end_of_turn in text
    return tuple(text) if closing and len(text) <= rules.max_new_tokens and not never else None


def accepted(answer: Text, newest: int, rollout: Sequence[int]) -> int:
    """Number of leading tokens of a rollout that equal the target's."""
    count = 0
    for token, own in zip(rollout, answer[newest + 1 :]):
        if token != own:
            break
        count += 1
    return count


class Rewards:
    """Rewards of rollouts. What a text does to a plan is computed once and kept, by sample and token sequence."""

    def __init__(self, source: TrajectorySource, rules: ReasoningRules, scale: RewardScale, batch: int = 32):
        self.source, self.rules, self.scale, self.batch = source, rules, scale, batch
        self.known: dict[Request, Disturbance] = {}
        self._own_plans: dict[int, np.ndarray] = {}
        self.asked = 0

    def of(self, rollouts: Sequence[tuple[int, Text, int, Sequence[int]]]) -> np.ndarray:
        """[rollouts] rewards of (sample number, the target's answer, index of the newest token in it, tokens of the
        rollout).

        A rollout has at most as many tokens as the answer has left.
        """
        texts = [self._text(answer, newest, tokens) for _, answer, newest, tokens in rollouts]
        self._learn(
            [
                (number, answer, text)
                for (number, answer, *_), text in zip(rollouts, texts)
                if text is not None and text != answer
            ]
        )
        return np.array([self._reward(rollout, text) for rollout, text in zip(rollouts, texts)])

    def _text(self, answer: Text, newest: int, tokens: Sequence[int]) -> Text | None:
        """The target's own answer if all tokens are its own, however that answer was closed."""
        same = accepted(answer, newest, tokens) == len(tokens)
        return answer if same else closed_text(answer, newest, tokens, self.rules)

    def _reward(self, rollout: tuple[int, Text, int, Sequence[int]], text: Text | None) -> float:
        number, answer, newest, tokens = rollout
        if text is None:
            return self.scale.floor
        apart = Disturbance(0.0, 0.0) if text == answer else self.known[number, text]
        share = accepted(answer, newest, tokens) / max(len(tokens), 1)
        return self.scale.of_disturbance(apart.ade_m, apart.heading_rad) + self.scale.length * share

    def _learn(self, wanted: Iterable[tuple[int, Text, Text]]) -> None:
        """Plans for texts not known yet, and for the answers they are compared with, `batch` per pass."""
        new = {(number, text): answer for number, answer, text in wanted if (number, text) not in self.known}
        own = {number: (number, answer) for (number, _), answer in new.items() if number not in self._own_plans}
        for number, plan in zip(own, self._plans(list(own.values()))):
            self._own_plans[number] = plan
        for request, plan in zip(new, self._plans(list(new))):
            self.known[request] = Disturbance.between(self._own_plans[request[0]], plan)

    def _plans(self, requests: list[Request]) -> Iterable[np.ndarray]:
        self.asked += len(requests)
        for start in range(0, len(requests), self.batch):
            yield from self.source.trajectories(requests[start : start + self.batch])

    def save(self, path: Path) -> None:
        """Saves what is known, so that a resumed run has exactly the same numbers, whatever batches they were computed
        in."""
        known = [[number, list(text), each.ade_m, each.heading_rad] for (number, text), each in self.known.items()]
        own = [[number, plan.tolist()] for number, plan in self._own_plans.items()]
        unfinished = path.with_suffix(".unfinished")
        unfinished.write_text(json.dumps({"known": known, "own": own}), encoding="utf-8")
        os.replace(unfinished, path)

    def load(self, path: Path) -> None:
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
            self.known = {(number, tuple(text)): Disturbance(*apart) for number, text, *apart in stored["known"]}
            self._own_plans = {number: np.array(plan) for number, plan in stored["own"]}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path}: is no file of known rewards ({error}); delete the run to start anew") from None
