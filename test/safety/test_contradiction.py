"""Plain opposites are named, all else is left alone."""

import numpy as np
import pytest

from specdrive_ros.plan import Plan
from specdrive_ros.safety.contradiction import contradiction
from specdrive_ros.safety.plan_checks import NAMES, check
from specdrive_ros.sim.phrases import PHRASES


def plan(text: str, v0: float, end: float, aside: float = 0.0) -> Plan:
    speed = np.linspace(v0, end, 65)[1:]
    x = np.cumsum(speed) * 0.1
    y = aside * np.minimum(np.arange(1, 65) / 30, 1.0)
    zeros = np.zeros(64)
    return Plan(5, text, (1,), np.stack([x, y, zeros], 1), zeros, speed, zeros + (end - v0) / 6.4, zeros, v0)


@pytest.mark.parametrize(
    ("text", "v0", "end", "aside", "found"),
    [
        ("Stop since the light is red.", 8.0, 11.0, 0.0, "says to stop, speeds up"),
        ("Slow down since the lead vehicle is braking.", 8.0, 12.0, 0.0, "says to slow down, speeds up"),
        ("Come to a stop because the way is blocked.", 8.0, 7.5, 0.0, "never slower"),
        ("Accelerate since the road is clear.", 0.0, 0.1, 0.0, "never faster"),
        ("Nudge to the left to pass a cone.", 8.0, 8.0, -2.0, "says left, goes 2.0 m"),
        ("Change to the right lane to let it pass.", 8.0, 8.0, 2.5, "says right"),
        ("Stop since the light is red.", 8.0, 0.0, 0.0, ""),
        ("Keep lane since the road bends right.", 8.0, 8.0, 3.0, ""),
        ("Accelerate because the car in front stops braking.", 8.0, 12.0, 0.0, ""),
        ("Slow down, then proceed since it is clear.", 5.0, 9.0, 0.0, ""),
        ("Nudge to the left to pass a cone.", 8.0, 8.0, 1.0, ""),
        ("", 8.0, 20.0, 0.0, ""),
    ],
)
def test_opposites(text, v0, end, aside, found):
    said = contradiction(plan(text, v0, end, aside))
    assert (found in said) if found else said == ""


def test_it_is_a_warning_and_has_a_name(observed):
    findings = check(plan("Stop since the light is red.", 8.0, 11.0), observed(8.0))
    assert findings.violations == () and findings.warnings[0].startswith("CONTRADICTION: ")
    assert "CONTRADICTION" in NAMES


@pytest.mark.parametrize("decision", ["stop", "stay_stopped", "slow", "speed_up", "start", "proceed", "keep_lane"])
def test_plans_that_do_what_mini_says_are_not_accused(decision):
    """Every phrasing of the decision with a motion that obeys it."""
    motions = {"stop": (8, 0), "stay_stopped": (0, 0), "slow": (8, 4), "speed_up": (6, 10), "start": (0, 6),
               "proceed": (8, 8), "keep_lane": (8, 8)}
    for (name, _), phrasings in PHRASES.items():
        for text in phrasings if name == decision else ():
            assert contradiction(plan(text, *map(float, motions[decision]))) == "", text
