"""How much time to reserve for each stage of a cycle, learnt from the stages that ran.

A budget is the 90th percentile of the latest measurements: a single hiccup changes nothing, and a machine that has
become slow is noticed within seconds. Passes of the target are learnt by width. Knows no clock.
"""

from collections import deque
from collections.abc import Mapping
from math import log2

SHARE = 0.9  # of the measurements lie within the budget
REMEMBERED = 50
WIDTHS = (1, 2, 4, 8, 16, 32, 64, 128, 256)  # a pass is counted under the next of these


class Budget:
    """The budget of one duration, milliseconds."""

    def __init__(self):
        self._measured: deque[float] = deque(maxlen=REMEMBERED)
        self._value: float | None = None

    def note(self, milliseconds: float) -> None:
        self._measured.append(milliseconds)
        self._value = None

    @property
    def known(self) -> bool:
        return bool(self._measured)

    @property
    def ms(self) -> float:
        """What to reserve; 0 while nothing has been measured."""
        if self._value is None:
            ranked = sorted(self._measured)
            self._value = ranked[round(SHARE * (len(ranked) - 1))] if ranked else 0.0
        return self._value


class StageBudgets:
    """Budgets of stages by name, and of passes by width. One thread at a time."""

    def __init__(self):
        self._stages: dict[str, Budget] = {}
        self._passes = {width: Budget() for width in WIDTHS}

    def note(self, stage_ms: Mapping[str, float]) -> None:
        """Takes the stage times of one cycle."""
        for stage, milliseconds in stage_ms.items():
            self._stages.setdefault(stage, Budget()).note(milliseconds)

    def note_pass(self, rows: int, milliseconds: float) -> None:
        self._passes[_width(rows)].note(milliseconds)

    def stage_ms(self, stage: str) -> float:
        return self._stages[stage].ms if stage in self._stages else 0.0

    def pass_ms(self, rows: int) -> float:
        """The budget of a pass over this many rows; for a width never run, that of the nearest width that was."""
        width = _width(rows)
        known = [each for each in WIDTHS if self._passes[each].known]
        if not known:
            return 0.0
        return self._passes[min(known, key=lambda each: abs(log2(each / width)))].ms

    def values(self) -> dict[str, float]:
        """All stage budgets, rounded, for display."""
        return {stage: round(budget.ms, 1) for stage, budget in self._stages.items()}


def _width(rows: int) -> int:
    return next((width for width in WIDTHS if width >= rows), WIDTHS[-1])
