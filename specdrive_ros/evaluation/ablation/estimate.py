"""What an ablation takes, from the processor time of a few steps here. Wall times of a busy machine mean nothing; the
processor's do, and divided by the cores they bound the wall time from below.
"""

import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace

from specdrive_ros.evaluation.ablation.cells import DISTILLED, STATIC, Cell
from specdrive_ros.evaluation.ablation.making import Making

STEPS = 3  # measured, behind one that is not
SAMPLES = 32  # states cached for it
STATES = "states"  # what a run's progress is called while it caches
AARL = "aarl"


class Enough(Exception):
    """The steps wanted are done."""


@dataclass
class StepClock:
    """A `progress` that notes the processor's time at each step of a training and ends it behind the last."""

    at_s: list[float] = field(default_factory=list)
    states_s: float = 0.0
    states: int = 0

    @contextmanager
    def __call__(self, name: str, _total: int, _done: int = 0):
        begun = time.process_time()
        yield SimpleNamespace(advance=self._count_states) if name.startswith(STATES) else self
        self.states_s += time.process_time() - begun

    def _count_states(self, samples: int = 1, _text: str = "") -> None:
        self.states += samples

    def advance(self, steps: int = 1, _text: str = "") -> None:
        if steps:
            self.at_s.append(time.process_time())
        if len(self.at_s) > STEPS:
            raise Enough

    @property
    def step_s(self) -> float:
        return (self.at_s[-1] - self.at_s[0]) / (len(self.at_s) - 1)


def clocked(making: Making, cell: Cell) -> StepClock:
    """A few steps of a cell's training, which is then left as it is."""
    clock = StepClock()
    with suppress(Enough):
        replace(making, progress=clock).make(cell)
    return clock


def estimate(making: Making, scratch: Path, kinds: tuple[str, ...]) -> list[dict]:
    """Of the target's states, cached once, and per kind: processor seconds a step and minutes a cell, distilled and
    post-trained, its evaluations not counted. scratch: a folder for what is not kept."""
    never, few = 10**6, replace(making.features, count=SAMPLES)
    trying = replace(
        making,
        out=scratch,
        runtime="torch",
        features=few,
        distillation=replace(making.distillation, steps=never, evaluate_every=never, save_every=never),
        aarl=replace(making.aarl, steps=never, evaluated=1, evaluate_every=never, save_every=never),
    )
    found = []
    for kind in kinds:
        begun = Cell(kind, "flat", DISTILLED, 0)
        distilling = clocked(trying, begun)
        replace(trying, distillation=replace(trying.distillation, steps=1), progress=StepClock()).make(begun)
        post = clocked(trying, Cell(kind, "flat", STATIC, 0))  # on any draft
        if not found:
            found.append(
                _row(
                    "target", STATES, distilling.states_s / max(distilling.states, 1), making.features.count * 11 // 10
                )
            )
        found += [
            _row(kind, DISTILLED, distilling.step_s, making.distillation.steps),
            _row(kind, AARL, post.step_s, making.aarl.steps),
        ]
    return found


def _row(kind: str, stage: str, seconds: float, steps: int) -> dict:
    return {
        "kind": kind,
        "stage": stage,
        "cpu_s_per_step": round(seconds, 3),
        "steps": steps,
        "cpu_minutes": round(seconds * steps / 60, 1),
    }
