"""The flow loss: draws near the noise, early waypoints first, zero for a velocity that is right."""

import pytest
import torch

from specdrive_ros.shapes import FUTURE_WAYPOINTS
from specdrive_ros.target.network import AlpamayoTarget
from specdrive_ros.training.flow_loss import NEAR_NOISE_TIME, flow_loss, training_times, waypoint_weights


class KnowsTheAnswer:
    """The velocity that leads to `action` from everywhere, `error` off at one waypoint."""

    flow_matching_loss = AlpamayoTarget.flow_matching_loss

    def __init__(self, action, waypoint=0, error=0.0):
        self.action, self.error = action, torch.zeros_like(action)
        self.error[:, waypoint] = error

    def velocity(self, x, t, *_):
        return (self.action - x) / (1 - t) + self.error


def loss(target):
    torch.manual_seed(0)
    return float(flow_loss(target, target.action, [], None, None))


@pytest.fixture
def action():
    return torch.randn((8, FUTURE_WAYPOINTS, 2), generator=torch.Generator().manual_seed(1))


def test_the_right_velocity_costs_nothing(action):
    assert loss(KnowsTheAnswer(action)) < 1e-6


def test_an_error_at_the_first_waypoint_costs_seven_times_one_at_the_last(action):
    first, last = (loss(KnowsTheAnswer(action, waypoint, 1.0)) for waypoint in (0, FUTURE_WAYPOINTS - 1))
    assert first / last == pytest.approx(7.0, rel=1e-3)


def test_weights_keep_the_scale_of_the_loss():
    assert float(waypoint_weights(torch.zeros(1)).mean()) == pytest.approx(1.0)


def test_half_of_the_draws_lie_near_the_noise():
    torch.manual_seed(0)
    times = training_times(20000, torch.zeros(1))
    assert times.shape == (20000, 1, 1) and times.min() >= 0 and times.max() < 1
    # Beta(1, 1.5) has 1 - 0.95^1.5 = 7.4 % of its own below 0.05
    assert (times < NEAR_NOISE_TIME).float().mean() == pytest.approx(0.5 + 0.5 * 0.074, abs=0.02)
