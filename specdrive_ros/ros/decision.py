"""What is published for an observation: the model's plan, or a comfortable stop and the reason for it.

Whatever the model does, there is a decision. Does not know how it is sent.
"""

from dataclasses import dataclass
from typing import Protocol

from specdrive_ros.msg import CycleStats, Trajectory
from specdrive_ros.observation.observation import Observation
from specdrive_ros.plan import Plan
from specdrive_ros.safety.fallback import comfortable_stop


class Planner(Protocol):
    """Anything that makes a plan of an observation."""

    def plan(self, observation: Observation) -> Plan: ...


@dataclass(frozen=True)
class Decision:
    """A plan to publish. source: of Trajectory; reason: of CycleStats; text: the reason in words."""

    plan: Plan
    source: int = Trajectory.PLANNED
    reason: int = CycleStats.NONE
    text: str = ""


def decide(planner: Planner, observation: Observation) -> Decision:
    """The model's plan where there is one that passes the checks, else a comfortable stop."""
    try:
        plan = planner.plan(observation)
    except Exception as error:  # a model can fail in any way; the car has to be stopped in all of them
        return _stop(observation, CycleStats.MODEL_FAILED, f"model failed: {type(error).__name__}: {error}")
    if plan.violations:
        return _stop(observation, CycleStats.PLAN_REJECTED, f"plan refused: {'; '.join(plan.violations)}")
    return Decision(plan)


def _stop(observation: Observation, reason: int, text: str) -> Decision:
    return Decision(comfortable_stop(observation), Trajectory.STOP, reason, text)
