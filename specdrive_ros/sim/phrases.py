"""The words of the chains of causation: a few phrasings for each decision and its cause.

`{slot}` is filled from the scene; `[word]` is a fixed word that only the picture can justify. Both
become visual spans. Knows nothing of when a phrase is used.
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
}

DETERMINED_SHARE = 0.85
_PIECE = re.compile(r"\{(\w+)\}|\[([^\]]+)\]")


def choose_phrase(decision: str, cause: str, context: str, seed: int, event: int) -> str:
    """A phrasing for one event: mostly set by its context, now and then by chance of (seed, event)."""
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
