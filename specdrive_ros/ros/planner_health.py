"""The planner's own health as statuses: model, cycle, deadline, each plan check, reasoning.

The worker reports what a cycle did, from its thread; the node collects the statuses when it publishes them. Opens no
sockets.
"""

from collections import Counter, deque
from collections.abc import Mapping
from threading import Lock

from specdrive_ros.decoding.statistics import accepted_length, routine_share
from specdrive_ros.msg import CycleStats, Trajectory
from specdrive_ros.plan import Plan
from specdrive_ros.ros.decision import Decision
from specdrive_ros.ros.diagnostics import ERROR, OK, WARN, Health
from specdrive_ros.safety.plan_checks import CONTRADICTION, NAMES

WINDOW = 100  # number of cycles that shares are computed over
MOSTLY_LATE = 0.5
REASON_NAMES = {
    CycleStats.NO_OBSERVATION: "NO_OBSERVATION",
    CycleStats.INPUT_STALE: "INPUT_STALE",
    CycleStats.MODEL_FAILED: "MODEL_FAILED",
    CycleStats.PLAN_REJECTED: "PLAN_REJECTED",
    CycleStats.DEADLINE: "DEADLINE",
    CycleStats.REASONING_UNFINISHED: "REASONING_UNFINISHED",
}
STANDING_IN = ("FALLBACK_NO_OBSERVATION", "FALLBACK_INPUT_STALE")
SOURCE_NAMES = {Trajectory.PLANNED: "planned", Trajectory.REPUBLISHED: "republished", Trajectory.STOP: "stops"}


class PlannerHealth:
    """Everything except the inputs. `model` is set by the node; the rest follows from the cycles."""

    def __init__(self):
        self._lock = Lock()
        self.model = Health("model", WARN, "UNCONFIGURED", "not configured")
        self.reset("INACTIVE", "not active")

    def reset(self, code: str, text: str) -> None:
        """Starts anew: nothing is known about cycles yet."""
        with self._lock:
            self._cycle = Health("cycle", OK, code, text)
            self._sources: Counter[str] = Counter()
            self._late: deque[bool] = deque(maxlen=WINDOW)
            self._shortened = self._lost = 0
            self._budgets: Mapping[str, float] = {}
            self._plans: deque[Plan] = deque(maxlen=WINDOW)
            self._found: dict[str, str] = {}
            self._violated: Counter[str] = Counter()

    def note_refusal(self, code: str, text: str) -> None:
        """There is no observation. Does not overwrite the status of a cycle without an observation."""
        with self._lock:
            if not self._cycle.code.startswith(STANDING_IN):
                self._cycle = Health("cycle", WARN, code, f"no observation: {text}")

    def note_lost(self, text: str) -> None:
        """A cycle ended in an internal error."""
        with self._lock:
            self._lost += 1
            self._cycle = Health("cycle", ERROR, "CYCLE_LOST", f"cycle lost: {text}", {"lost": self._lost})

    def note_cycle(
        self,
        decision: Decision,
        stats: CycleStats,
        *,
        deadline_ms: float,
        shortened: bool,
        budgets: Mapping[str, float],
    ) -> None:
        """Takes in a cycle that published something."""
        with self._lock:
            self._sources[SOURCE_NAMES[decision.source]] += 1
            self._late.append(bool(stats.late))
            self._shortened += shortened
            self._budgets = budgets
            self._cycle = self._judge_cycle(decision, stats, deadline_ms)
            own = decision.refused if decision.refused is not None else decision.plan
            if decision.source == Trajectory.PLANNED or decision.refused is not None:
                self._note_plan(own)

    def _judge_cycle(self, decision: Decision, stats: CycleStats, deadline_ms: float) -> Health:
        values = {"cycle": stats.cycle, "dropped": stats.dropped_observations, **self._sources}
        if decision.text:
            code = f"FALLBACK_{REASON_NAMES.get(decision.reason, decision.reason)}"
            return Health("cycle", ERROR, code, decision.text, values)
        if stats.late:
            return Health("cycle", WARN, "LATE", f"over the deadline of {deadline_ms:g} ms", values)
        return Health("cycle", OK, "", "planning", values)

    def _note_plan(self, plan: Plan) -> None:
        self._plans.append(plan)
        self._found = {}
        for finding in (*plan.violations, *plan.warnings):
            name, _, text = finding.partition(": ")
            self._found[name] = text
            self._violated[name] += 1

    def healths(self, deadline_ms: float, policy: str) -> list[Health]:
        with self._lock:
            return [self.model, self._cycle, self._deadline(deadline_ms, policy), *self._checks(), self._reasoning()]

    def _deadline(self, deadline_ms: float, policy: str) -> Health:
        share = sum(self._late) / len(self._late) if self._late else 0.0
        values = {"deadline_ms": deadline_ms, "policy": policy, "late_share": round(share, 3),
                  "shortened": self._shortened, "cycles": len(self._late),
                  "fewer_action_steps": sum(plan.action_steps > 0 for plan in self._plans)}
        values |= {f"budget {stage} ms": budget for stage, budget in self._budgets.items()}
        if share > MOSTLY_LATE:
            return Health("deadline", ERROR, "MOSTLY_LATE", f"{share:.0%} of the last cycles were late", values)
        if self._late and self._late[-1]:
            return Health("deadline", WARN, "LATE", f"the last cycle took more than {deadline_ms:g} ms", values)
        return Health("deadline", OK, "", "in time" if self._late else "no cycle yet", values)

    def _checks(self) -> list[Health]:
        level = {CONTRADICTION: WARN}
        return [
            Health(
                f"check {name.lower()}",
                level.get(name, ERROR) if name in self._found else OK,
                name if name in self._found else "",
                self._found.get(name, "passed"),
                {"violated": self._violated[name]},
            )
            for name in NAMES
        ]

    def _reasoning(self) -> Health:
        plans = list(self._plans)
        tokens, passes = sum(len(plan.token_ids) for plan in plans), sum(plan.target_passes for plan in plans)
        values = {
            "accepted_length": round(accepted_length(tokens, passes, len(plans)), 2) if plans else 0.0,
            "routine_share": round(routine_share(tokens, passes), 3) if plans else 0.0,
            "truncated": sum(plan.truncated for plan in plans),
            "cycles": len(plans),
        }
        if plans and plans[-1].truncated:
            return Health("reasoning", WARN, "TRUNCATED", "the last reasoning was closed early", values)
        return Health("reasoning", OK, "", "complete" if plans else "none yet", values)
