"""What an ablation costs, from the processor time of a few steps here. Wall times of a busy machine mean nothing;
processor time does, and divided by the number of cores it is a lower bound of the wall time.
"""

import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace

from specdrive_ros.evaluation.ablation.cells import DISTILLED, STATIC, Cell
from specdrive_ros.evaluation.ablation.making import Making

STEPS = 3  # measured, after one that is not
SAMPLES = 32  # states cached for the estimate
STATES = "states"  # name of a run's progress while it caches
AARL = "aarl"


class Enough(Exception):
    """Raised when the wanted steps are done."""


@dataclass
class StepClock:
    """A `progress` that records the processor time at each step of a training run and stops it after the last one."""

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
    """Runs a few steps of a cell's training, which is then abandoned."""
    clock = StepClock()
    with suppress(Enough):
        replace(making, progress=clock).make(cell)
    return clock


def estimate(making: Making, scratch: Path, kinds: tuple[str, ...]) -> list[dict]:
    """Costs of the target's states, cached once, and per kind: processor seconds per step and minutes per cell,
    distilled and post-trained, without evaluations. scratch: a folder for temporary files."""
    never, few = 10**6, replace(making.features, count=SAMPLES)
    trying = replace(
        making,
        out=scratch,
        states=None,
        runtime="torch",
        features=few,
        distillation=replace(making.distillation, steps=never, evaluate_every=never, save_every=never),
        aarl=replace(making.aarl, steps=never, evaluated=1, evaluate_every=never, save_every=never),
    )
    found = []
    for kind in kinds:
        begun, post = Cell(kind, "flat", DISTILLED, 0), Cell(kind, "flat", STATIC, 0)
        distilling = clocked(trying, begun)
        replace(trying, distillation=replace(trying.distillation, steps=1), progress=StepClock()).make(begun)
        step_s = clocked(trying, post).step_s  # any draft will do
        if not found:
            states = making.features.count * 11 // 10
            found.append(_row("target", STATES, distilling.states_s / max(distilling.states, 1), states))
        found.append(_row(kind, DISTILLED, distilling.step_s, making.distillation.steps))
        found.append(_row(kind, AARL, step_s, making.aarl.steps) | _at_most(making, step_s, plan_seconds(trying, post)))
    return found


def plan_seconds(making: Making, cell: Cell) -> float:
    """Processor seconds per plan of the reward, in a batch, with keys and values of the prompt already known."""
    stage, train, _ = making.run(cell, None).prepare()
    answers = [train.read(number) for number in range(min(len(train), stage.rewards.batch))]
    requests = [
        (number, tuple(each["token_ids"][each["loss_mask"].bool()].tolist())) for number, each in enumerate(answers)
    ]
    stage.rewards.source.trajectories(requests)
    begun = time.process_time()
    stage.rewards.source.trajectories(requests)
    return (time.process_time() - begun) / len(requests)


def _at_most(making: Making, step_s: float, plan_s: float) -> dict:
    """The post-training's costs if every rollout needed a plan: an untrained draft writes what cannot be closed and
    needs none."""
    rollouts = making.aarl.samples * making.aarl.states * making.aarl.rollouts
    seconds = making.aarl.steps * (step_s + rollouts * plan_s)
    return {"cpu_s_per_plan": round(plan_s, 4), "cpu_minutes_at_most": round(seconds / 60, 1)}


def _row(kind: str, stage: str, seconds: float, steps: int) -> dict:
    minutes = round(seconds * steps / 60, 1)
    return {"kind": kind, "stage": stage, "cpu_s_per_step": round(seconds, 3), "steps": steps, "cpu_minutes": minutes}
