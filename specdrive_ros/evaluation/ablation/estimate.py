"""What an ablation takes, from the processor time of a few steps here. Wall times of a busy machine mean nothing; the
processor's do, and divided by the cores they bound the wall time from below.
"""

import time
from collections.abc import Callable
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from specdrive_ros.evaluation.ablation.cells import DISTILLED, STATIC, Cell
from specdrive_ros.evaluation.ablation.making import Making

STEPS = 3  # measured, behind one that is not
STATES = "states"  # what a run's progress is called while it caches


class Enough(Exception):
    """The steps wanted are done."""


@dataclass
class StepClock:
    """A `progress` that notes the processor's time at each step of a training and ends it behind the last."""

    progress: Callable
    at_s: list[float] = field(default_factory=list)

    @contextmanager
    def __call__(self, name: str, total: int, done: int = 0):
        if name.startswith(STATES):
            with self.progress(name, total, done) as bar:
                yield bar
        else:
            yield self

    def advance(self, steps: int = 1, _text: str = "") -> None:
        if steps:
            self.at_s.append(time.process_time())
        if len(self.at_s) > STEPS:
            raise Enough

    @property
    def step_s(self) -> float:
        return (self.at_s[-1] - self.at_s[0]) / (len(self.at_s) - 1)


def step_seconds(making: Making, cell: Cell) -> float:
    """Processor seconds of one step of a cell's training, which is then left as it is."""
    clock = StepClock(making.progress)
    with suppress(Enough):
        replace(making, progress=clock).make(cell)
    return clock.step_s


def estimate(making: Making, scratch: Path, kinds: tuple[str, ...]) -> list[dict]:
    """Per kind: seconds a step and minutes a cell, distilled and post-trained. scratch: a folder for what is not kept."""
    never = 10**6
    trying = replace(making, out=scratch, runtime="torch",
                     distillation=replace(making.distillation, steps=never, evaluate_every=never, save_every=never),
                     aarl=replace(making.aarl, steps=never, evaluated=1, evaluate_every=never, save_every=never))  # fmt: skip
    found = []
    for kind in kinds:
        begun = Cell(kind, "flat", DISTILLED, 0)
        distil = step_seconds(trying, begun)
        replace(trying, distillation=replace(trying.distillation, steps=1)).make(begun)  # any draft will do to go on from
        post = step_seconds(trying, Cell(kind, "flat", STATIC, 0))
        found += [_row(kind, DISTILLED, distil, making.distillation.steps), _row(kind, "aarl", post, making.aarl.steps)]
    return found


def _row(kind: str, stage: str, seconds: float, steps: int) -> dict:
    return {"kind": kind, "stage": stage, "cpu_s_per_step": round(seconds, 3), "steps": steps, "cpu_minutes": round(seconds * steps / 60, 1)}
