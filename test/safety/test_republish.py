"""A plan seen from later: the same points over ground at the same times."""

from dataclasses import replace

import numpy as np
import pytest

from specdrive_ros.safety.fallback import stop_from
from specdrive_ros.safety.plan_checks import violations
from specdrive_ros.safety.republish import followed, pose_on, re_expressed
from specdrive_ros.shapes import NANOSECONDS, WAYPOINT_TIMES_S

T0 = 5  # of the observations that `observed` makes


@pytest.fixture
def arc():
    """`arc(speed, curvature, age_s)`: a plan of constant speed and curvature, made so long before T0."""

    def make(speed: float, curvature: float, age_s: float):
        yaw = curvature * speed * WAYPOINT_TIMES_S
        chord = speed * WAYPOINT_TIMES_S * np.sinc(yaw / 2 / np.pi)
        xyz = np.stack([chord * np.cos(yaw / 2), chord * np.sin(yaw / 2), 0 * yaw], axis=-1)
        base = stop_from(T0 - round(age_s * NANOSECONDS), speed, curvature)
        zeros = np.zeros(64)
        return replace(base, xyz=xyz, yaw=yaw, speed_mps=zeros + speed, acceleration=zeros, curvature=zeros + curvature)

    return make


@pytest.mark.parametrize("age_s", [0.0, 0.1, 0.25, 0.5, 1.5])
@pytest.mark.parametrize("curvature", [-0.05, 0.0, 0.03])
def test_a_car_that_kept_to_its_arc_sees_the_same_arc(arc, observed, age_s, curvature):
    observation = observed(8.0, curvature)
    plan = re_expressed(arc(8.0, curvature, age_s), T0, observation.history)
    expected = arc(8.0, curvature, 0.0)
    inside = WAYPOINT_TIMES_S + age_s <= 6.4
    assert plan.t0_ns == T0 and plan.xyz.shape == (64, 3)
    np.testing.assert_allclose(plan.xyz[inside], expected.xyz[inside], atol=0.01)
    np.testing.assert_allclose(plan.yaw[inside], expected.yaw[inside], atol=1e-3)
    assert violations(plan, observation) == []


def test_a_car_beside_its_plan_sees_the_plan_beside_it(arc, observed):
    """The car stood still for half a second: the plan is where it was over ground, and no longer passes the checks."""
    observation = observed(0.0)
    plan = re_expressed(arc(8.0, 0.0, 0.5), T0, observation.history)
    assert plan.xyz[0] == pytest.approx([8.0 * 0.6, 0.0, 0.0])
    assert {text.split(":")[0] for text in violations(plan, observation)} == {"START", "START_SPEED"}


def test_behind_its_end_the_car_brakes(arc, observed):
    plan = re_expressed(arc(4.0, 0.0, 1.0), T0, observed(4.0).history)
    assert plan.speed_mps[53] == pytest.approx(4.0) and plan.speed_mps[-1] == pytest.approx(2.0)
    assert np.all(np.diff(plan.xyz[:, 0]) > 0)


@pytest.mark.parametrize("age_s", [-0.1, 1.6])
def test_out_of_reach_is_refused(arc, observed, age_s):
    with pytest.raises(ValueError, match="re-expressed"):
        re_expressed(arc(8.0, 0.0, age_s), T0, observed(8.0).history)


@pytest.mark.parametrize("curvature", [-0.05, 0.0, 0.03])
def test_followed_is_re_expressed_for_a_car_that_did_follow(arc, observed, curvature):
    plan = arc(8.0, curvature, 0.5)
    seen = followed(plan, T0)
    np.testing.assert_allclose(seen.xyz, re_expressed(plan, T0, observed(8.0, curvature).history).xyz, atol=0.02)


def test_a_followed_stop_ends_where_it_would_have():
    stop = stop_from(0, 8.0, 0.02)
    later = followed(stop, NANOSECONDS)
    assert later.v0_mps == pytest.approx(6.0)
    end, heading = pose_on(stop, 1.0)
    cos, sin = np.cos(heading), np.sin(heading)
    x, y, _ = later.xyz[-1]
    over_ground = [end[0] + cos * x - sin * y, end[1] + sin * x + cos * y]
    assert over_ground == pytest.approx(stop.xyz[-1][:2].tolist(), abs=0.01)
