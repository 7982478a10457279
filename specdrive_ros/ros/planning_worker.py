"""The planner's only working thread: takes messages, plans on the newest observation, publishes, is never silent.

    inbox -> perception -> decide -> outputs          a cycle
    the next image is awaited -> prefill ahead        what its prompt shares with the last one
    an image waited too long -> left out              the next one finds the planner free
    nothing to plan on for too long -> stand-in       also a cycle, with its reason
    not ready at the deadline -> stand-in             from the deadline watch's thread, while this one keeps working

Does not know where messages come from or what a model is.
"""

import time
import traceback
from collections import deque
from collections.abc import Callable, Mapping
from statistics import median
from threading import Thread
from typing import Protocol

from specdrive_ros.msg import CycleStats, Trajectory
from specdrive_ros.observation.refusal import Refusal
from specdrive_ros.ros.conversions import duration, duration_from_ms
from specdrive_ros.ros.deadline_watch import DeadlineWatch
from specdrive_ros.ros.decision import Decision, Planner, decide, substituted
from specdrive_ros.ros.diagnostics import InputMonitor
from specdrive_ros.ros.inbox import Batch, Inbox
from specdrive_ros.ros.perception import WAITING, DroppedCycle, Perceived, Perception
from specdrive_ros.ros.plan_outputs import NANOSECONDS_PER_MS, PlanOutputs
from specdrive_ros.ros.planner_health import PlannerHealth
from specdrive_ros.ros.planner_parameters import plan_limits
from specdrive_ros.safety.deadline import DeadlinePace, Policy
from specdrive_ros.safety.stage_budgets import StageBudgets
from specdrive_ros.safety.stand_in import StandIn
from specdrive_ros.shapes import NANOSECONDS

WATCH_AHEAD_MS = 4.0  # the watch acts this long before the deadline, plus the time that publishing takes
GRACE_BEAT_S = 0.01  # how often an incomplete camera set is checked again
TOO_LONG = 0.5  # periods that an image may wait for the planner
KEEPS_PACE = 1.1  # periods that a cycle may take; waiting messages make it a little longer
PACE_CYCLES = 9  # the last ones, whose median says whether the planner keeps pace


class Host(Protocol):
    """What the worker needs from its node."""

    def get_clock(self): ...

    def get_logger(self): ...


class PlanningWorker:
    """settings: the node's parameters; `retune` passes new ones while it runs.

    on_change: called after every turn, to publish diagnostics if a status has changed.
    """

    def __init__(
        self,
        host: Host,
        planner: Planner,
        inbox: Inbox,
        perception: Perception,
        outputs: PlanOutputs,
        monitors: Mapping[str, InputMonitor],
        health: PlannerHealth,
        settings: Mapping[str, object],
        budgets: StageBudgets,
        on_change: Callable[[], None],
    ):
        self._host, self._planner, self._inbox, self._perception = host, planner, inbox, perception
        self._outputs, self._monitors, self._health, self._on_change = outputs, monitors, health, on_change
        self._budgets = budgets
        self._pace = DeadlinePace(budgets, time.monotonic_ns)
        self._planner.pace = self._pace  # a planner without a pace ignores it
        self._stand_in = StandIn()
        self._cycle_number = self._resets = 0
        self._closed = False
        self._work_ns: deque[int] = deque(maxlen=PACE_CYCLES)
        self._free_ns = time.monotonic_ns()  # since when there is nothing to do
        self._left_out, self._left_out_last = 0, False
        self.retune(settings)
        self._next_beat_ns = time.monotonic_ns() + self._patience_ns
        self._held: tuple[Perceived, CycleStats] | None = None
        self._watch = DeadlineWatch(self._stand_in_for_held)
        self._thread = Thread(target=self._work, name="planner worker", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self, timeout_s: float) -> bool:
        """Stops after the plan in progress; returns False if that takes longer than the timeout."""
        self._inbox.close()
        self._thread.join(timeout_s)
        ended = not self._thread.is_alive()
        self._closed = True  # a cycle that ends later publishes nothing
        self._watch.close()
        return ended

    def retune(self, settings: Mapping[str, object]) -> None:
        """Takes new parameters; they apply from the next cycle on."""
        self._settings = settings
        self._policy = Policy(settings["deadline_policy"])
        self._period_ns = round(NANOSECONDS / settings["cycle_hz"])
        self._patience_ns = self._period_ns + round(settings["deadline_ms"] * NANOSECONDS_PER_MS)
        limits = plan_limits(settings)
        self._planner.limits = limits
        republish = self._policy is not Policy.STOP
        self._stand_in.retune(republish=republish, max_age_s=settings["republish_max_age_s"], limits=limits)

    # The loop

    def _work(self) -> None:
        """Runs until the inbox closes."""
        while (batch := self._inbox.take(self._wait_s())) is not None:
            try:
                self._turn(batch)
            except Exception as error:  # a dead planner is worse than a lost cycle
                self._watch.end()
                self._host.get_logger().error(f"cycle lost: {error}\n{traceback.format_exc()}")
                self._stand_in_for_lost(error)
                self._health.note_lost(str(error))
            self._on_change()

    def _wait_s(self) -> float:
        until_beat_s = max(0.0, (self._next_beat_ns - time.monotonic_ns()) / NANOSECONDS)
        return until_beat_s if self._perception.policy.cameras == "wait" else min(until_beat_s, GRACE_BEAT_S)

    def _turn(self, batch: Batch) -> None:
        self._perception.absorb(batch, self._clock_ns())
        self._forget_after_reset()
        answer = self._perception.observation()
        if isinstance(answer, Perceived):
            if self._waited_too_long(answer):
                self._leave_out(answer)
            else:
                self._run_cycle(answer)  # however long it took: a plan that was just published needs no stand-in
            self._free_ns = time.monotonic_ns()
        elif isinstance(answer, DroppedCycle) or time.monotonic_ns() >= self._next_beat_ns:
            self._run_without(answer)
        else:
            self._note(answer)

    def _clock_ns(self) -> int:
        return self._host.get_clock().now().nanoseconds

    def _forget_after_reset(self) -> None:
        if self._perception.resets == self._resets:
            return
        self._resets = self._perception.resets
        self._stand_in.forget()
        if hasattr(self._planner, "forget"):
            self._planner.forget()

    def _note(self, refusal: Refusal | None) -> None:
        if refusal is not None and refusal.reason not in WAITING:
            self._health.note_refusal(str(refusal.reason), refusal.text)

    # A cycle with an observation

    def _waited_too_long(self, perceived: Perceived) -> bool:
        """Whether this image waited so long for the planner that it would be planned on late, and so would the next,
        and so on, although the planner keeps pace. Never twice in a row."""
        if not self._policy.stands_in or self._left_out_last or len(self._work_ns) < PACE_CYCLES:
            return False
        keeps_pace = median(self._work_ns) < KEEPS_PACE * self._period_ns
        return keeps_pace and self._free_ns - perceived.arrived_ns > TOO_LONG * self._period_ns

    def _leave_out(self, perceived: Perceived) -> None:
        """Plans nothing on this observation, but looks at it: the next one shares its frames."""
        self._left_out, self._left_out_last = self._left_out + 1, True
        waited_ms = (self._free_ns - perceived.arrived_ns) / NANOSECONDS_PER_MS
        self._health.note_refusal("IMAGE_WAITED", f"its image waited {waited_ms:.0f} ms for the planner: left out")
        if hasattr(self._planner, "look"):
            self._guarded(lambda: self._planner.look(perceived.observation), "look")
        self._prefill_ahead(perceived.arrived_ns + self._period_ns)

    def _run_cycle(self, perceived: Perceived) -> None:
        begun_ns, self._left_out_last = time.monotonic_ns(), False
        stats = self._statistics(perceived.newest_ns)
        deadline_ns = perceived.arrived_ns + round(self._settings["deadline_ms"] * NANOSECONDS_PER_MS)
        self._pace.begin(deadline_ns if self._policy.shortens else None)
        if self._policy.stands_in:
            self._held = (perceived, stats)
            self._watch.begin(self._due_ns(deadline_ns), self._period_ns)
        decision = decide(self._planner, perceived.observation, self._stand_in)
        stood_in = self._watch.end()
        stages = dict(decision.plan.stage_ms)
        stages["wait"] = max(0.0, (begun_ns - perceived.arrived_ns) / NANOSECONDS_PER_MS - perceived.decode_ms)
        stages["decode"] = perceived.decode_ms
        if stood_in and self._policy is Policy.STOP and decision.source == Trajectory.PLANNED:
            self._host.get_logger().warning("a plan came after the stop: not published", throttle_duration_sec=1.0)
        else:
            stages = self._publish(decision, perceived, stats, stages)
        self._note_budgets(stages)
        self._work_ns.append(time.monotonic_ns() - begun_ns)
        self._end_cycle(self._patience_ns)
        self._prefill_ahead(perceived.arrived_ns + self._period_ns)

    def _prefill_ahead(self, due_ns: int) -> None:
        """Lets the planner begin the next prompt, unless its image is already there and its cycle is due. An image that
        comes meanwhile loses nothing: what is begun here is not left to do in its cycle."""
        if not self._settings["prefill_ahead"] or not hasattr(self._planner, "prefill_ahead"):
            return
        if time.monotonic_ns() >= due_ns and self._inbox.waiting(self._planner.cameras):
            return
        self._guarded(self._planner.prefill_ahead, "prefill ahead")

    def _guarded(self, act: Callable[[], object], name: str) -> None:
        """What the planner does between cycles may fail without a cycle being lost; the next one begins anew."""
        try:
            act()
        except Exception as error:
            self._planner.forget()
            self._host.get_logger().warning(
                f"{name} failed: {type(error).__name__}: {error}", throttle_duration_sec=10.0
            )

    def _note_budgets(self, stages: Mapping[str, float]) -> None:
        """Records whole stages only: an action head with fewer steps says nothing about one with all of them."""
        left_out = ("total", "wait", "action") if self._pace.action_shortened else ("total", "wait")
        self._budgets.note({stage: ms for stage, ms in stages.items() if stage not in left_out})

    def _due_ns(self, deadline_ns: int) -> int:
        """When the watch has to act for its output to be published at the deadline."""
        ahead_ms = WATCH_AHEAD_MS + self._budgets.stage_ms("publish")
        return deadline_ns - round(ahead_ms * NANOSECONDS_PER_MS)

    def _stand_in_for_held(self) -> None:
        """Publishes a stand-in at the deadline of the cycle in progress. Runs on the watch's thread."""
        perceived, stats = self._held
        observation = perceived.observation
        waited_s = max(0.0, (time.monotonic_ns() - perceived.arrived_ns) / NANOSECONDS)
        waited_s -= self._settings["deadline_ms"] / 1000  # every plan may be that old when published
        try:
            substitute = self._stand_in.at(observation.t0_ns, observation.history, max(0.0, waited_s))
            text = f"no plan after {self._settings['deadline_ms']:g} ms"
            decision = substituted(substitute, CycleStats.DEADLINE, text)
            copy = self._statistics(perceived.newest_ns, stats.cycle)
            self._publish(decision, perceived, copy, {})
            self._on_change()
        except Exception as error:  # the watch has to live as long as the node
            self._host.get_logger().error(f"no stand-in: {error}\n{traceback.format_exc()}")

    def _stand_in_for_lost(self, fault: Exception) -> None:
        """Publishes a stand-in after an internal error; uses nothing but the clock and the last plan."""
        try:
            substitute = self._stand_in.without_history(self._perception.newest_ns(self._clock_ns()))
            decision = substituted(substitute, CycleStats.MODEL_FAILED, f"cycle lost: {type(fault).__name__}: {fault}")
            instant = _Instant(self._perception.frame_id, time.monotonic_ns())
            self._publish(decision, instant, self._statistics({}), {})
        except Exception as error:  # the worker has to live as long as the node
            self._host.get_logger().error(f"no stand-in: {error}\n{traceback.format_exc()}")
        self._end_cycle(self._period_ns)

    # A cycle without an observation

    def _run_without(self, refusal: Refusal | None) -> None:
        """Publishes the last plan if possible, else a stop, when there is nothing to plan on."""
        present = self._perception.present(self._clock_ns(), self._settings["odometry_stale_s"])
        if present.history is None:
            substitute = self._stand_in.without_history(present.t0_ns, present.speed_mps)
        else:
            substitute = self._stand_in.at(present.t0_ns, present.history)
        decision = substituted(substitute, *self._why_without(refusal))
        stats = self._statistics(self._perception.newest_stamps())
        perceived = _Instant(self._perception.frame_id, time.monotonic_ns())
        self._publish(decision, perceived, stats, {})
        self._end_cycle(self._period_ns)

    def _why_without(self, refusal: Refusal | None) -> tuple[int, str]:
        """The reason as a CycleStats constant, and in words."""
        stale = [name for name, monitor in self._monitors.items() if monitor.is_stale]
        if stale:
            dropped = f"; {refusal.text}" if isinstance(refusal, DroppedCycle) else ""
            return CycleStats.INPUT_STALE, f"INPUT_STALE: nothing comes from {', '.join(stale)}{dropped}"
        if refusal is not None:
            return CycleStats.NO_OBSERVATION, f"{refusal.reason}: {refusal.text}"
        return CycleStats.NO_OBSERVATION, "NOTHING_NEW: no newer camera set"

    # Common to both

    def _statistics(self, newest_ns: Mapping[str, int], cycle: int | None = None) -> CycleStats:
        now_ns = self._clock_ns()
        return CycleStats(
            cycle=self._cycle_number if cycle is None else cycle,
            deadline=duration_from_ms(self._settings["deadline_ms"]),
            input_names=list(newest_ns),
            input_ages=[duration(now_ns - stamp_ns) for stamp_ns in newest_ns.values()],
            dropped_observations=self._perception.dropped + self._left_out,
        )

    def _publish(
        self, decision: Decision, perceived: "Perceived | _Instant", stats: CycleStats, stages: Mapping[str, float]
    ) -> dict[str, float]:
        stats.fallback_reason, stats.fallback_text = decision.reason, decision.text
        deadline_ms = self._settings["deadline_ms"]
        if self._closed:
            return dict(stages)
        stages = self._outputs.publish(decision, perceived.frame_id, stats, stages, perceived.arrived_ns, deadline_ms)
        if decision.text:
            self._host.get_logger().warning(decision.text, throttle_duration_sec=1.0)
        self._health.note_cycle(
            decision, stats, deadline_ms=deadline_ms, shortened=self._pace.shortened, budgets=self._budgets.values()
        )
        return stages

    def _end_cycle(self, patience_ns: int) -> None:
        self._cycle_number += 1
        self._next_beat_ns = time.monotonic_ns() + patience_ns


class _Instant:
    """Takes the place of `Perceived` in a cycle without an observation."""

    def __init__(self, frame_id: str, arrived_ns: int):
        self.frame_id, self.arrived_ns = frame_id, arrived_ns
