"""The whole of training, small: it runs, learns, resumes to the same weights, and leaves a loadable checkpoint."""

import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from specdrive_ros.errors import InputError
from specdrive_ros.model_settings import find_model
from specdrive_ros.sim.scenario import FAMILIES
from specdrive_ros.target.checkpoint import load_target
from specdrive_ros.target.tokens import TargetTokenizer
from specdrive_ros.training.frame_features import FrameFeatures, frame_patches
from specdrive_ros.training.mini import MiniTraining
from specdrive_ros.training.samples import SampleSet
from specdrive_ros.training.scenes import (TRAIN_SEED_BASE, VALIDATION_SEED_BASE, EpisodePlan, record_episodes, worlds,
                                            write_shard)
from specdrive_ros.training.target_training import ReasoningStage, ReasoningTraining, new_vision_stage, tensors
from specdrive_ros.training.vision_pretraining import FrameSampler, VisionPretraining

VISION = VisionPretraining(steps=2, batch=4)
LOG = SimpleNamespace(add_scalar=lambda *_: None)


@contextmanager
def quiet_progress(_name, _total):
    yield SimpleNamespace(advance=lambda *_: None)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    short = EpisodePlan(lead_in_s=(1.5, 2.0), samples=2, sample_every_s=0.5)
    for split, base in (("train", TRAIN_SEED_BASE), ("validation", VALIDATION_SEED_BASE)):
        (folder / split).mkdir()
        write_shard(folder / split / "shard-0.safetensors", record_episodes(worlds(base, 4), short))
    return folder


def training(data, run, steps):
    settings = ReasoningTraining(steps=steps, batch=2, evaluate_every=100, save_every=1, warmup=1)
    return MiniTraining(data, run, run / "checkpoint", VISION, settings, quiet_progress, LOG)


def test_killed_training_resumes_to_the_same_weights(data, tmp_path, monkeypatch):
    unbroken = training(data, tmp_path / "unbroken", steps=4)
    record = unbroken.run()
    settings = find_model(tmp_path / "unbroken" / "checkpoint")
    assert settings.action_noise == 0.0 and settings.forward_only and set(settings.scenarios) <= set(FAMILIES) and settings.scenarios
    assert record["samples"] > 0 and 0.0 <= record["validation"]["slot_words"] <= 1.0

    from specdrive_ros.training import target_training
    real_step, calls = target_training.reasoning_step, []

    def killed_at_the_third_step(*arguments):
        calls.append(arguments)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real_step(*arguments)

    monkeypatch.setattr(target_training, "reasoning_step", killed_at_the_third_step)
    with pytest.raises(KeyboardInterrupt):
        training(data, tmp_path / "killed", steps=4).run()
    monkeypatch.undo()
    training(data, tmp_path / "killed", steps=4).run()

    one, other = (load_target(tmp_path / name / "checkpoint").state_dict() for name in ("unbroken", "killed"))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_run_whose_words_got_other_numbers_does_not_go_on(data, tmp_path):
    """Without its tokenizer the kept embeddings are rows of nobody knows which tokens."""
    run = tmp_path / "run"
    training(data, run, steps=1)
    training(data, run, steps=2)
    shutil.rmtree(run / "checkpoint")
    training(data, run, steps=2)

    shutil.rmtree(run / "checkpoint")
    other = tmp_path / "other"
    for split, base in (("train", TRAIN_SEED_BASE + 40), ("validation", VALIDATION_SEED_BASE)):
        (other / split).mkdir(parents=True)
        short = EpisodePlan(lead_in_s=(1.5, 2.0), samples=2, sample_every_s=0.5)
        write_shard(other / split / "shard-0.safetensors", record_episodes(worlds(base, 4), short))
    with pytest.raises(InputError, match="run: is a run with another vocabulary; delete it"):
        training(other, run, steps=2)


def test_training_lowers_its_loss(data, tmp_path):
    losses = []
    log = SimpleNamespace(add_scalar=lambda name, value, _: losses.append(value) if name == "train/text" else None)
    run = training(data, tmp_path / "run", steps=24)
    run.log = log
    run.run()
    assert sum(losses[-3:]) < 0.8 * sum(losses[:3])


def test_two_processes_train_one_model_and_the_first_one_writes(data, tmp_path):
    run = tmp_path / "run"
    command = [
        sys.executable, "-m", "accelerate.commands.launch", "--cpu", "--num_processes", "2", "-m", "specdrive_ros",
        "train", "target", "--data", data, "--run", run, "--vision-steps", "2", "--steps", "2", "--batch", "2",
        "--evaluate-every", "1", "--drive-worlds", "0", "--threads", "1",
    ]  # fmt: skip
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(list(map(str, command)), env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("slot_words") == 1 and done.stderr.count("vision: 2/2") == 1
    assert len((run / "curve.jsonl").read_text().splitlines()) == 2
    load_target(run / "checkpoint")


class Known:
    """Features of one batch."""

    def __init__(self, features: torch.Tensor):
        self.features = features

    def __getitem__(self, _rows) -> torch.Tensor:
        return self.features


def test_everything_a_step_needs_goes_to_the_device_of_the_model(data, tmp_path):
    """On torch's meta device, which like a GPU refuses to mix its tensors with the host's."""
    run = training(data, tmp_path / "run", steps=1)
    frames, labels, numbers = FrameSampler(run.train).draw(np.random.default_rng(0), 4)
    patches, grid = frame_patches(frames, run.target)
    samples = SampleSet(run.train, run.config, TargetTokenizer.load(run.config), np.asarray(grid))
    batch = samples.batch(np.arange(2))
    features = FrameFeatures(run.target, run.train)[batch.frame_rows]
    stages = new_vision_stage(run.target, run.train[0], seed=0), ReasoningStage(run.target, samples, run.reasoning)
    vision, reasoning = (stage.to("meta") for stage in stages)
    loss, _ = vision(patches.to("meta"), grid, torch.from_numpy(labels).to("meta"),
                     torch.from_numpy(numbers).to("meta"))
    loss.backward()
    losses = reasoning(tensors(batch, Known(features), torch.device("meta")))
    sum(losses.values()).backward()
    assert all(value.device.type == "meta" for value in losses.values())
