import json
from dataclasses import replace

import numpy as np
import pytest

from specdrive_ros.errors import InputError, WorkFailed
from specdrive_ros.evaluation import counterfactual
from specdrive_ros.evaluation.counterfactual import (KINDS, Flip, approaches, expert_differs, flips, listing, main)
from specdrive_ros.shapes import PICTURE_SIZE
from specdrive_ros.sim.scenario import make_world
from specdrive_ros.sim.world import Command

RED = "Brake gently for the stop line because the light ahead shows red."
GREEN = "Drive on across since the light is green."
LEAD = "Slow down since the red car far ahead is braking in our lane."
CLEAR = "Speed up to the usual pace since the road ahead is clear."


def flip_of(kind="lead", shown="there", further=1, texts=(LEAD, CLEAR), metres=(20.0, 30.0)):
    return Flip(kind, 1, 2.0, shown, further, 15.0, texts[0], metres[0], texts[1], metres[1])


@pytest.mark.parametrize("texts, follows", [
    ((RED, GREEN), True), ((RED, RED), False), ((GREEN, RED), False), ((RED, "It is red and green."), False),
    ((RED, ""), False)])
def test_a_sentence_follows_the_lamp_when_each_names_its_colour_and_only_that(texts, follows):
    assert flip_of("signal", "red", texts=texts).text_follows == follows


@pytest.mark.parametrize("texts, follows", [
    ((LEAD, CLEAR), True), ((LEAD, LEAD), False), ((CLEAR, CLEAR), False), ((CLEAR, LEAD), False),
    (("The car brakes.", CLEAR), False), ((LEAD, "Mumble."), False)])
def test_a_sentence_follows_a_thing_when_it_speaks_of_it_only_while_it_is_there(texts, follows):
    assert flip_of(texts=texts).text_follows == follows


@pytest.mark.parametrize("further, metres, follows", [
    (1, (20, 23.1), True), (1, (20, 22.9), False), (1, (30, 20), False), (-1, (30, 20), True), (-1, (20, 30), False)])
def test_a_plan_follows_when_it_changes_clearly_and_the_right_way(further, metres, follows):
    assert flip_of(further=further, metres=metres).plan_follows == follows


def approach_to(kind, seeds=range(30)):
    """(world at the instant, approach) of the first world that has one."""
    for seed in seeds:
        approach = next(approaches(KINDS[kind], seed), None)
        if approach is not None:
            world = make_world(KINDS[kind].family, seed)
            while world.time_s < approach.time_s - 1e-6:
                world.step(0.05, world.expert_command())
            return world, approach
    raise AssertionError(f"no approach to a {kind}")


@pytest.mark.parametrize("kind", KINDS)
def test_only_the_thing_changes(kind):
    world, at = approach_to(kind)
    one, other = at.as_it_is, at.flipped
    assert one.history is other.history and one.t0_ns == other.t0_ns == round(at.time_s * 1e9)
    changed = (one.frames["rgb_front"] != other.frames["rgb_front"]).any(-1)
    assert changed.shape == (4, *PICTURE_SIZE) and all(0 < share < 0.3 for share in changed.mean((1, 2)))
    thing, gap_m = KINDS[kind].thing(world)
    assert at.gap_m == pytest.approx(gap_m) and at.further in (1, -1) and at.shown in KINDS[kind].states
    if kind != "signal":
        assert at.further == expert_differs(world, thing, gap_m) == 1, "without it the expert gets further"


def test_what_would_change_nothing_is_no_case():
    world = make_world("lead_vehicle", 0)
    assert expert_differs(world, 12345, 10.0) == 0


class Telling:
    """Answers in turn: first as it is, then changed."""

    def __init__(self, make_plan, texts, speeds):
        self.make_plan, self.answers, self.calls = make_plan, list(zip(texts, speeds)), 0

    def plan(self, observation):
        text, speed = self.answers[self.calls % 2]
        self.calls += 1
        return replace(self.make_plan(speed=speed, curvature=0.0), reasoning=text)


def test_flips_are_one_a_world_and_shares_are_listed(make_plan):
    seen = []
    found = flips(Telling(make_plan, (LEAD, CLEAR), (4.0, 8.0)), "lead", 2, 800, seen.append)
    assert seen == found and len({flip.seed for flip in found}) == 2
    assert [flip.distance_m for flip in found] == [25.6, 25.6] and found[0].distance_flipped_m == 51.2
    assert "2 cases: the reasoning follows the pixels in 100%, the plan in 100%" in listing(found)
    stubborn = [replace(flip, reasoning_flipped=LEAD, distance_flipped_m=25.6) for flip in found]
    assert "[text stays plan stays]" in listing(stubborn) and "0%, the plan in 0%" in listing(stubborn)


def test_colours_are_wanted_in_turn(make_plan, monkeypatch):
    monkeypatch.setattr(counterfactual, "approaches", lambda kind, seed: iter(
        [counterfactual.Approach(seed, 1.0, colour, 1, 20.0, None, None) for colour in ("green", "red")]))
    found = flips(Telling(make_plan, (RED, GREEN), (4.0, 8.0)), "signal", 4)
    assert [flip.shown for flip in found] == ["red", "green", "red", "green"]


def test_worlds_without_cases_end_with_a_reason(make_plan, monkeypatch):
    monkeypatch.setattr(counterfactual, "approaches", lambda kind, seed: iter(()))
    with pytest.raises(WorkFailed, match="lead: 0 of 2 cases"):
        flips(Telling(make_plan, (LEAD, CLEAR), (4.0, 8.0)), "lead", 2)
    with pytest.raises(InputError, match="--kind ghost: not known; there are signal, lead, obstacle"):
        flips(None, "ghost", 2)


def test_the_command_prints_cases_or_json_and_refuses_in_one_line(make_plan, monkeypatch, capsys):
    monkeypatch.setattr("specdrive_ros.cycle.Planner.load", lambda model: Telling(make_plan, (LEAD, CLEAR), (4.0, 8.0)))
    assert main(["--kind", "lead", "--cases", "1", "--seed", "800", "--json"]) == 0
    (case,) = json.loads(capsys.readouterr().out)
    assert case["reasoning"] == LEAD and case["further"] == 1 and np.isfinite(case["gap_m"])
    assert main(["--cases", "0"]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("counterfactual: error: --cases 0") and captured.err.count("\n") == 1
