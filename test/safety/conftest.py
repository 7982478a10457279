import numpy as np
import pytest

from specdrive_ros.observation.observation import EgoHistory, Observation
from specdrive_ros.shapes import HISTORY_TIMES_S


@pytest.fixture
def observed():
    """`observed(speed_mps, curvature=0)`: a history of constant speed and curvature, without frames."""

    def make(speed_mps: float, curvature: float = 0.0) -> Observation:
        yaw = curvature * speed_mps * HISTORY_TIMES_S
        along = speed_mps * HISTORY_TIMES_S
        chord = along * np.sinc(yaw / 2 / np.pi)
        xyz = np.stack([chord * np.cos(yaw / 2), chord * np.sin(yaw / 2), 0 * yaw], axis=-1)
        rotation = np.tile(np.eye(3), (16, 1, 1))
        rotation[:, 0, 0] = rotation[:, 1, 1] = np.cos(yaw)
        rotation[:, 1, 0], rotation[:, 0, 1] = np.sin(yaw), -np.sin(yaw)
        return Observation(5, {}, {}, EgoHistory(xyz, rotation, speed_mps))

    return make
