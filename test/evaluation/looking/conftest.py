"""Samples made by formula, and planners whose answers are known: one reads the pixels, one the history."""

from dataclasses import replace

import numpy as np
import pytest

from specdrive_ros.evaluation.looking.samples import HeldOutSample
from specdrive_ros.observation.observation import EgoHistory, Observation
from specdrive_ros.shapes import FRAMES_PER_CAMERA, HISTORY_TIMES_S, NANOSECONDS, WAYPOINT_TIMES_S
from specdrive_ros.training.scenes import planar_poses

RED = ("Slow down to stop behind the line since the traffic light ahead is red.", ((67, 70),), "stop", "red_light")
GREEN = ("Proceed through the intersection since the traffic light ahead is green.", ((66, 71),), "proceed",
         "green_light")
CLEAR = ("Speed up to the usual pace since the road ahead is clear.", ((51, 56),), "speed_up", "clear")
SENTENCES = (RED, GREEN, CLEAR)
SPEED_MPS = 8.0
CLOSING = (1, 2)


def straight(speed_mps, times_s):
    return np.stack([speed_mps * times_s, np.zeros_like(times_s), np.zeros_like(times_s)], 1)


def distances_for(text: str):
    """Metres along the road: the red one brakes to a stop within 3.2 s, the others go on."""
    if text != RED[0]:
        return SPEED_MPS * WAYPOINT_TIMES_S
    braking = np.minimum(WAYPOINT_TIMES_S, 3.2)
    return SPEED_MPS * braking - SPEED_MPS / 6.4 * braking**2


def sample_of(number: int, family: str = "traffic_light") -> HeldOutSample:
    """Number k has sentence k modulo 3 and frames whose every pixel is k + 1."""
    text, spans, decision, cause = SENTENCES[number % 3]
    assert text[spans[0][0]:spans[0][1]] in ("red", "green", "clear")
    poses = straight(SPEED_MPS, HISTORY_TIMES_S)
    future = np.zeros((64, 3))
    future[:, 0] = distances_for(text)
    frames = np.full((FRAMES_PER_CAMERA, 96, 160, 3), number + 1, np.uint8)
    stamps = np.arange(FRAMES_PER_CAMERA) * NANOSECONDS // 10
    observation = Observation(int(stamps[-1]), {"rgb_front": frames}, {"rgb_front": stamps},
                              EgoHistory(*planar_poses(poses), SPEED_MPS))
    lane = straight(1.0, np.arange(-5.0, 75.1, 2.5))
    return HeldOutSample(family, number, 3.0, text, spans, decision, cause, poses, future, lane, observation)


class Knowing:
    """Says and plans what the sample says whose number it finds; -1: the sentence of the clear road."""

    def __init__(self, make_plan):
        self.make_plan = make_plan

    def number(self, observation) -> int:
        raise NotImplementedError

    def plan(self, observation):
        text = self.sentence(observation)
        plan = self.make_plan(curvature=0.0, speed=SPEED_MPS, reasoning=text)
        plan.xyz[:, 0] = distances_for(text)
        return replace(plan, token_ids=self.tokens(text))

    def choices(self, observation, token_ids):
        """Its own sentence's token at each place, whatever stands before it."""
        own = self.tokens(self.sentence(observation))
        return [own[place] if place < len(own) else CLOSING[1] for place in range(len(token_ids))]

    def sentence(self, observation) -> str:
        number = self.number(observation)
        return CLEAR[0] if number < 0 else SENTENCES[number % 3][0]

    @staticmethod
    def tokens(text: str) -> tuple[int, ...]:
        """Ten of the same words, one that differs, and two that close."""
        return (*range(10, 20), 30 + len(text), *CLOSING)


class Looking(Knowing):
    """Black pixels are no sample's."""

    def number(self, observation):
        return int(observation.frames["rgb_front"][-1, 0, 0, 0]) - 1


class Remembering(Knowing):
    """Never looks: red while the car moves, clear when it has stood."""

    def number(self, observation):
        return 0 if observation.history.xyz[0, 0] < -1.0 else -1


@pytest.fixture
def looking(make_plan):
    return Looking(make_plan)


@pytest.fixture
def remembering(make_plan):
    return Remembering(make_plan)


@pytest.fixture
def make_sample():
    return sample_of
