"""Cached features are what the encoder makes of just that frame, and each frame is encoded once."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from specdrive_ros.target.config import mini_config
from specdrive_ros.training import frame_features
from specdrive_ros.training.frame_features import FrameFeatures, frame_levels, frame_patches
from specdrive_ros.training.mini import new_target
from specdrive_ros.training.scenes import (TRAIN_SEED_BASE, EpisodePlan, open_shards, record_episodes, worlds,
                                            write_shard)


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scenes")
    plan = EpisodePlan(lead_in_s=(1.5, 1.6), samples=1)
    for number in range(2):
        write_shard(folder / f"shard-{number}.safetensors", record_episodes(worlds(TRAIN_SEED_BASE + number, 1), plan))
    return open_shards(folder)


def test_a_row_is_its_own_frame_encoded_once(shards, monkeypatch):
    target = new_target(mini_config(vocab_size=4300, traj_token_start_idx=200), seed=0).eval()
    features = FrameFeatures(target, shards)
    of_second_shard = len(shards[0].scene) + 1
    rows = np.array([[0, of_second_shard], [of_second_shard, 2]])
    found = features[rows]
    with torch.no_grad():
        alone = torch.stack(frame_levels(target, *frame_patches(shards[1].frames(1, 2), target)), dim=1)[0]
    assert found.shape[:2] == rows.shape
    assert torch.equal(found[0, 1], found[1, 0])
    assert torch.allclose(found[0, 1].float(), alone, atol=2e-3)
    assert not torch.allclose(found[0, 0].float(), alone, atol=2e-3)

    passing = FrameFeatures(target, shards)
    assert torch.allclose(passing.once(rows).float(), found.float(), atol=2e-3) and passing.features is None

    monkeypatch.setattr(frame_features, "frame_levels", lambda *_: pytest.fail("a known frame was encoded again"))
    assert torch.equal(features[rows], found)


def test_another_run_on_the_same_vision_goes_on_with_what_is_kept(shards, tmp_path, monkeypatch):
    target = new_target(mini_config(vocab_size=4300, traj_token_start_idx=200), seed=0).eval()
    rows = np.array([[0, 2]])
    first = FrameFeatures(target, shards, tmp_path / "kept")
    found = first[rows].clone()
    assert torch.equal(found, FrameFeatures(target, shards)[rows])
    with monkeypatch.context() as patched:
        patched.setattr(frame_features, "frame_levels", lambda *_: pytest.fail("a kept frame was encoded again"))
        assert torch.equal(FrameFeatures(target, shards, tmp_path / "kept")[rows], found)

    with torch.no_grad():
        target.vlm.model.visual.merger.linear_fc2.bias.add_(1.0)
    other = FrameFeatures(target, shards, tmp_path / "kept")
    assert not other.known.any() and len(list((tmp_path / "kept").glob("*.npy"))) == 2
    assert not torch.equal(other[rows], found)


def test_a_disk_without_room_keeps_them_in_memory(shards, tmp_path, monkeypatch):
    target = new_target(mini_config(vocab_size=4300, traj_token_start_idx=200), seed=0).eval()
    monkeypatch.setattr(frame_features.shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
    features = FrameFeatures(target, shards, tmp_path / "kept")
    assert torch.equal(features[np.array([1])], FrameFeatures(target, shards)[np.array([1])])
    assert not list((tmp_path / "kept").iterdir())


@pytest.mark.parametrize("part, left", [("features", 40), ("features", 3000), ("known", 0), ("known", 130)])
def test_half_a_file_left_by_a_kill_is_made_again(shards, tmp_path, part, left):
    target = new_target(mini_config(vocab_size=4300, traj_token_start_idx=200), seed=0).eval()
    rows = np.array([[0, 2]])
    found = FrameFeatures(target, shards, tmp_path / "kept")[rows].clone()
    path, = (tmp_path / "kept").glob(f"*-{part}.npy")
    path.write_bytes(path.read_bytes()[:left])
    again = FrameFeatures(target, shards, tmp_path / "kept")
    assert not again.known.any() and torch.equal(again[rows], found)
