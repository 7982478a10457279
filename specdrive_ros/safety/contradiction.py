"""Whether a plan plainly does the opposite of what its chain of causation says. A warning, never a refusal.

Looks only for stopping and slowing against speeding up, and left against right. A sentence with none of these, or with
two that exclude each other, is not judged: false alarms teach people to look away.
"""

import re

import numpy as np

from specdrive_ros.plan import Plan

SPEED_UP_MPS = 1.5  # above the speed at t0 by more than this is not slowing down
STAY_MPS = 1.5  # still this fast at its slowest is not stopping …
STOP_SHARE = 0.7  # … nor is this share of the speed at t0
CREEP_MPS = 0.5  # slower than this throughout is not driving on
ASIDE_M = 1.0  # farther than this to the other side
EARLY = slice(0, 40)  # four seconds: later the way back may have begun

SLOWING = re.compile(r"\b(slow(s|ing)?( down)?|brak(e|es|ing)|decelerat\w*|ease off|yield(s|ing)?|give way)\b", re.I)
STOPPING = re.compile(r"\b(stop(s|ping)?(?! line)|(stay|remain) stopped|come to a (halt|stop)|wait(s|ing)?)\b", re.I)
GOING = re.compile(r"\b(accelerat\w*|speed(s|ing)? up|proceed(s|ing)?|start moving|pick up speed)\b", re.I)
LEFT = re.compile(r"\b(turn|nudge|move|change|merge|steer|shift|swerve)\w*\b[^.,;]{0,30}\bleft\b", re.I)
RIGHT = re.compile(r"\b(turn|nudge|move|change|merge|steer|shift|swerve)\w*\b[^.,;]{0,30}\bright\b", re.I)
REASON = re.compile(r"\b(because|since|due to|as|for|while|to avoid)\b", re.I)  # what follows is about others


def contradiction(plan: Plan) -> str:
    """What the sentence says against what the plan does; empty unless they exclude each other."""
    decision = REASON.split(plan.reasoning, maxsplit=1)[0]
    return _along(decision, plan) or _aside(decision, plan)


def _along(decision: str, plan: Plan) -> str:
    slows, stops, goes = (bool(words.search(decision)) for words in (SLOWING, STOPPING, GOING))
    slowest, fastest, v0_mps = float(plan.speed_mps.min()), float(plan.speed_mps.max()), plan.v0_mps
    if (slows or stops) and goes:
        return ""
    if (slows or stops) and fastest > v0_mps + SPEED_UP_MPS and slowest >= v0_mps - CREEP_MPS:
        return f"says to {'stop' if stops else 'slow down'}, speeds up from {v0_mps:.1f} to {fastest:.1f} m/s"
    if stops and slowest > max(STAY_MPS, STOP_SHARE * v0_mps):
        return f"says to stop, is never slower than {slowest:.1f} m/s"
    if goes and fastest < CREEP_MPS:
        return f"says to go, is never faster than {fastest:.1f} m/s"
    return ""


def _aside(decision: str, plan: Plan) -> str:
    left, right = bool(LEFT.search(decision)), bool(RIGHT.search(decision))
    if left == right:
        return ""
    sideways = plan.xyz[EARLY, 1] if left else -plan.xyz[EARLY, 1]
    lateral_m = float(sideways[np.abs(sideways).argmax()])
    if lateral_m > -ASIDE_M:
        return ""
    return f"says {'left' if left else 'right'}, goes {-lateral_m:.1f} m to the other side"
