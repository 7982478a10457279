import numpy as np
import pytest

from specdrive_ros.safety.fallback import comfortable_stop, present_curvature
from specdrive_ros.safety.plan_checks import violations


@pytest.mark.parametrize("speed_mps", [-3.0, 0.0, 0.3, 5.0, 20.0])
@pytest.mark.parametrize("curvature", [-0.1, 0.0, 0.02])
def test_stops_and_passes_its_own_checks(observed, speed_mps, curvature):
    observation = observed(speed_mps, curvature)
    plan = comfortable_stop(observation)
    assert violations(plan, observation) == []
    assert plan.t0_ns == 5 and plan.reasoning == "" and plan.token_ids == ()
    if abs(speed_mps) <= 2.0 * 6.4:  # it has the time to stop
        assert plan.speed_mps[-1] == pytest.approx(0, abs=1e-9)
        if curvature == 0:
            assert plan.xyz[-1, 0] == pytest.approx(np.sign(speed_mps) * speed_mps**2 / 4)


def test_distance_and_deceleration(observed):
    plan = comfortable_stop(observed(8.0))
    assert plan.xyz[-1] == pytest.approx([16.0, 0.0, 0.0])
    assert plan.acceleration[:40] == pytest.approx(-2.0) and plan.acceleration[41:] == pytest.approx(0.0)


def test_positions_follow_the_curve(observed):
    plan = comfortable_stop(observed(10.0, 0.05))
    radius = np.linalg.norm(plan.xyz[:, :2] - [0, 20], axis=1)
    assert radius == pytest.approx(20, rel=1e-3)
    steps = np.diff(plan.xyz[:, :2], axis=0, prepend=[[0, 0]])
    moving = np.linalg.norm(steps, axis=1) > 0.05
    heading = np.arctan2(steps[:, 1], steps[:, 0])[moving]
    assert heading == pytest.approx(plan.yaw[moving], abs=0.03)


@pytest.mark.parametrize("speed_mps", [-4.0, 4.0])
@pytest.mark.parametrize("curvature", [-0.1, 0.0, 0.15])
def test_curvature_of_a_history(observed, speed_mps, curvature):
    history = observed(speed_mps, curvature).history
    assert present_curvature(history) == pytest.approx(curvature, rel=0.02)


def test_standing_car_has_no_curvature(observed):
    history = observed(0.0).history
    history.rotation[0] = [[0, -1, 0], [1, 0, 0], [0, 0, 1]]
    assert present_curvature(history) == 0
