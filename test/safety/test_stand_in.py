"""The order of preference: the last valid plan while young and safe, then a stop, and why."""

import numpy as np
import pytest

from specdrive_ros.plan import Plan
from specdrive_ros.safety.stand_in import StandIn
from specdrive_ros.shapes import NANOSECONDS, WAYPOINT_TIMES_S

T0 = 5


def straight(age_s: float, speed: float = 8.0) -> Plan:
    zeros = np.zeros(64)
    xyz = np.stack([speed * WAYPOINT_TIMES_S, zeros, zeros], axis=-1)
    t0_ns = T0 - round(age_s * NANOSECONDS)
    return Plan(t0_ns, "Keep going.", (1, 2), xyz, zeros, zeros + speed, zeros, zeros, speed)


def test_young_and_safe_is_republished(observed):
    stand_in = StandIn(max_age_s=0.5)
    stand_in.remember(straight(0.3))
    got = stand_in.at(T0, observed(8.0).history)
    assert got.republished and got.plan.t0_ns == T0 and got.plan.xyz[0, 0] == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("stand_in", "plan", "speed", "waited", "why"),
    [
        (StandIn(), None, 8.0, 0.0, "no earlier plan"),
        (StandIn(max_age_s=0.2), straight(0.3), 8.0, 0.0, "0.30 s old; limit 0.2 s"),
        (StandIn(max_age_s=0.5), straight(0.3), 8.0, 0.4, "0.70 s old; limit 0.5 s"),
        (StandIn(republish=False), straight(0.1), 8.0, 0.0, "switched off"),
        (StandIn(), straight(0.4), 2.0, 0.0, "START_SPEED"),
        (StandIn(), straight(-0.4), 8.0, 0.0, "newer"),
    ],
)
def test_else_a_stop_that_says_why(observed, stand_in, plan, speed, waited, why):
    stand_in.forget()
    if plan is not None:
        stand_in.remember(plan)
    got = stand_in.at(T0, observed(speed).history, waited)
    assert not got.republished and why in got.why_not_republished
    assert got.plan.speed_mps[0] < speed and got.plan.reasoning == ""


def test_a_republished_plan_does_not_make_itself_young(observed):
    stand_in = StandIn(max_age_s=0.5)
    stand_in.remember(straight(0.5))
    assert stand_in.at(T0, observed(8.0).history).republished
    later = T0 + NANOSECONDS // 10
    assert not stand_in.at(later, observed(8.0).history).republished


def test_without_history_a_plan_becomes_one_stop(observed):
    stand_in = StandIn()
    stand_in.remember(straight(0.0))
    speeds = []
    for tenth in range(1, 50):
        got = stand_in.without_history(T0 + tenth * NANOSECONDS // 10)
        assert not got.republished
        speeds.append(got.plan.v0_mps)
    assert speeds[0] == pytest.approx(8.0)
    assert np.diff(speeds[:40]) == pytest.approx(-0.2), "one stop that goes on, not one that begins anew"
    assert speeds[-1] == pytest.approx(0.0)


def test_without_anything_it_says_to_stand():
    got = StandIn().without_history(T0)
    assert not got.republished and np.all(got.plan.speed_mps == 0) and np.all(got.plan.xyz == 0)


def test_forgetting_forgets(observed):
    stand_in = StandIn()
    stand_in.remember(straight(0.1))
    stand_in.forget()
    assert not stand_in.at(T0, observed(8.0).history).republished
