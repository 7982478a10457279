"""A driver's thought about each thing ahead: decision, cause and the slots of the sentence.

One function per kind of thing; None if it calls for no thought. `where(name, gap)` puts a distance into words without
flicker. Chooses no phrasing and remembers nothing: `labels` does.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from specdrive_ros.sim.expert import Intent
from specdrive_ros.sim.paths import PassPath
from specdrive_ros.sim.perception import neighbour
from specdrive_ros.sim.traffic import STANDING_MPS, Vehicle
from specdrive_ros.sim.walkers import CLOTHED_KINDS, Walker

if TYPE_CHECKING:
    from specdrive_ros.sim.world import World

Where = Callable[[str, float], str]

MOVES = {"pedestrian": "steps", "child": "runs", "cyclist": "rides", "dog": "runs", "ball": "rolls"}


@dataclass(frozen=True)
class Thought:
    """context: what the choice of a phrasing depends on besides decision and cause."""

    decision: str
    cause: str
    slots: dict[str, str]
    context: str = ""


def lead_slots(lead: Vehicle) -> dict[str, str]:
    return {"colour": lead.colour, "kind": lead.kind}


def obstacle_slots(passing: PassPath) -> dict[str, str]:
    obstacle = passing.obstacle
    names = {"cones": "traffic cones", "box": f"a {obstacle.colour} box"}
    thing = names.get(obstacle.kind, f"a parked {obstacle.colour} {obstacle.kind}")
    return {"thing": thing, "stand": "stand" if obstacle.kind == "cones" else "stands", "side": passing.side}


def person_slots(walker: Walker, lane_d: float) -> dict[str, str]:
    """side: where a moving person comes from, or where a standing one stands."""
    who = f"{walker.kind} in {walker.colour}" if walker.kind in CLOTHED_KINDS else walker.kind
    if walker.kind == "ball":
        who = f"{walker.colour} ball"
    from_left = walker.heading_left < 0 if walker.moving else walker.d > lane_d
    return {"who": who, "side": "left" if from_left else "right", "moves": MOVES[walker.kind]}


def of_hazard(world: "World", intent: Intent, where: Where, how: str) -> Thought | None:
    """Something has stepped out and is still in the way."""
    if intent.person_state != "sudden":
        return None
    walker = intent.person
    slots = person_slots(walker, world.lane_d) | {"how": how}
    if world.ego.speed < STANDING_MPS:
        return Thought("stay_stopped", "hazard", slots, walker.kind)
    slots["where"] = where("person", intent.person_gap_m)
    return Thought("emergency_stop", "hazard", slots, walker.kind)


def of_pedestrian(world: "World", intent: Intent, where: Where) -> Thought | None:
    """Somebody waits at the crossing or is on it."""
    if intent.person_state not in ("waiting", "crossing"):
        return None
    slots = person_slots(intent.person, world.lane_d)
    if world.ego.speed < STANDING_MPS:
        return Thought("stay_stopped", "pedestrian", slots, intent.person_state)
    slots["where"] = where("person", intent.person_gap_m)
    return Thought("stop", f"pedestrian_{intent.person_state}", slots)


def of_crossing(world: "World", intent: Intent) -> Thought | None:
    """A crossing that needs no stop: nobody is there, or somebody walks away."""
    if intent.person_state == "away":
        walker = intent.person
        slots = person_slots(walker, world.lane_d)
        slots["side"] = "left" if walker.d > world.lane_d else "right"
        return Thought("proceed", "pedestrian_away", slots)
    if intent.person_state == "none" and 0.0 < intent.zebra_gap_m < 35.0:
        return Thought("proceed", "empty_crossing", {})
    return None


def of_stop_sign(world: "World", intent: Intent, where: Where) -> Thought | None:
    if intent.stop_sign_gap_m > 1e3 or intent.may_go:
        return None
    if world.ego.speed >= STANDING_MPS:
        return Thought("stop", "stop_sign", {"where": where("stop_sign", intent.stop_sign_gap_m)})
    crosser = intent.cross_vehicle
    if crosser is None:
        return Thought("stay_stopped", "stop_sign", {})
    slots = lead_slots(crosser) | {"side": "right" if crosser.direction > 0 else "left"}
    return Thought("stay_stopped", "cross_traffic", slots, crosser.kind)


def of_cut_in(world: "World", intent: Intent, where: Where) -> Thought | None:
    vehicle = intent.cut_in
    other_lead = intent.lead is not None and intent.lead is not vehicle
    if vehicle is None or other_lead and intent.lead_gap_m < intent.cut_in_gap_m:
        return None
    side = "left" if vehicle.shift.from_d > vehicle.shift.to_d else "right"
    slots = lead_slots(vehicle) | {"side": side, "where": where("cut_in", intent.cut_in_gap_m)}
    return Thought("make_room", "merge" if intent.cut_in_merges else "cut_in", slots, vehicle.kind)


def of_lane_end(world: "World", intent: Intent, where: Where) -> Thought | None:
    """Our lane ends: merge, or let somebody go first."""
    change = intent.change
    if change is not None and change.cause == "lane_end":
        return Thought("merge", "lane_end", {"side": change.side})
    if change is not None or intent.lane_end_gap_m > 45.0:
        return None
    slots = {"where": where("lane_end", intent.lane_end_gap_m), "side": "left"}
    other, _ = neighbour(world, "left")
    if other is None or not intent.blocked_side:
        return None
    return Thought("give_way", "lane_end", slots | lead_slots(other), other.kind)


def of_occupied_lane(world: "World", intent: Intent, where: Where) -> Thought | None:
    """A crawling vehicle ahead, and no room beside it yet."""
    if not intent.blocked_side or intent.lead is None or intent.lane_end_gap_m < 1e3:
        return None
    other, _ = neighbour(world, intent.blocked_side)
    if other is None:
        return None
    slots = lead_slots(intent.lead) | {
        "where": where("lead", intent.lead_gap_m),
        "side": intent.blocked_side,
        "other": f"{other.colour} {other.kind}",
    }
    return Thought("follow", "lane_occupied", slots, intent.lead.kind)
