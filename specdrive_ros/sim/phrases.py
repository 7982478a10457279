"""The wording of the chains of causation: a few phrasings for each decision and its cause.

`{slot}` is filled from the scene; `[word]` is a fixed word that only the image can justify. Both become visual spans.
Knows nothing about when a phrase is used.
"""

import re
import zlib

LEAD = "{colour} {kind}"
PHRASES: dict[tuple[str, str], tuple[str, ...]] = {
    ("keep_lane", "clear"): (
        "Keep lane at a steady speed since the road ahead is [straight] and [clear].",
        "Hold the current speed in our lane because the road is [straight] and [clear].",
        "Continue straight at the same speed since the lane ahead is [clear].",
    ),
    ("keep_lane", "curve"): (
        "Keep lane and follow the {bend} {turn} curve ahead at a steady speed.",
        "Steer along the {bend} {turn} curve since the road ahead bends that way.",
        "Follow the lane through the {bend} {turn} curve because the road ahead is [clear].",
    ),
    ("slow", "curve"): (
        "Slow down for the {bend} {turn} curve ahead to keep the turn comfortable.",
        "Reduce speed before the curve since the road ahead turns {turn} with a {bend} bend.",
        "Ease off now because a {bend} curve to the {turn} is coming up.",
    ),
    ("speed_up", "clear"): (
        "Speed up to the usual pace since the road ahead is [clear].",
        "Accelerate to the usual speed because the lane ahead is [clear] and we are slow.",
        "Gain speed again since nothing stands in the way and the road is [clear].",
    ),
    ("ease_off", "road"): (
        "Ease off to the usual speed since we are too fast for this {place} road.",
        "Slow down a little because our speed is too high for a {place} road.",
        "Let the speed drop since this {place} road calls for a lower speed.",
    ),
    ("return", "offset"): (
        "Steer back to the lane centre since we are too far to the {off}.",
        "Correct the steering because the car has drifted to the {off} of its lane.",
        "Return to the middle of the lane since we are off to the {off}.",
    ),
    ("return", "heading"): (
        "Straighten the car since it points too far to the {off} of the lane.",
        "Correct the heading because the car is turned to the {off} of the road.",
    ),
    ("follow", "lead"): (
        f"Keep distance to the {LEAD} {{where}} because it drives ahead in our lane.",
        f"Follow the {LEAD} {{where}} since it is the lead vehicle in our lane.",
        f"Match the speed of the lead vehicle since a {LEAD} is {{where}} in our lane.",
    ),
    ("slow", "lead_braking"): (
        f"Slow down since the {LEAD} {{where}} is [braking] in our lane.",
        f"Brake to keep distance because the {LEAD} {{where}} shows its [brake lights].",
        f"Reduce speed now because the lead {LEAD} {{where}} is [braking].",
    ),
    ("stop", "lead_standing"): (
        f"Slow down to stop behind the {LEAD} [standing] {{where}} in our lane.",
        f"Brake to a stop since the {LEAD} {{where}} is [standing] in our lane.",
        f"Come to a stop because a [standing] {LEAD} blocks our lane {{where}}.",
    ),
    ("speed_up", "lead_pulls_away"): (
        f"Speed up since the {LEAD} {{where}} is pulling away from us.",
        f"Accelerate behind the {LEAD} because the gap to it {{where}} is opening.",
        f"Close the gap gently since the lead {LEAD} {{where}} drives away.",
    ),
    ("stay_stopped", "lead"): (
        f"Stay stopped since the {LEAD} right in front of us is [standing].",
        f"Remain stopped behind the {LEAD} because it has not moved off yet.",
        f"Wait behind the [standing] {LEAD} since it blocks our lane.",
    ),
    ("start", "lead_moves"): (
        f"Start moving since the {LEAD} in front of us drives off.",
        f"Move off gently because the {LEAD} ahead has started moving.",
        f"Set off behind the {LEAD} since it is leaving its place.",
    ),
    ("stop", "red_light"): (
        "Slow down to stop behind the line since the traffic light ahead is {signal}.",
        "Brake gently for the stop line because the light ahead shows {signal}.",
        "Come to a stop at the intersection since the traffic light is {signal}.",
    ),
    ("stop", "yellow_light"): (
        "Slow down to stop behind the line since the traffic light turns {signal}.",
        "Brake for the stop line because the light has changed to {signal}.",
        "Prepare to stop at the intersection since the light ahead turned {signal}.",
    ),
    ("proceed", "yellow_light"): (
        "Continue through the intersection since the {signal} light is too close to stop for.",
        "Clear the intersection because the light turned {signal} when we were too near.",
    ),
    ("proceed", "green_light"): (
        "Proceed through the intersection since the traffic light ahead is {signal}.",
        "Continue straight through the intersection because the light shows {signal}.",
        "Drive on across the intersection since the traffic light is {signal}.",
    ),
    ("stay_stopped", "red_light"): (
        "Stay stopped behind the line since the traffic light is still {signal}.",
        "Remain stopped at the intersection because the light ahead still shows {signal}.",
        "Wait at the stop line since the traffic light has not left {signal}.",
    ),
    ("start", "green_light"): (
        "Start moving through the intersection since the traffic light turned {signal}.",
        "Move off from the stop line because the light is now {signal}.",
        "Accelerate to proceed through the intersection since the traffic light turns {signal}.",
    ),
    ("start", "clear"): (
        "Start moving since the lane in front of us is [clear] now.",
        "Move off and gain speed because the road ahead is [clear].",
    ),
    ("slow", "obstacle"): (
        "Slow down since {thing} {stand} {where} in our lane.",
        "Reduce speed and get ready to pass because {thing} {stand} {where}.",
    ),
    ("nudge", "obstacle"): (
        "Nudge to the {side} to pass {thing} that {stand} {where} in our lane.",
        "Move over to the {side} since {thing} {stand} {where} in our lane.",
        "Steer around {thing} on the {side} because the lane is blocked {where}.",
    ),
    ("pass", "obstacle"): (
        "Hold this line past the obstacle beside us since it is not yet behind.",
        "Keep to this side of the lane because we are still passing the obstacle.",
    ),
    ("return", "passed"): (
        "Return to the {back} into our lane since the obstacle is behind us.",
        "Steer back to the {back} because the obstacle has been passed.",
        "Move back to the {back} into the lane centre since we are past the obstacle.",
    ),
    ("slow", "oncoming"): (
        "Slow down behind {thing} since an [oncoming] vehicle needs the other lane.",
        "Brake and give way because an [oncoming] vehicle approaches beside {thing}.",
    ),
    ("stay_stopped", "oncoming"): (
        "Stay stopped behind {thing} since an [oncoming] vehicle is still coming.",
        "Wait before passing {thing} because an [oncoming] vehicle has the way.",
    ),
    ("stop", "red_arrow"): (
        "Slow down to stop behind the line since the signal ahead shows a {signal} [arrow].",
        "Brake gently for the stop line because the [arrow] for our lane is {signal}.",
        "Come to a stop at the intersection since our signal is a {signal} [arrow].",
    ),
    ("stop", "yellow_arrow"): (
        "Slow down to stop behind the line since the [arrow] for our lane turns {signal}.",
        "Prepare to stop at the intersection since our signal is now a {signal} [arrow].",
    ),
    ("proceed", "yellow_arrow"): (
        "Continue through the intersection since the {signal} [arrow] is too close to stop for.",
        "Clear the intersection because the [arrow] turned {signal} when we were too near.",
    ),
    ("proceed", "green_arrow"): (
        "Proceed through the intersection since the signal ahead shows a {signal} [arrow].",
        "Continue straight through the intersection because the [arrow] for our lane is {signal}.",
    ),
    ("stay_stopped", "red_arrow"): (
        "Stay stopped behind the line since the [arrow] for our lane is still {signal}.",
        "Wait at the stop line since our signal still shows a {signal} [arrow].",
    ),
    ("start", "green_arrow"): (
        "Start moving through the intersection since the [arrow] for our lane turned {signal}.",
        "Move off from the stop line because our signal is now a {signal} [arrow].",
    ),
    ("stop", "stop_sign"): (
        "Slow down to stop at the line since there is a [stop sign] {where}.",
        "Brake to a full stop because of the [stop sign] {where} beside our lane.",
        "Come to a stop at the intersection {where} since it has a [stop sign].",
    ),
    ("stay_stopped", "stop_sign"): (
        "Stay stopped at the line since the [stop sign] asks for a full stop.",
        "Stand still for a moment because of the [stop sign] beside our lane.",
    ),
    ("stay_stopped", "cross_traffic"): (
        f"Stay stopped at the line since a {LEAD} is [crossing] from the {{side}}.",
        f"Wait at the stop sign because a {LEAD} from the {{side}} is [crossing] ahead of us.",
    ),
    ("start", "stop_sign"): (
        "Start moving since we have stopped at the sign and the intersection is [clear].",
        "Move off across the intersection because it is [clear] after our full stop.",
        "Set off from the stop line since nobody is [crossing] and it is our turn.",
    ),
    ("stop", "pedestrian_waiting"): (
        "Slow down to give way since a {who} [waits] at the crossing {where} on the {side}.",
        "Brake to stop before the crossing because a {who} is [waiting] {where} on the {side}.",
        "Come to a stop for the {who} who [stands] at the crossing {where} on the {side}.",
    ),
    ("stop", "pedestrian_crossing"): (
        "Slow down to stop since a {who} from the {side} is [crossing] the road {where}.",
        "Brake before the crossing because a {who} {where} is [walking] over it from the {side}.",
        "Come to a stop since a {who} is [on the crossing] {where}, coming from the {side}.",
    ),
    ("stay_stopped", "pedestrian"): (
        "Stay stopped since the {who} has not [left] our side of the crossing.",
        "Wait before the crossing because the {who} is still [in our way].",
        "Remain stopped for the {who} who needs the [crossing] in front of us.",
    ),
    ("start", "pedestrian_gone"): (
        "Start moving since the {who} has [left] our lane.",
        "Move off over the crossing because the {who} is [out of our way].",
    ),
    ("proceed", "pedestrian_away"): (
        "Proceed over the crossing since the {who} on the {side} is [walking away].",
        "Drive on because the {who} on the {side} is [moving away] from our lane.",
    ),
    ("proceed", "empty_crossing"): (
        "Continue over the crossing ahead since [nobody] waits beside it or walks on it.",
        "Drive on over the crossing because it is [empty] and its sides are [clear].",
    ),
    ("make_room", "cut_in"): (
        f"Make room since a {LEAD} {{where}} [moves over] from the {{side}} into our lane.",
        f"Ease off because a {LEAD} {{where}} is [cutting in] from the {{side}} lane.",
        f"Open the gap for the {LEAD} {{where}} that [comes over] from the {{side}}.",
    ),
    ("make_room", "merge"): (
        f"Make room since a {LEAD} {{where}} on the {{side}} must merge where its lane [ends].",
        f"Ease off to let in the {LEAD} {{where}} because the lane on the {{side}} [ends].",
    ),
    ("merge", "lane_end"): (
        "Merge to the {side} since our lane [ends] ahead and the next one is [free].",
        "Move over to the {side} lane because ours [narrows] and there is [room] beside us.",
    ),
    ("give_way", "lane_end"): (
        f"Slow down to merge behind the {LEAD} on the {{side}} since our lane [ends] {{where}}.",
        f"Let the {LEAD} in the {{side}} lane go first because our lane [narrows] {{where}}.",
    ),
    ("change_lane", "slow_lead"): (
        f"Change to the {{side}} lane since the {LEAD} {{where}} [crawls] and that lane has [room].",
        f"Overtake the [slow] {LEAD} {{where}} on the {{side}} because there is [room] in that lane.",
        f"Move to the {{side}} lane to pass the {LEAD} {{where}} that shows [hazard lights].",
    ),
    ("follow", "lane_occupied"): (
        f"Stay behind the [slow] {LEAD} {{where}} since a {{other}} is in the {{side}} lane.",
        f"Follow the [crawling] {LEAD} {{where}} because the {{side}} lane is taken by a {{other}}.",
    ),
    ("emergency_stop", "hazard"): (
        "Brake {how} since a {who} {moves} into our lane from the {side} {where}.",
        "Stop at once and brake {how} because a {who} {moves} out from the {side} {where}.",
        "Brake {how} for the {who} that {moves} in front of us from the {side} {where}.",
    ),
    ("stay_stopped", "hazard"): (
        "Stay stopped since the {who} is still [in our way] on the road.",
        "Hold still because the {who} has not [left] our lane.",
    ),
    ("start", "hazard_gone"): (
        "Start moving again since the {who} has [left] our lane.",
        "Move off carefully because the {who} is [out of our way] now.",
    ),
}

DETERMINED_SHARE = 0.85
_PIECE = re.compile(r"\{(\w+)\}|\[([^\]]+)\]")


def choose_phrase(decision: str, cause: str, context: str, seed: int, event: int) -> str:
    """A phrasing for one event: mostly determined by its context, sometimes random by (seed, event)."""
    phrases = PHRASES[decision, cause]
    chance = zlib.crc32(f"{seed}/{event}".encode())
    if chance % 1000 < 1000 * DETERMINED_SHARE:
        return phrases[zlib.crc32(f"{decision}/{cause}/{context}".encode()) % len(phrases)]
    return phrases[(chance // 1000) % len(phrases)]


def fill(phrase: str, slots: dict[str, str]) -> tuple[str, tuple[tuple[int, int], ...]]:
    """The text of a phrase and the character spans of its visual words."""
    text, spans, done = "", [], 0
    for piece in _PIECE.finditer(phrase):
        text += phrase[done : piece.start()]
        word = slots[piece.group(1)] if piece.group(1) else piece.group(2)
        spans.append((len(text), len(text) + len(word)))
        text += word
        done = piece.end()
    return text + phrase[done:], tuple(spans)
