"""The training loss of the action expert.

Flow matching as released, with two changes of our own. Near flow time 0 the input is pure noise and says nothing about
the action, so whatever the velocity gets right there must come from the prompt: half of the draws are taken there and
teach looking; the other half (the release's distribution) teach the rest of the way. And early waypoints weigh more,
because an acceleration or curvature moves every later position.
"""

import torch
from torch import Tensor

from specdrive_ros.shapes import FUTURE_WAYPOINTS
from specdrive_ros.target.network import AlpamayoTarget, KeyValues, draw_flow_times

NEAR_NOISE_SHARE = 0.5
NEAR_NOISE_TIME = 0.05  # these draws are uniform between 0 and this
FIRST_WEIGHT, LAST_WEIGHT = 1.75, 0.25  # linear over the waypoints, mean 1


def flow_loss(target: AlpamayoTarget, action: Tensor, past: KeyValues, positions: Tensor, visible: Tensor) -> Tensor:
    """Scalar loss, with one draw of noise and flow time per row.

    action: [B, 64, 2] normalised; past, positions [3, B, 64], visible [B, S]: as for `AlpamayoTarget.velocity`.
    """
    squared = target.flow_matching_loss(action, past, positions, visible, t=training_times(len(action), action))
    return (squared.mean(-1) * waypoint_weights(action)).mean()


def training_times(count: int, like: Tensor) -> Tensor:
    """[count, 1, 1] flow times."""
    released = draw_flow_times(count, device=like.device, dtype=like.dtype)
    near = NEAR_NOISE_TIME * torch.rand_like(released)
    return torch.where(torch.rand_like(released) < NEAR_NOISE_SHARE, near, released)


def waypoint_weights(like: Tensor) -> Tensor:
    return torch.linspace(FIRST_WEIGHT, LAST_WEIGHT, FUTURE_WAYPOINTS, device=like.device, dtype=like.dtype)
