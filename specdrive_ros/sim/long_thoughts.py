"""A long chain of causation: one clause for each road user and each rule of the road, then the decision.

`labels` gives the one cause that decides; a driver who thinks aloud names everything: who drives ahead, who comes
towards us, who stands at the crossing, what the lamp shows, and what follows from each; also what is *not* there. Made
from the labels of one image (`scene_labels`) and the short sentence, so that scenes on disk can be retold without
being driven again. Knows no world and no model.
"""

from collections.abc import Mapping, Sequence

from specdrive_ros.sim.phrases import fill
from specdrive_ros.sim.scene_labels import (
    KINDS,
    LEAD_EDGES_M,
    OBSTACLE_EDGES_M,
    SIGNAL_EDGES_M,
    STOP_SIGN_EDGES_M,
    THING_EDGES_M,
)
from specdrive_ros.sim.traffic import COLOURS
from specdrive_ros.sim.walkers import HAZARD_KINDS

Scene = Mapping[str, int]  # name of a label -> its class; see `scene_labels.SCENE_LABELS`
Clause = tuple[str, dict[str, str]]  # a phrase and its slots, as in `phrases`
Spans = Sequence[tuple[int, int]]

SIDES = ("left", "right")
WAYS = ("stands still", "walks to the left", "walks to the right")
BENDS = ("sharp right", "gentle right", "", "gentle left", "sharp left")


def think_aloud(scene: Scene, decision: str, visual_spans: Spans) -> tuple[str, tuple[tuple[int, int], ...]]:
    """The long text and its visual spans. decision: the short sentence, which ends it; visual_spans: that
    sentence's."""
    text, spans = "", []
    for clause in (part(scene) for part in PARTS):
        words, found = fill(*clause)
        spans += _moved(found, len(text))
        text += words + " "
    return text + decision, (*spans, *_moved(visual_spans, len(text)))


def _moved(spans: Spans, by: int) -> list[tuple[int, int]]:
    return [(begin + by, end + by) for begin, end in spans]


def reach(band: int, edges_m: Sequence[float]) -> str:
    """A class of distance in words; "somewhere" if it is unknown."""
    if band < 0:
        return "somewhere"
    if band == 0:
        return f"within {edges_m[0]:.0f} m"
    if band == len(edges_m):
        return f"beyond {edges_m[-1]:.0f} m"
    return f"{edges_m[band - 1]:.0f} to {edges_m[band]:.0f} m away"


def _road(scene: Scene) -> Clause:
    bend, place = BENDS[scene["curvature_ahead"]], ("town", "country")[scene["road_kind"]]
    if not bend:
        return "The {place} road ahead is [straight], so the wheel stays where it is.", {"place": place}
    return "The {place} road ahead makes a {bend} bend, so we steer along it.", {"place": place, "bend": bend}


def _signal(scene: Scene) -> Clause:
    if not scene["signal"]:
        return "There is [no] traffic light in sight.", {}
    colour = ("red", "yellow", "green")[scene["signal"] - 1]
    follows = ("so nobody may cross the line", "so it is about to close", "so the way is open")[scene["signal"] - 1]
    slots = {"colour": colour, "where": reach(scene["signal_distance"], SIGNAL_EDGES_M)}
    return f"The traffic light {{where}} is {{colour}}, {follows}.", slots


def _stop_sign(scene: Scene) -> Clause:
    if not scene["stop_sign"]:
        return "There is [no] stop sign in sight.", {}
    where = reach(scene["stop_sign_distance"], STOP_SIGN_EDGES_M)
    return "A [stop sign] stands {where}, so we have to stand at its line.", {"where": where}


def _lead(scene: Scene) -> Clause:
    if not scene["lead"]:
        return "[Nobody] drives ahead of us in our lane.", {}
    does = "shows hazard lights" if scene["lead_hazard_lights"] == 1 else ("drives on", "brakes")[scene["lead_brake"]]
    slots = {"colour": COLOURS[scene["lead_colour"]], "kind": KINDS[scene["lead_kind"]], "does": does}
    where = reach(scene["lead_distance"], LEAD_EDGES_M)
    return "A {colour} {kind} {where} in our lane {does}, so we keep our distance to it.", slots | {"where": where}


def _oncoming(scene: Scene) -> Clause:
    if scene["oncoming"] < 1:
        return "[Nobody] comes towards us in the other lane.", {}
    where = ("still far off", "already near")[scene["oncoming"] - 1]
    return "Somebody who comes towards us is {where}, so the other lane is not ours.", {"where": where}


def _obstacle(scene: Scene) -> Clause:
    if not scene["obstacle"]:
        return "[Nothing] stands in our way.", {}
    colour = "" if scene["obstacle_colour"] < 0 else f"{COLOURS[scene['obstacle_colour']]} "
    thing = (f"{colour}parked vehicle", "row of cones", f"{colour}box")[scene["obstacle"] - 1]
    slots = {"thing": thing, "side": SIDES[scene["pass_side"]]}
    where = reach(scene["obstacle_distance"], OBSTACLE_EDGES_M)
    return "A {thing} {where} stands in our way, so we need the room on its {side}.", slots | {"where": where}


def _cross_traffic(scene: Scene) -> Clause:
    if scene["cross_traffic"] < 1:
        return "[Nobody] crosses the road before us.", {}
    side = SIDES[scene["cross_traffic"] - 1]
    return "Somebody crosses before us from the {side}, so we wait for them.", {"side": side}


def _pedestrian(scene: Scene) -> Clause:
    if not scene["pedestrian"]:
        crossing = ", and there is [none].", " although there is [one] ahead."
        return "[Nobody] is at a crossing" + crossing[scene["zebra"]], {}
    does = ("waits", "is on the road", "has gone over")[scene["pedestrian"] - 1]
    slots = {"colour": COLOURS[scene["pedestrian_colour"]], "does": does, "way": WAYS[scene["pedestrian_heading"]]}
    where = reach(scene["pedestrian_distance"], THING_EDGES_M)
    return "A pedestrian in {colour} {where} {way} and {does}, so we look out for them.", slots | {"where": where}


def _hazard(scene: Scene) -> Clause:
    if not scene["hazard"]:
        return "[Nobody] has run into the road.", {}
    slots = {"who": HAZARD_KINDS[scene["hazard"] - 1], "where": reach(scene["hazard_distance"], THING_EDGES_M)}
    way = WAYS[scene["hazard_heading"]].replace("walks", "moves")
    return "A {who} {where} is on the road and {way}, so we must not go on.", slots | {"way": way}


def _cut_in(scene: Scene) -> Clause:
    if scene["cut_in"] < 1:
        return "[Nobody] moves into our lane.", {}
    slots = {"where": reach(scene["cut_in_distance"], THING_EDGES_M), "side": SIDES[scene["cut_in"] - 1]}
    return "Somebody {where} moves in from the {side}, so we leave them a gap.", slots


def _lane_end(scene: Scene) -> Clause:
    if scene["merge"] < 1:
        return "Our lane [goes on].", {}
    where = reach(scene["lane_end_distance"], THING_EDGES_M)
    lane = ("Our lane", "The lane beside us")[scene["merge"] - 1]
    return f"{lane} [ends] {{where}}, so two lanes become one.", {"where": where}


def _beside(side: str):
    def clause(scene: Scene) -> Clause:
        there = ("is [no] lane of our direction", "is a lane that is [free]", "is a lane that is [taken]")
        return f"On the {side} there {there[scene[f'{side}_lane']]}.", {}

    return clause


def _ourselves(scene: Scene) -> Clause:
    offset, turn = scene["lateral_offset"] - 3, scene["heading_error"] - 2
    how_far = ("", "a little ", "", "far ")[abs(offset)]
    place = f"{how_far}{SIDES[offset < 0]} of the middle" if offset else "in the middle"
    points = "straight on" if not turn else f"to the {SIDES[turn < 0]}"
    return "We ourselves are {place} of our lane and point {points}.", {"place": place, "points": points}


PARTS = (_road, _signal, _stop_sign, _lead, _oncoming, _obstacle, _cross_traffic, _pedestrian, _hazard, _cut_in,
         _lane_end, _beside("left"), _beside("right"), _ourselves)  # fmt: skip
