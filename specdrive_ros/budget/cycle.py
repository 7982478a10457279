"""A planning cycle on a device: stage by stage, with and without a draft, against a deadline. Predicted, not measured.

A chain of causation of R tokens takes R / L passes of the target, rounded up, where L is the accepted length. The
vision cache is on unless stated otherwise: one new frame per camera. Image decoding, ROS and checks are left out.
"""

import math
from dataclasses import dataclass, field

from specdrive_ros.budget.device import Device, Precision
from specdrive_ros.budget.memory import Memory, memory_of
from specdrive_ros.budget.roofline import Software, StageTime, stage_time
from specdrive_ros.budget.shape import ModelShape
from specdrive_ros.budget.work import DFLASH_BLOCK, TREE, Stages, Work
from specdrive_ros.errors import InputError

NONE, CARRYOVER = "none", "carryover"
VERIFIED = {NONE: 1, "phrasebook": TREE, CARRYOVER: 1, "eagle3": TREE, "dflash": DFLASH_BLOCK}  # rows of a pass
DRAFTS = tuple(VERIFIED)
ACCEPTED = (3.0, 5.0, 7.4)  # lengths shown if none is asked for
LONGEST = {"phrasebook": 16, "eagle3": 7, "dflash": DFLASH_BLOCK}  # tokens that a pass can emit at most


@dataclass(frozen=True)
class Plan:
    """The question. accepted: lengths to show; draft_ms: time of a proposal, if known better than counted here;
    vision_cache: whether frames that were encoded before are not encoded again."""

    draft: str = NONE
    accepted: tuple[float, ...] = ()
    deadline_ms: float = 100.0
    draft_ms: float | None = None
    vision_cache: bool = True

    def __post_init__(self):
        if self.draft not in DRAFTS:
            raise InputError(f"draft {self.draft!r}: must be one of {', '.join(DRAFTS)}")
        if self.draft == NONE and self.accepted:
            raise InputError("accepted length: without a draft it is 1; name one with --draft")
        longest = LONGEST.get(self.draft, math.inf)
        for length in self.accepted:
            if not 1 <= length <= longest:
                raise InputError(f"accepted length: must be 1 … {longest:g} with {self.draft}, got {length:g}")
        for name, value in (("deadline", self.deadline_ms), ("draft time", self.draft_ms)):
            if value is not None and not (math.isfinite(value) and value >= 0):
                raise InputError(f"{name}: must be milliseconds of at least 0, got {value}")


@dataclass(frozen=True)
class CycleTime:
    """One way through a cycle. passes: of the target, for its reasoning."""

    draft: str
    accepted_length: float
    passes: int
    reasoning_ms: float
    cycle_ms: float


@dataclass(frozen=True)
class Budget:
    """stages: times of one vision pass, prefill, target pass, proposal, and all action steps; fixed_ms: the cycle
    without its reasoning; least_length: the smallest accepted length at which the deadline holds, None if there is
    none."""

    stages: dict[str, StageTime]
    cycles: list[CycleTime]
    memory: Memory
    fixed_ms: float
    deadline_ms: float
    least_length: float | None
    binds: str = field(default="")


class CycleModel:
    """Times of one model in one precision on one device."""

    def __init__(self, shape: ModelShape, device: Device, precision: Precision, software: Software):
        if shape.cycle is None or shape.vision is None or shape.expert is None:
            raise InputError(f"{shape.title}: has no vision, action expert and cycle; it must be a driving model")
        self.shape, self.device, self.precision, self.software = shape, device, precision, software
        self.works = Stages(shape, precision)

    def time(self, work: Work) -> StageTime:
        return stage_time(work, self.device, self.precision, self.software)

    def budget(self, plan: Plan) -> Budget:
        cycle = self.shape.cycle
        carried = cycle.reasoning if plan.draft == CARRYOVER else 0
        stages = self._stages(plan, carried)
        fixed = sum(stages[name].ms for name in ("vision", "prefill", "action"))
        plain = self.time(self.works.text(1, cycle.prompt, 1)).ms
        cycles = [self._cycle(NONE, 1.0, 0.0, plain, fixed - self._carrying(carried))]
        propose = stages["draft"].ms if "draft" in stages else 0.0
        if plan.draft != NONE:
            lengths = plan.accepted or tuple(one for one in ACCEPTED if one <= LONGEST.get(plan.draft, math.inf))
            cycles += [self._cycle(plan.draft, one, propose, stages["verify"].ms, fixed) for one in lengths]
        least = self._least_length(plan, propose, stages["verify"].ms, fixed)
        memory = memory_of(self.works, self.device, plan.draft)
        binds = self._binds(memory, stages, cycles[-1])
        return Budget(stages, cycles, memory, fixed, plan.deadline_ms, least, binds)

    def _stages(self, plan: Plan, carried: int) -> dict[str, StageTime]:
        works, cycle = self.works, self.shape.cycle
        images = cycle.cameras * (1 if plan.vision_cache else cycle.frames)
        stages = {
            "vision": self.time(works.vision(images)),
            "prefill": self.time(works.text(cycle.prompt + carried, 0, 1 + carried)),
            "verify": self.time(works.text(VERIFIED[plan.draft], cycle.prompt, VERIFIED[plan.draft])),
            "action": self.time(works.action_step(cycle.prompt + cycle.reasoning) * self.shape.expert.steps),
        }
        proposal = {"eagle3": works.eagle3_proposal, "dflash": works.dflash_proposal}.get(plan.draft)
        if proposal is not None:
            stages["draft"] = self.time(proposal(8, cycle.prompt))
        if plan.draft_ms is not None:
            stages["draft"] = StageTime(plan.draft_ms, "given", {})
        return stages

    def _carrying(self, carried: int) -> float:
        """What the carried tokens add to the prefill, ms."""
        prompt = self.shape.cycle.prompt
        return self.time(self.works.text(prompt + carried, 0, 1 + carried)).ms - (
            self.time(self.works.text(prompt, 0, 1)).ms
        )

    def _cycle(self, draft: str, length: float, propose: float, verify: float, fixed: float) -> CycleTime:
        passes = math.ceil(self.shape.cycle.reasoning / length) - (1 if draft == CARRYOVER else 0)
        reasoning = max(0, passes) * (propose + verify)
        return CycleTime(draft, length, max(0, passes), reasoning, fixed + reasoning)

    def _least_length(self, plan: Plan, propose: float, verify: float, fixed: float) -> float | None:
        """The smallest accepted length that meets the deadline, of those at which the number of passes changes."""
        tokens = self.shape.cycle.reasoning
        longest = 1 if plan.draft == NONE else min(tokens, LONGEST.get(plan.draft, tokens))
        lengths = sorted({tokens / passes for passes in range(1, tokens + 1)})
        times = {one: self._cycle(plan.draft, one, propose, verify, fixed) for one in lengths if one <= longest}
        return next((length for length, time in times.items() if time.cycle_ms <= plan.deadline_ms), None)

    @staticmethod
    def _binds(memory: Memory, stages: dict[str, StageTime], cycle: CycleTime) -> str:
        """The bound that most of the cycle's time is due to; memory if the model does not fit at all."""
        if not memory.fits:
            return "memory"
        times = {"vision": 1, "prefill": 1, "action": 1, "verify": cycle.passes, "draft": cycle.passes}
        spent: dict[str, float] = {}
        for name, stage in stages.items():
            spent[stage.binds] = spent.get(stage.binds, 0.0) + times[name] * stage.ms
        return max(spent, key=spent.get)
