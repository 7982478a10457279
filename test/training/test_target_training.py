"""The whole of training, small: it runs, learns, resumes to the same weights, and leaves a loadable checkpoint."""

from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch

from specdrive_ros.model_settings import find_model
from specdrive_ros.sim.scenario import FAMILIES
from specdrive_ros.target.checkpoint import load_target
from specdrive_ros.training.mini import MiniTraining
from specdrive_ros.training.scenes import TRAIN_SEED_BASE, VALIDATION_SEED_BASE, EpisodePlan, record_episodes, worlds, write_shard
from specdrive_ros.training.target_training import ReasoningTraining
from specdrive_ros.training.vision_pretraining import VisionPretraining

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
    assert settings.action_noise == 0.0 and set(settings.scenarios) <= set(FAMILIES) and settings.scenarios
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


def test_training_lowers_its_loss(data, tmp_path):
    losses = []
    log = SimpleNamespace(add_scalar=lambda name, value, _: losses.append(value) if name == "train/text" else None)
    run = training(data, tmp_path / "run", steps=24)
    run.log = log
    run.run()
    assert sum(losses[-3:]) < 0.8 * sum(losses[:3])
