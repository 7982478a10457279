"""Scenario after scenario in the embedded world, in fixed ticks.

Before the car is handed over in a scenario, the expert drives a lead-in, so that a planner has history and images by
then. Stamps ascend through all scenarios; between two of them they jump, as the scene does. A car without fresh
commands brakes. Knows the world, not ROS and not the wall clock.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from specdrive_ros.errors import InputError
from specdrive_ros.shapes import NANOSECONDS
from specdrive_ros.sim.scenario import FAMILIES, make_world
from specdrive_ros.sim.world import Command, World

TICK_S = 0.05
TICK_NS = round(TICK_S * NANOSECONDS)
TICKS_PER_FRAME = 2  # camera at 10 Hz
FIRST_STAMP_NS = NANOSECONDS  # zero means "no time yet" in ROS
SCENE_GAP_NS = 2 * NANOSECONDS
STALE_COMMAND = Command(acceleration_mps2=-3.0, curvature_per_m=0.0)


@dataclass(frozen=True)
class PlaybackConfig:
    """The expert drives for lead_in_s; after command_timeout_s without a command the car brakes; max_s ends (0:
    never)."""

    lead_in_s: float = 2.0
    command_timeout_s: float = 1.0
    max_s: float = 0.0


def parse_scenarios(entries: Sequence[str], seed: int, count: int) -> list[tuple[str, int]]:
    """`family` or `family:seed`, each driven with `count` consecutive seeds. Raises InputError."""
    scenarios = []
    for entry in entries:
        family, _, given = entry.partition(":")
        if family not in FAMILIES or not (given.isdigit() or not given):
            raise InputError(
                f"scenario {entry!r}: not known; must be one of {', '.join(FAMILIES)}, with :SEED if wanted"
            )
        first = int(given) if given else seed
        scenarios += [(family, first + step) for step in range(count)]
    if not scenarios:
        raise InputError("scenarios: none; should name at least one")
    return scenarios


class ScenarioPlayback:
    """Plays (family, seed) pairs. `emit` is called with each event, a dictionary ready for JSON.

    world:    the current world; its ego, cameras and time.
    stamp_ns: time of the world's state, ascending through all scenarios.
    finished: the last scenario has ended.
    """

    def __init__(
        self,
        scenarios: Sequence[tuple[str, int]],
        emit: Callable[[dict], None],
        config: PlaybackConfig = PlaybackConfig(),
        make: Callable[[str, int], World] = make_world,
    ):
        self._scenarios, self._emit, self._config, self._make = list(scenarios), emit, config, make
        self.stamp_ns = FIRST_STAMP_NS
        self.finished = False
        self._index = -1
        self._next_scenario()

    def _next_scenario(self) -> None:
        self._index += 1
        family, seed = self._scenarios[self._index]
        self.world = self._make(family, seed)
        self._ticks = 0
        self._command: Command | None = None
        self._command_tick = 0
        self._distance_m = 0.0
        self._label = ""
        self._late_frames = 0
        self._handed_over = False

    @property
    def frame_due(self) -> bool:
        return self._ticks % TICKS_PER_FRAME == 0

    def take_command(self, command: Command) -> None:
        """Sets the command from now on; ignored during the lead-in except for its age."""
        self._command, self._command_tick = command, self._ticks

    def note_late_frame(self) -> None:
        self._late_frames += 1

    def tick(self) -> None:
        """Advances by one tick of 0.05 s; begins the next scenario when one has ended."""
        if self.finished or self._has_ended():
            return
        if self._ticks == 0:
            self._say("start", lead_in_s=self._config.lead_in_s)
        self._hand_over_when_due()
        self._tell_label()
        x, y = self.world.ego.x, self.world.ego.y
        self.world.step(TICK_S, self._driving_command())
        self._ticks += 1
        self.stamp_ns += TICK_NS
        if self._handed_over:
            self._distance_m += float(np.hypot(self.world.ego.x - x, self.world.ego.y - y))

    def _has_ended(self) -> bool:
        outcome = self.world.outcome()
        seconds = self._ticks * TICK_S - self._config.lead_in_s
        if outcome is not None:
            self._end(outcome.name, outcome.why)
        elif self._config.max_s and seconds >= self._config.max_s:
            self._end("timeout", f"ended after {self._config.max_s:g} s, as asked")
        else:
            return False
        return True

    def _end(self, name: str, why: str) -> None:
        self._say(
            "outcome",
            outcome=name,
            why=why,
            distance_m=round(self._distance_m, 3),
            seconds=round(self._ticks * TICK_S, 3),
            frames=self._ticks // TICKS_PER_FRAME,
            late_frames=self._late_frames,
        )
        if self._index + 1 < len(self._scenarios):
            self.stamp_ns += SCENE_GAP_NS
            self._next_scenario()
        else:
            self.finished = True
            self._say("finished", scenarios=len(self._scenarios))

    def _hand_over_when_due(self) -> None:
        if not self._handed_over and self._ticks * TICK_S >= self._config.lead_in_s:
            self._handed_over = True
            self._say("hand_over", speed_mps=round(self.world.ego.speed, 3))

    def _driving_command(self) -> Command:
        if not self._handed_over:
            return self.world.expert_command()
        age_s = (self._ticks - self._command_tick) * TICK_S
        if self._command is None or age_s > self._config.command_timeout_s:
            return STALE_COMMAND
        return self._command

    def _tell_label(self) -> None:
        if not self.frame_due:
            return
        label = self.world.label()
        if label.text != self._label:
            self._label = label.text
            self._say("label", text=label.text, decision=label.decision, cause=label.cause)

    def _say(self, event: str, **details: object) -> None:
        family, seed = self._scenarios[self._index]
        head = {"event": event, "index": self._index, "name": family, "seed": seed, "stamp_ns": self.stamp_ns}
        self._emit(head | details)
