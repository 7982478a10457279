"""What the ego does and why, in one sentence, from the expert's intent.

An event lasts while decision and cause stay the same; its phrasing is chosen once, so the text changes only when
something changes. Coarse bands have hysteresis; between soft decisions an event lasts at least `HOLD_S`. Knows the
expert's facts, not the image; `scene_labels` says what the image shows.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from specdrive_ros.sim import thoughts
from specdrive_ros.sim.control import braking_needed
from specdrive_ros.sim.expert import Intent
from specdrive_ros.sim.phrases import choose_phrase, fill
from specdrive_ros.sim.scene_labels import SCENE_LABELS, bend_ahead, scene_of
from specdrive_ros.sim.thoughts import Thought, lead_slots, obstacle_slots
from specdrive_ros.sim.traffic import STANDING_MPS

if TYPE_CHECKING:
    from specdrive_ros.sim.world import World

__all__ = ["SCENE_LABELS", "Label", "Labeller"]

SOFT = {
    ("keep_lane", "clear"),
    ("keep_lane", "curve"),
    ("slow", "curve"),
    ("speed_up", "clear"),
    ("ease_off", "road"),
    ("follow", "lead"),
    ("speed_up", "lead_pulls_away"),
}
HOLD_S = 1.0
CLOSE_M, FAR_M = 14.0, 30.0
WHERE = ("close ahead", "about 20 m ahead", "far ahead")
GONE = {  # what stopped us -> why we start
    "pedestrian": "pedestrian_gone",
    "hazard": "hazard_gone",
    "stop_sign": "stop_sign",
    "cross_traffic": "stop_sign",
}
OFFSET_ON_M, OFFSET_OFF_M = 0.55, 0.25
HARD_BRAKING_MPS2 = 4.0
THINGS = ("lead", "obstacle", "person", "stop_sign", "cut_in", "lane_end")
HEADING_ON_RAD, HEADING_OFF_RAD = math.radians(5.0), math.radians(1.0)


@dataclass(frozen=True)
class Label:
    """text; visual_spans: character spans that only the image can determine; scene: see `SCENE_LABELS`."""

    text: str
    visual_spans: tuple[tuple[int, int], ...]
    decision: str
    cause: str
    scene: dict[str, int]


class Band:
    """Which of the bands between `edges` a value is in; changes only when clearly past an edge."""

    def __init__(self, edges: tuple[float, ...], margin: float):
        self._edges, self._margin, self._index = edges, margin, None

    def update(self, value: float) -> int:
        plain = sum(value > edge for edge in self._edges)
        if self._index is None or plain == self._index:
            self._index = plain
        else:
            edge = self._edges[plain - 1] if plain > self._index else self._edges[plain]
            if abs(value - edge) > self._margin:
                self._index = plain
        return self._index

    def forget(self) -> None:
        self._index = None


class Switch:
    """On above one threshold, off below a lower one."""

    def __init__(self, on: float, off: float):
        self._on, self._off, self.state = on, off, False

    def update(self, value: float) -> bool:
        self.state = value > (self._off if self.state else self._on)
        return self.state


class Labeller:
    """Describes a world step by step; remembers the current event."""

    def __init__(self, seed: int):
        self._seed = seed
        self._event = -1
        self._key: tuple[str, str] | None = None
        self._thought: Thought | None = None
        self._since_s = 0.0
        self._phrase = ""
        self._where = {name: Band((CLOSE_M, FAR_M), 1.5) for name in THINGS}
        self._bend = Band((-0.017, -0.005, 0.005, 0.017), 0.0012)
        self._drifted = Switch(OFFSET_ON_M, OFFSET_OFF_M)
        self._turned = Switch(HEADING_ON_RAD, HEADING_OFF_RAD)
        self._slow = Switch(1.3, 0.5)
        self._fast = Switch(1.2, 0.5)
        self._curve_brake = Switch(0.4, -0.1)
        self._lead_stands = Switch(-1.0, -1.5)
        self._hard = Switch(HARD_BRAKING_MPS2, -1.0)
        self._starting = False
        self._stopped_for: Thought | None = None
        self._overtaking: dict[str, str] = {}

    def consider(self, world: "World", intent: Intent) -> None:
        """Follows the course of events. Call it once per step, in the order of time."""
        self._adopt(self._think(world, intent), world.time_s)

    def describe(self, world: "World", intent: Intent) -> Label:
        """The sentence and the scene's labels now."""
        text, spans = fill(self._phrase, self._thought.slots)
        return Label(text, spans, self._thought.decision, self._thought.cause, scene_of(world, intent))

    def _adopt(self, thought: Thought, time_s: float) -> None:
        key = (thought.decision, thought.cause)
        if key == self._key:
            self._thought = thought
            return
        if self._key in SOFT and key in SOFT and time_s - self._since_s < HOLD_S:
            return
        self._event += 1
        self._key, self._thought, self._since_s = key, thought, time_s
        self._phrase = choose_phrase(*key, thought.context, self._seed, self._event)

    def _think(self, world: "World", intent: Intent) -> Thought:
        speed = world.ego.speed
        bend = self._bend.update(bend_ahead(world))
        drifted = self._drifted.update(abs(intent.path_error_m))
        turned = self._turned.update(abs(_heading_to_path(intent)))
        self._slow.update(min(world.wanted_mps, intent.curve_speed_mps) - speed)
        self._fast.update(speed - world.wanted_mps)
        self._curve_brake.update(speed - intent.curve_speed_mps)
        if speed < STANDING_MPS:
            self._starting = True
        elif speed > 2.5:
            self._starting = False
        lead_first = intent.lead is not None and intent.lead_gap_m < intent.signal_gap_m
        thought = self._people(world, intent) or thoughts.of_stop_sign(world, intent, self._place)
        thought = thought or self._moving_off(intent) or self._lanes(world, intent)
        if thought is None and self._starting:
            thought = self._standing_or_starting(world, intent, speed, lead_first)
        thought = thought or self._around_obstacle(intent, speed)
        if thought is None and lead_first:
            thought = self._lead(world, intent)
        thought = thought or self._signal(world, intent) or self._lateral(intent, drifted, turned)
        return thought or thoughts.of_crossing(world, intent) or self._road(world, intent, bend)

    def _place(self, name: str, gap_m: float) -> str:
        return WHERE[self._where[name].update(gap_m)]

    def _people(self, world: "World", intent: Intent) -> Thought | None:
        if intent.person_state == "sudden":
            self._hard.update(braking_needed(world.ego.speed, intent.person_gap_m))
        else:
            self._hard.state = False
        how = "hard" if self._hard.state else "firmly"
        thought = thoughts.of_hazard(world, intent, self._place, how)
        return thought or thoughts.of_pedestrian(world, intent, self._place)

    def _moving_off(self, intent: Intent) -> Thought | None:
        """The reason for starting, once what stopped us is gone; kept until the car is well under way."""
        if self._key is not None and self._key[0] == "stay_stopped":
            self._stopped_for = self._thought
        stopped = self._stopped_for
        if not self._starting or stopped is None or stopped.cause not in GONE:
            self._stopped_for = stopped if self._starting else None
            return None
        return Thought("start", GONE[stopped.cause], stopped.slots)

    def _lanes(self, world: "World", intent: Intent) -> Thought | None:
        change, lead = intent.change, intent.lead
        if change is None or change.cause != "slow_lead":
            self._overtaking = {}
        elif not self._overtaking and lead is not None:
            self._overtaking = lead_slots(lead) | {
                "side": change.side,
                "where": self._place("lead", intent.lead_gap_m),
            }
        if self._overtaking:
            return Thought("change_lane", "slow_lead", self._overtaking, self._overtaking["kind"])
        return (
            thoughts.of_lane_end(world, intent, self._place)
            or thoughts.of_occupied_lane(world, intent, self._place)
            or thoughts.of_cut_in(world, intent, self._place)
        )

    def _standing_or_starting(self, world: "World", intent: Intent, speed: float, lead_first: bool) -> Thought | None:
        moving_off = intent.command.acceleration_mps2 > 0.05
        if lead_first and intent.lead_gap_m < 8.0:
            if moving_off and intent.lead.speed > STANDING_MPS:
                return Thought("start", "lead_moves", lead_slots(intent.lead), intent.lead.kind)
            if speed < STANDING_MPS:
                return Thought("stay_stopped", "lead", lead_slots(intent.lead), intent.lead.kind)
            return None
        if intent.stops_for_signal:
            return (
                Thought("stay_stopped", "red_" + _lamp(world), {"signal": intent.signal})
                if speed < STANDING_MPS
                else None
            )
        if intent.yields:
            if speed < STANDING_MPS:
                return Thought(
                    "stay_stopped", "oncoming", obstacle_slots(intent.passing), intent.passing.obstacle.kind
                )
            return None
        green = "green_" + _lamp(world)
        if self._key == ("start", green) or intent.signal == "green" and intent.signal_gap_m < 15.0:
            return Thought("start", green, {"signal": "green"})
        free = not lead_first and intent.passing is None
        return Thought("start", "clear", {}) if moving_off and free else None

    def _lateral(self, intent: Intent, drifted: bool, turned: bool) -> Thought | None:
        if intent.passing is not None and intent.passing.s_in_start < intent.s < intent.passing.s_out_end:
            return None
        if intent.change is not None:
            return None
        if drifted:
            return Thought("return", "offset", {"off": "left" if intent.path_error_m > 0 else "right"})
        if turned:
            return Thought("return", "heading", {"off": "left" if intent.heading_error > 0 else "right"})
        return None

    def _around_obstacle(self, intent: Intent, speed: float) -> Thought | None:
        passing = intent.passing
        if passing is None:
            self._where["obstacle"].forget()
            return None
        kind = passing.obstacle.kind
        slots = obstacle_slots(passing)
        if intent.yields:
            return Thought("slow", "oncoming", slots, kind)
        if intent.s > passing.s_out_start - 0.2 * speed:
            back = "right" if passing.side == "left" else "left"
            return (
                Thought("return", "passed", {"back": back}) if abs(intent.d - passing.lane_d) > 0.2 else None
            )
        if intent.obstacle_gap_m < 0.5:
            return Thought("pass", "obstacle", {})
        slots["where"] = self._place("obstacle", intent.obstacle_gap_m)
        if passing.s_in_start - intent.s > max(6.0, 1.8 * speed):
            return Thought("slow", "obstacle", slots, kind)
        return Thought("nudge", "obstacle", slots, kind)

    def _lead(self, world: "World", intent: Intent) -> Thought:
        lead = intent.lead
        slots = lead_slots(lead) | {"where": self._place("lead", intent.lead_gap_m)}
        if self._lead_stands.update(-lead.speed):
            return Thought("stop", "lead_standing", slots, lead.kind)
        if lead.braking:
            return Thought("slow", "lead_braking", slots, lead.kind)
        if self._slow.state and world.ego.acceleration > 0.4 and lead.speed > world.ego.speed + 0.3:
            return Thought("speed_up", "lead_pulls_away", slots, lead.kind)
        return Thought("follow", "lead", slots, lead.kind)

    def _signal(self, world: "World", intent: Intent) -> Thought | None:
        if intent.signal == "none":
            return None
        goes_on = intent.signal == "green" or intent.signal == "yellow" and not intent.stops_for_signal
        cause = f"{intent.signal}_{_lamp(world)}"
        return Thought("proceed" if goes_on else "stop", cause, {"signal": intent.signal})

    def _road(self, world: "World", intent: Intent, bend: int) -> Thought:
        place = world.road.kind.name
        slots = {"turn": "left" if bend > 2 else "right", "bend": "sharp" if bend in (0, 4) else "gentle"}
        if self._curve_brake.state and bend != 2:
            return Thought("slow", "curve", slots, place)
        if self._fast.state:
            return Thought("ease_off", "road", {"place": place})
        if self._slow.state:
            return Thought("speed_up", "clear", {}, place)
        if bend != 2:
            return Thought("keep_lane", "curve", slots, place)
        return Thought("keep_lane", "clear", {}, place)


def _lamp(world: "World") -> str:
    return "arrow" if world.signal is not None and world.signal.arrow else "light"


def _heading_to_path(intent: Intent) -> float:
    path = intent.change or intent.passing
    slope = path.offset(intent.s)[1] if path else 0.0
    return intent.heading_error - math.atan(slope)
