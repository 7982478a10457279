"""Driving scenes: what is recorded is what happened, and can be made again from the seed."""

import copy
from dataclasses import replace

import numpy as np
import pytest

from specdrive_ros.errors import InputError
from specdrive_ros.shapes import FRAME_STEP_S, FUTURE_WAYPOINTS, HISTORY_POSES
from specdrive_ros.sim.ego import EgoState
from specdrive_ros.sim.labels import SCENE_LABELS
from specdrive_ros.sim.scenario import FAMILIES, make_world
from specdrive_ros.sim.world import Outcome
from specdrive_ros.training import scenes
from specdrive_ros.training.scenes import (TRAIN_SEED_BASE, VALIDATION_SEED_BASE, EpisodePlan, Shard, expert_future,
                                            open_shards, planar_poses, poses_in_ego, record_episode, record_episodes,
                                            sample_frames, worlds, write_shard)

SHORT = EpisodePlan(lead_in_s=(1.5, 2.0), samples=3, sample_every_s=0.5)


@pytest.fixture(scope="module")
def shard(tmp_path_factory):
    path = tmp_path_factory.mktemp("scenes") / "shard-0.safetensors"
    write_shard(path, record_episodes(worlds(TRAIN_SEED_BASE, len(FAMILIES)), SHORT))
    return Shard(path)


def test_poses_in_ego_turn_with_the_ego():
    ego = EgoState(x=10.0, y=5.0, yaw=np.pi / 2, speed=0.0)
    poses = np.array([[10.0, 5.0, np.pi / 2], [10.0, 7.0, np.pi / 2 + 0.1], [9.0, 5.0, -np.pi]])
    expected = [[0, 0, 0], [2, 0, 0.1], [0, 1, np.pi / 2]]
    assert np.allclose(poses_in_ego(poses, ego), expected, atol=1e-12)


def test_planar_poses_rotate_forward_to_yaw():
    xyz, rotation = planar_poses(np.array([[1.0, 2.0, 0.3]]))
    assert np.allclose(rotation[0] @ [1, 0, 0], [np.cos(0.3), np.sin(0.3), 0])
    assert np.allclose(xyz, [[1, 2, 0]])


def test_future_is_what_the_expert_then_does_and_leaves_the_world_alone():
    world = make_world("cruise", 5)
    untouched = copy.deepcopy(world)
    future = expert_future(world)
    assert (world.time_s, world.ego) == (untouched.time_s, untouched.ego)
    start = world.ego
    for _ in range(20):
        world.step(0.05, world.expert_command())
    reached = poses_in_ego(np.array([[world.ego.x, world.ego.y, world.ego.yaw]]), start)[0]
    assert np.allclose(future[9], reached, atol=1e-9)


def test_samples_have_history_before_and_future_after(shard):
    assert shard.sample_history.shape[1:] == (HISTORY_POSES, 3)
    assert shard.sample_future.shape[1:] == (FUTURE_WAYPOINTS, 3)
    assert np.allclose(shard.sample_history[:, -1], 0.0, atol=1e-6)
    speed = np.linalg.norm(shard.sample_future[:, 0, :2], axis=1) / FRAME_STEP_S
    assert np.all(np.abs(speed - shard.sample_speed) < 1.5)


def test_words_that_need_the_picture_are_marked_in_the_text(shard):
    for words, spans in zip(shard.words, shard.sample_spans):
        for start, end in spans[spans[:, 0] >= 0]:
            assert 0 <= start < end <= len(words["text"])
            assert words["text"][start:end].strip() == words["text"][start:end]


TWINS = EpisodePlan(lead_in_s=(3.0, 3.1), samples=4, sample_every_s=1.0, twins=1.0)


def episode_with_twins(family: str) -> tuple[dict, int]:
    """(an episode, the number of its first twin)"""
    for seed in range(40):
        episode = record_episode(family, seed, TWINS)
        times = [sample["words"]["time_s"] for sample in episode["samples"]]
        first = next((i for i in range(1, len(times)) if times[i] <= times[i - 1]), None)
        if first is not None:
            return episode, first
    raise AssertionError(f"{family}: no twins in forty worlds")


@pytest.mark.parametrize("family", ["traffic_light", "lead_vehicle", "obstacle", "emergency_stop"])
def test_a_twin_has_the_same_history_and_another_decision(family):
    episode, first_twin = episode_with_twins(family)
    driven = {sample["words"]["time_s"]: sample for sample in episode["samples"][:first_twin]}
    for twin in episode["samples"][first_twin:]:
        sample = driven[twin["words"]["time_s"]]
        assert np.allclose(twin["history"], sample["history"], atol=1e-9) and twin["speed"] == pytest.approx(sample["speed"])
        assert [twin["words"][key] for key in ("decision", "cause")] != [sample["words"][key] for key in ("decision", "cause")]
        shown, other = (np.stack(sample_frames(episode, each)) for each in (sample, twin))
        assert shown.shape == other.shape and np.any(shown != other)
        assert episode["scene"][twin["frame"]] != episode["scene"][sample["frame"]]


def test_a_twin_of_a_signal_shows_another_colour():
    episode, first_twin = episode_with_twins("traffic_light")
    twin = episode["samples"][first_twin]
    sample = next(s for s in episode["samples"] if s["words"]["time_s"] == twin["words"]["time_s"])
    shown, other = (episode["scene"][each["frame"]][list(SCENE_LABELS).index("signal")] for each in (sample, twin))
    assert 0 < other != shown > 0


def test_a_twin_that_can_only_break_a_rule_is_no_example(monkeypatch):
    drive = scenes.expert_drive
    monkeypatch.setattr(scenes, "expert_drive", lambda world: (drive(world)[0], Outcome("collision", "")))
    for seed in range(4):
        times = [sample["words"]["time_s"] for sample in record_episode("traffic_light", seed, TWINS)["samples"]]
        assert times == sorted(set(times))


def test_samples_are_as_far_apart_as_asked_with_four_frames_each():
    episode = record_episode("cruise", 4, EpisodePlan(lead_in_s=(2.0, 2.1), samples=3, sample_every_s=1.0))
    times = [sample["words"]["time_s"] for sample in episode["samples"]]
    assert np.allclose(np.diff(times), 1.0)
    assert [sample["frame"] for sample in episode["samples"]] == [3, 7, 11]


def test_same_seed_same_shard(tmp_path):
    pair = worlds(TRAIN_SEED_BASE + 6, 2)
    write_shard(tmp_path / "shard-a.safetensors", record_episodes(pair, SHORT))
    write_shard(tmp_path / "shard-b.safetensors", record_episodes(pair, SHORT))
    assert (tmp_path / "shard-a.safetensors").read_bytes() == (tmp_path / "shard-b.safetensors").read_bytes()


def test_drive_never_sees_a_training_world():
    seeds = [seed for _, seed in worlds(TRAIN_SEED_BASE, 100_000)]
    assert min(seeds) > 999_999 and max(seeds) < VALIDATION_SEED_BASE


def test_a_truncated_shard_is_one_clear_line(tmp_path, shard):
    write_shard(tmp_path / "shard-0.safetensors", record_episodes(worlds(TRAIN_SEED_BASE, 1), SHORT))
    path = tmp_path / "shard-0.safetensors"
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(InputError, match="shard-0.safetensors") as caught:
        open_shards(tmp_path)
    assert "\n" not in str(caught.value)


def test_an_empty_folder_names_the_command(tmp_path):
    with pytest.raises(InputError, match="specdrive data generate"):
        open_shards(tmp_path)
