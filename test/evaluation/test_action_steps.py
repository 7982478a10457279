"""Figures of plans with fewer steps of the action head: by hand, and once with mini."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from specdrive_ros.evaluation import action_steps
from specdrive_ros.evaluation.action_steps import PUBLISHED, Planned, figures, main, planned, table


def line(metres, count=3):
    """[count, 64, 2] plans that stay `metres` to the left."""
    plans = np.zeros((count, 64, 2))
    plans[..., 1] = metres
    return plans


def test_figures_by_hand():
    found = {PUBLISHED: Planned(line(0.2), np.array([70.0, 74, 90])), 5: Planned(line(0.5), np.array([38.0, 36, 37]))}
    ten, five = figures(found, line(0.0))
    assert ten["ade_3s"]["mean"] == pytest.approx(0.2) and five["ade_3s"]["mean"] == pytest.approx(0.5)
    assert five["less_ten"]["mean"] == pytest.approx(0.3) and ten["less_ten"]["mean"] == 0
    assert five["apart_3s"] == pytest.approx([0.3, 0.3]) and five["apart_6.4s"] == pytest.approx([0.3, 0.3])
    assert (ten["ms"], five["ms"]) == (74, 37)
    assert [row.split()[0] for row in table([ten, five]).splitlines()] == ["steps", "10", "5"]


def test_figures_of_three_seconds_leave_out_what_comes_later():
    late = line(0.0)
    late[:, 30:] = 9.0
    found = {PUBLISHED: Planned(line(0.0), np.ones(3)), 2: Planned(late, np.ones(3))}
    record = figures(found, line(0.0))[1]
    assert record["ade_3s"]["mean"] == 0 and record["apart_3s"] == [0, 0] and record["apart_6.4s"][0] > 9


def test_mini_plans_nearly_the_same_with_its_own_steps_as_with_ten(capsys):
    assert main(["--samples", "1", "--steps", "5", "1", "--json"]) == 0
    ten, five, one = json.loads(capsys.readouterr().out)["steps"]
    assert [record["steps"] for record in (ten, five, one)] == [10, 5, 1]
    assert five["apart_3s"][0] < 0.15 < one["apart_3s"][0] and five["ade_3s"]["n"] == 10


@pytest.mark.parametrize("wrong", [["--steps", "0"], ["--samples", "0"], ["--seed", "-1"], ["--threads", "0"]])
def test_wrong_numbers_are_refused(wrong, capsys):
    assert main(wrong) == 2 and "action_steps" in capsys.readouterr().err


def test_every_number_of_steps_plans_from_the_same_reasoning(monkeypatch):
    calls, decoded = [], []

    class AlwaysThere:
        fresh = staticmethod(lambda: "state")

        @staticmethod
        def plan(steps):
            calls.append(steps)
            return np.full((64, 2), steps, float)

    monkeypatch.setattr(action_steps, "Start", lambda planner, sample: AlwaysThere)
    decoder = SimpleNamespace(decode=decoded.append)
    monkeypatch.setattr(action_steps, "AutoregressiveDecoder", lambda networks, rules: decoder)
    found = planned(SimpleNamespace(networks=None, rules=None), ["a", "b"], [10, 5], lambda: None)
    assert calls == [10, 5, 10, 5] and decoded == ["state", "state"]
    assert found[5].plans.shape == (2, 64, 2) and (found[10].plans == 10).all()
