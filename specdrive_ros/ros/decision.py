"""What is published for an observation: the model's plan, or its substitute and the reason for it.

There is a decision whatever the model does. Does not know how it is sent.
"""

from dataclasses import dataclass
from typing import Protocol

from specdrive_ros.msg import CycleStats, Trajectory
from specdrive_ros.observation.observation import Observation
from specdrive_ros.plan import Plan
from specdrive_ros.safety.stand_in import StandIn, Substitute


class Planner(Protocol):
    """Anything that makes a plan from an observation."""

    def plan(self, observation: Observation) -> Plan: ...


@dataclass(frozen=True)
class Decision:
    """A plan to publish. source: of Trajectory; reason: of CycleStats; text: the reason in words.

    refused: the model's own plan if the checks refused it.
    """

    plan: Plan
    source: int = Trajectory.PLANNED
    reason: int = CycleStats.NONE
    text: str = ""
    refused: Plan | None = None


def decide(planner: Planner, observation: Observation, stand_in: StandIn | None = None) -> Decision:
    """The model's plan if there is one that passes the checks, else a substitute."""
    stand_in = stand_in or StandIn()
    try:
        plan = planner.plan(observation)
    except Exception as error:  # a model can fail in any way, and the car must be stopped in all of them
        text = f"model failed: {type(error).__name__}: {error}"
        return _instead(stand_in, observation, CycleStats.MODEL_FAILED, text)
    if plan.violations:
        text = f"plan refused: {'; '.join(plan.violations)}"
        return _instead(stand_in, observation, CycleStats.PLAN_REJECTED, text, plan)
    stand_in.remember(plan)
    return Decision(plan)


def _instead(
    stand_in: StandIn, observation: Observation, reason: int, text: str, refused: Plan | None = None
) -> Decision:
    substitute = stand_in.at(observation.t0_ns, observation.history)
    return substituted(substitute, reason, text, refused)


def substituted(substitute: Substitute, reason: int, text: str, refused: Plan | None = None) -> Decision:
    """A substitute as a decision; for a stop, the text also says why the last plan was not republished."""
    source = Trajectory.REPUBLISHED if substitute.republished else Trajectory.STOP
    if substitute.why_not_republished:
        text = f"{text} (no republishing: {substitute.why_not_republished})"
    return Decision(substitute.plan, source, reason, text, refused)
