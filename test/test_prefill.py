"""A prompt's beginning that goes ahead of its newest image: the same rows, words and plans, or none of it is used."""

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

from specdrive_ros.cycle import Planner
from specdrive_ros.evaluation.decode_benchmark import observations
from specdrive_ros.model_settings import ModelSettings
from specdrive_ros.observation.observation import EgoHistory, Observation
from specdrive_ros.runtime.registry import load_networks
from specdrive_ros.target.tokens import TargetTokenizer

CAMERAS = ("cross_left", "front_wide")


@pytest.fixture(scope="module", params=["torch", "onnxruntime"])
def two_cameras(request, exported):
    """A planner of the reference checkpoint, with two cameras."""
    settings = ModelSettings(exported, cameras=CAMERAS, max_new_tokens=24)
    networks = load_networks(exported, request.param, threads=1)
    planner = Planner(settings, networks, TargetTokenizer.load(networks.config))
    planner.decoder.reads_taps = True  # as drafts do
    return planner


@pytest.fixture
def observed():
    """`observed(first)` -> the observation whose oldest frame is number `first`, standing still."""
    frames = {name: np.random.default_rng(seed).integers(0, 255, (12, 64, 96, 3), np.uint8)
              for seed, name in enumerate(CAMERAS)}  # fmt: skip
    history = EgoHistory(np.zeros((16, 3)), np.tile(np.eye(3), (16, 1, 1)), 0.0)

    def at(first, **changed):
        stamps = np.arange(first, first + 4) * 10**8
        moved = EgoHistory(history.xyz + 0.01 * first, history.rotation, 0.0)
        recorded = {name: each[first : first + 4].copy() for name, each in (frames | changed).items()}
        return Observation(int(stamps[-1]), recorded, dict.fromkeys(CAMERAS, stamps), moved)

    return at


def states(planner, observations, ahead):
    """(rows that went ahead, logits, taps, positions, keys and values) of every prompt."""
    planner.forget()
    found = []
    for observation in observations:
        state = planner.perceive(observation, {})
        rows = np.array(state.cache.past(state.cache.length))
        found.append((planner.prefill.begun_rows, state.logits.copy(), np.array(state.taps), state.positions, rows))
        if ahead:
            planner.prefill_ahead()
    return found


def test_the_target_is_in_the_same_state_after_two_passes_as_after_one(two_cameras, observed):
    cycles = [observed(first) for first in range(5)]
    one, two = (states(two_cameras, cycles, ahead) for ahead in (False, True))
    assert [each[0] for each in one] == [0] * 5
    rows = [each[0] for each in two]
    prompt, image_rows = two[0][3].shape[1], 6  # 64 x 96 pixels: 24 patches, four to a token
    assert rows[:2] == [0, 0] and len(set(rows[2:])) == 1 and 3 * image_rows < rows[2] < prompt - 5 * image_rows
    for whole, parts in zip(one, two):
        for expected, found in zip(whole[1:], parts[1:]):
            np.testing.assert_allclose(found, expected, atol=2e-5)


def test_nothing_goes_ahead_unless_the_frames_are_in_step(two_cameras, observed):
    two_cameras.forget()
    for first, expected in [(0, False), (1, True), (2, True), (4, False), (5, True), (5, False)]:
        two_cameras.perceive(observed(first), {})
        assert two_cameras.prefill_ahead() is expected
    two_cameras.perceive(observed(6), {})
    two_cameras.forget()
    assert not two_cameras.prefill_ahead()


@pytest.mark.parametrize("wrong", ["skipped", "pixels", "larger", "forgotten", "taps", "room"])
def test_what_turns_out_otherwise_is_not_used(two_cameras, observed, wrong, monkeypatch):
    two_cameras.forget()
    for first in (0, 1):
        two_cameras.perceive(observed(first), {})
    assert two_cameras.prefill_ahead()
    after = observed(2)
    if wrong == "skipped":
        after = observed(3)
    if wrong == "pixels":
        after.frames[CAMERAS[0]][1, 0, 0, 0] ^= 255
    if wrong == "larger":
        after = replace(after, frames={name: np.repeat(each, 2, axis=1) for name, each in after.frames.items()})
    if wrong == "forgotten":
        two_cameras.forget()
    if wrong == "room":
        monkeypatch.setattr(type(two_cameras), "_room", 4000)
    asked = {"taps": False} if wrong == "taps" else {}
    found = two_cameras.perceive(after, {}, **asked).logits.copy()
    assert two_cameras.prefill.begun_rows == 0
    two_cameras.forget()
    np.testing.assert_allclose(two_cameras.perceive(after, {}).logits, found, atol=2e-5)
    monkeypatch.undo()


def test_another_newest_image_or_history_does_not_matter(two_cameras, observed):
    two_cameras.forget()
    for first in (0, 1):
        two_cameras.perceive(observed(first), {})
    assert two_cameras.prefill_ahead()
    after = observed(2)
    after.frames[CAMERAS[0]][3] = 7
    after.frames[CAMERAS[1]][0] = 9
    after = replace(after, history=EgoHistory(after.history.xyz * 3 + 1, after.history.rotation, 0.0))
    found = two_cameras.perceive(after, {}).logits.copy()
    assert two_cameras.prefill.begun_rows > 0
    two_cameras.forget()
    np.testing.assert_allclose(two_cameras.perceive(after, {}).logits, found, atol=2e-5)


@pytest.mark.parametrize("draft", ["none", None])
def test_mini_says_and_plans_the_same_whether_or_not_it_began_before(draft):
    """Its own draft carries text over, which rides along in the second part."""
    planners = [Planner.load("mini", draft=draft, threads=1) for _ in range(2)]
    ahead = 0
    for observation in islice(observations(planners[0], 3), 6):
        whole, parts = (planner.plan(observation) for planner in planners)
        assert parts.token_ids == whole.token_ids and parts.drafted == whole.drafted
        np.testing.assert_allclose(parts.xyz, whole.xyz, atol=1e-3)
        ahead += planners[1].prefill.begun_rows > 0
        planners[1].prefill_ahead()
    assert ahead == 4  # all but the first two
