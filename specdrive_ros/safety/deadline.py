"""Keeping a deadline while a plan is being made: narrower passes first, then an early end of the reasoning and, if the
planner is allowed to, fewer steps of the action head.

Time for what comes after the reasoning (action head, checks, publishing) is reserved as learnt by `stage_budgets.py`.
If even that does not fit, `stand_in.py` takes over. The clock is steady and passed in as a function.
"""

from collections.abc import Callable, Sequence
from enum import Enum

from specdrive_ros.safety.stage_budgets import StageBudgets

AFTER_ACTION = ("check", "publish")
AFTER_REASONING = ("action", *AFTER_ACTION)
CLOSING_ROWS = 2  # of the pass that closes a reasoning
MARGIN_MS = 2.0  # for what no stage measures
NANOSECONDS_PER_MS = 1_000_000


class Policy(str, Enum):
    """What is done to meet the deadline; REPUBLISH and STOP do what SHORTEN does, and more."""

    OFF = "off"  # lateness is only reported
    SHORTEN = "shorten"  # fewer draft nodes, then an early end of the reasoning, then fewer action steps if configured
    REPUBLISH = "republish"  # at the deadline, the last valid plan re-expressed, else a stop; a late plan still follows
    STOP = "stop"  # at the deadline, a stop; a late plan is not published

    @property
    def shortens(self) -> bool:
        return self is not Policy.OFF

    @property
    def stands_in(self) -> bool:
        """Whether something is published at the deadline if there is no plan yet."""
        return self in (Policy.REPUBLISH, Policy.STOP)


class DeadlinePace:
    """The pace (decoding/pace.py) of a cycle with a deadline. One thread at a time.

    clock_ns: a steady clock, nanoseconds. `shortened` says whether the current cycle was shortened, `action_shortened`
    whether its action head was.
    """

    def __init__(self, budgets: StageBudgets, clock_ns: Callable[[], int]):
        self.budgets, self._clock_ns = budgets, clock_ns
        self._deadline_ns: int | None = None
        self.shortened = self.action_shortened = False

    def begin(self, deadline_ns: int | None) -> None:
        """Starts a cycle that has to be published by `deadline_ns`; None: whenever it is ready."""
        self._deadline_ns = deadline_ns
        self.shortened = self.action_shortened = False

    def left_ms(self, reserved: Sequence[str] = AFTER_REASONING) -> float:
        """Time left before the deadline, less that reserved for later stages, by default those after the reasoning."""
        if self._deadline_ns is None:
            return float("inf")
        left = (self._deadline_ns - self._clock_ns()) / NANOSECONDS_PER_MS
        return left - MARGIN_MS - sum(self.budgets.stage_ms(stage) for stage in reserved)

    def nodes(self, asked: int) -> int:
        """`asked`, halved until a pass that wide leaves time to close the reasoning."""
        room_ms = self.left_ms() - self.budgets.pass_ms(CLOSING_ROWS)
        nodes = asked
        while nodes > 1 and self.budgets.pass_ms(nodes + 1) > room_ms:
            nodes //= 2
        self.shortened |= nodes < asked
        return nodes

    def must_close(self) -> bool:
        """Whether one more pass would leave no time to close the reasoning."""
        closes = self.left_ms() < self.budgets.pass_ms(1) + self.budgets.pass_ms(CLOSING_ROWS)
        self.shortened |= closes
        return closes

    def must_shorten_action(self) -> bool:
        """Whether the action head with all its steps, as measured, would finish too late."""
        late = self.left_ms(AFTER_ACTION) < self.budgets.stage_ms("action")
        self.shortened |= late
        self.action_shortened = late
        return late

    def note_pass(self, rows: int, milliseconds: float) -> None:
        self.budgets.note_pass(rows, milliseconds)
