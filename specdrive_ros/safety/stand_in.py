"""What replaces a plan that is late, refused or cannot be made, in one order of preference:

    the last valid plan, re-expressed, while it is young and still passes the checks  ->  a comfortable stop

Remembers the last valid plan and what was published last. Knows nothing of ROS and has no clock. Any thread may ask.
"""

from dataclasses import dataclass, replace
from threading import RLock

from specdrive_ros.observation.observation import EgoHistory, Observation
from specdrive_ros.plan import Plan
from specdrive_ros.safety.fallback import comfortable_stop, stop_from
from specdrive_ros.safety.plan_checks import PlanLimits, violations
from specdrive_ros.safety.republish import LONGEST_AGE_S, followed, motion_on, re_expressed
from specdrive_ros.shapes import NANOSECONDS


@dataclass(frozen=True)
class Substitute:
    """A plan to publish instead. why_not_republished: empty if it is the last valid plan."""

    plan: Plan
    republished: bool
    why_not_republished: str = ""


class StandIn:
    """republish: whether the last valid plan may be used at all; max_age_s: and up to which age."""

    def __init__(self, *, republish: bool = True, max_age_s: float = 0.5, limits: PlanLimits = PlanLimits()):
        self._lock = RLock()
        self.retune(republish=republish, max_age_s=max_age_s, limits=limits)
        self.forget()

    def retune(self, *, republish: bool, max_age_s: float, limits: PlanLimits) -> None:
        with self._lock:
            self._republish, self._max_age_s, self._limits = republish, max_age_s, limits

    def forget(self) -> None:
        """The clock or the scene has changed: no plan is valid any more."""
        with self._lock:
            self._valid: Plan | None = None
            self._published: Plan | None = None
            self._stopping = False

    def remember(self, plan: Plan) -> None:
        """Records a plan that passed the checks and is published."""
        with self._lock:
            if self._valid is None or plan.t0_ns >= self._valid.t0_ns:
                self._valid = self._published = plan
                self._stopping = False

    def at(self, t0_ns: int, history: EgoHistory, waited_s: float = 0.0) -> Substitute:
        """The substitute for an instant whose history is known. waited_s: how long ago that instant was."""
        observation = Observation(t0_ns, {}, {}, history)
        with self._lock:
            why_not = self._why_not(t0_ns, waited_s)
            if not why_not:
                plan = re_expressed(self._valid, t0_ns, history)
                why_not = "; ".join(violations(plan, observation, self._limits))
                if not why_not:
                    return self._publish(plan, True)
            return self._publish(comfortable_stop(observation), False, why_not)

    def without_history(self, t0_ns: int, speed_mps: float | None = None) -> Substitute:
        """The substitute for an instant whose history is not known: a stop from the given speed, if that is known.

        Otherwise the car is assumed to have done what it was told: a stop that has begun continues, a plan turns into
        a stop, and if nothing was ever published, the car is told to stand.
        """
        why_not = "where the car is now is not known"
        with self._lock:
            if self._published is None or speed_mps is not None:
                return self._publish(stop_from(t0_ns, speed_mps or 0.0, 0.0), False, why_not)
            t0_ns = max(t0_ns, self._published.t0_ns)
            if self._stopping:
                return self._publish(followed(self._published, t0_ns), False, why_not)
            speed_mps, curvature = motion_on(self._published, (t0_ns - self._published.t0_ns) / NANOSECONDS)
            return self._publish(stop_from(t0_ns, speed_mps, curvature), False, why_not)

    def _why_not(self, t0_ns: int, waited_s: float) -> str:
        if not self._republish:
            return "republishing is switched off"
        if self._valid is None:
            return "there is no earlier plan"
        age_s = (t0_ns - self._valid.t0_ns) / NANOSECONDS
        if age_s < 0:
            return "the last plan is newer"
        if age_s + waited_s > min(self._max_age_s, LONGEST_AGE_S):
            return f"the last plan is {age_s + waited_s:.2f} s old; limit {self._max_age_s:g} s"
        return ""

    def _publish(self, plan: Plan, republished: bool, why_not: str = "") -> Substitute:
        if not republished:
            plan = replace(plan, reasoning="", token_ids=())
        self._published, self._stopping = plan, not republished
        return Substitute(plan, republished, why_not)
