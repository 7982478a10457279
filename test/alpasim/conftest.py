"""A straight road at constant speed as a simulator sends it, and a planner that goes straight on."""

from dataclasses import replace

import cv2
import numpy as np
import pytest

from specdrive_ros.alpasim.planners import Planners
from specdrive_ros.plan import Plan
from specdrive_ros.shapes import FUTURE_WAYPOINTS, WAYPOINT_TIMES_S


class StraightOn:
    """Plans constant speed along the heading; remembers what it was asked. `broken` plans are refused by the checks."""

    def __init__(self, cameras=("rgb_front",)):
        self.cameras = cameras
        self.seeds, self.observations, self.forgotten, self.broken = [], [], 0, False

    def reseed(self, seed):
        self.seeds.append(seed)

    def forget(self):
        self.forgotten += 1

    def plan(self, observation):
        self.observations.append(observation)
        speed = observation.history.speed_mps
        zeros = np.zeros(FUTURE_WAYPOINTS)
        xyz = np.stack([speed * WAYPOINT_TIMES_S, zeros, zeros], axis=1)
        speeds = np.full_like(zeros, speed)
        plan = Plan(observation.t0_ns, "Go straight on", (1, 2), xyz, zeros, speeds, zeros, zeros, speed)
        return replace(plan, violations=("REVERSE: says the test",)) if self.broken else plan


@pytest.fixture
def straight_on():
    return StraightOn()


@pytest.fixture
def planners(straight_on):
    return Planners(straight_on, StraightOn)


@pytest.fixture(scope="session")
def jpeg() -> bytes:
    picture = np.random.default_rng(0).integers(0, 255, (96, 160, 3), np.uint8)
    return cv2.imencode(".jpg", picture)[1].tobytes()
