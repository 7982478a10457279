import numpy as np
import pytest

from specdrive_ros.evaluation.looking.agreement import RULES, Motion, agrees, offset_from
from specdrive_ros.evaluation.looking.sentences import Reading
from specdrive_ros.shapes import WAYPOINT_TIMES_S as T

STRAIGHT = np.stack([np.arange(-5, 75.1, 2.5), np.zeros(33), np.zeros(33)], 1)
V0 = 8.0


def path(along, aside=np.zeros(64)):
    return np.stack([along, aside, np.zeros(64)], 1)


def braking(to_mps, within_s=4.0):
    speeds = np.maximum(V0 - (V0 - to_mps) * T / within_s, to_mps)
    return path(np.cumsum(speeds) * 0.1)


STEADY = path(V0 * T)
STOPPING, HALVED, A_LITTLE_SLOWER = braking(0.0), braking(3.9), braking(7.5)
STANDING = path(np.zeros(64))
STARTING = path(0.75 * T**2)
TO_THE_LEFT, TO_THE_RIGHT = path(V0 * T, np.minimum(0.5 * T, 1.5)), path(V0 * T, -np.minimum(0.5 * T, 1.5))
LATE_LEFT = path(V0 * T, np.maximum(T - 4.5, 0.0))


def verdict(decision, plan, v0=V0, lane=STRAIGHT, **slots):
    return agrees(Reading(decision, "", slots), Motion.along(plan, v0, lane))


@pytest.mark.parametrize("decision", ["stop", "yield", "stay_stopped"])
def test_who_says_stop_stops_or_goes_at_half_the_speed(decision):
    assert verdict(decision, STOPPING) and verdict(decision, HALVED)
    assert not verdict(decision, STEADY) and not verdict(decision, A_LITTLE_SLOWER)
    assert verdict(decision, STANDING, v0=0.0) and not verdict(decision, STARTING, v0=0.0)


@pytest.mark.parametrize("decision", ["proceed", "speed_up", "keep_lane", "start", "pass"])
def test_who_says_go_does_not_end_standing(decision):
    assert verdict(decision, STEADY) and verdict(decision, A_LITTLE_SLOWER) and verdict(decision, STARTING, v0=0.0)
    assert not verdict(decision, STOPPING) and not verdict(decision, STANDING, v0=0.0)


@pytest.mark.parametrize("decision", ["slow", "ease_off"])
def test_who_says_slow_gets_slower(decision):
    assert verdict(decision, A_LITTLE_SLOWER) and verdict(decision, STOPPING)
    assert not verdict(decision, STEADY)


@pytest.mark.parametrize("decision", ["nudge", "change_lane"])
def test_who_says_aside_goes_to_that_side(decision):
    assert verdict(decision, TO_THE_LEFT, side="left") and verdict(decision, TO_THE_RIGHT, side="right")
    assert not verdict(decision, TO_THE_LEFT, side="right") and not verdict(decision, STEADY, side="left")
    assert not verdict(decision, LATE_LEFT, side="left")
    assert verdict(decision, STEADY, side="left", lane=STRAIGHT - [0, 1.0, 0]), "it is there already"


def test_who_returns_moves_away_from_where_it_is_off_or_back():
    assert verdict("return", TO_THE_RIGHT, off="left") and verdict("return", TO_THE_RIGHT, back="right")
    assert not verdict("return", TO_THE_RIGHT, off="right")
    assert not verdict("return", STEADY, back="right", lane=STRAIGHT + [0, 1.0, 0]), "to be off is not to return"


def test_a_bend_is_no_nudge():
    """Along a left bend of 40 m radius the plan that keeps the lane goes left of straight on, not of the lane."""
    angle = np.arange(-5, 75.1, 2.5) / 40.0
    bend = np.stack([40 * np.sin(angle), 40 * (1 - np.cos(angle)), angle], 1)
    turned = V0 * T / 40.0
    keeping = path(40 * np.sin(turned), 40 * (1 - np.cos(turned)))
    assert keeping[39, 1] > 5.0
    assert np.abs(offset_from(bend, keeping[:, :2])).max() < 0.05
    assert not verdict("nudge", keeping, lane=bend, side="left")
    assert verdict("nudge", STEADY, lane=bend, side="right")


@pytest.mark.parametrize("decision, slots",
                         [("follow", {}), ("dance", {}), ("nudge", {}), ("return", {"off": "somewhere"})])
def test_what_has_no_rule_or_no_side_is_not_judged(decision, slots):
    assert verdict(decision, STEADY, **slots) is None


def test_every_rule_can_be_broken():
    plans = (STEADY, STOPPING, STANDING, TO_THE_LEFT, TO_THE_RIGHT)
    for decision in RULES:
        assert {verdict(decision, plan, side="left", back="left") for plan in plans} == {True, False}, decision
