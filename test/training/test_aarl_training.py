"""Action-aware RL end to end on a tiny target: both kinds of draft, both anchors, resumed, from the command line."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from specdrive_ros.cli.main import main
from specdrive_ros.draft.checkpoint import load_draft_network
from specdrive_ros.errors import InputError
from specdrive_ros.model_settings import find_model
from specdrive_ros.training import aarl_training
from specdrive_ros.training.aarl_run import AarlRun
from specdrive_ros.training.aarl_training import AarlTraining
from specdrive_ros.training.draft_features import FeatureSettings
from specdrive_ros.training.draft_training import DraftRun, DraftTraining

TAPS, TOKENS = (1, 2, 3), 14
SMALL = AarlTraining(
    steps=4,
    samples=2,
    states=4,
    rollouts=8,
    ahead=7,
    pool=4,
    evaluate_every=2,
    evaluated=4,
    save_every=1,
    learning_rate=3e-3,
    warmup=1,
)


@pytest.fixture(scope="module")
def features(tmp_path_factory):
    return tmp_path_factory.mktemp("features")


@pytest.fixture(scope="module")
def distilled(tiny_target, tiny_scenes, features, tmp_path_factory, quiet_progress):
    """`distilled(kind)`: a draft that has learnt a little."""
    folder = tmp_path_factory.mktemp("distilled")

    def make(kind):
        if not (folder / kind).exists():
            settings = FeatureSettings(TAPS, count=4, max_new_tokens=TOKENS, dtype="float32", batch=2)
            training = DraftTraining(
                kind,
                steps=8,
                batch=2,
                block_size=8,
                anchors=8,
                warmup=1,
                learning_rate=3e-3,
                evaluate_every=1000,
                save_every=1000,
            )
            DraftRun(
                tiny_target, tiny_scenes, features, folder / kind, training, settings, quiet_progress, silent()
            ).run()
        return folder / kind

    return make


def silent():
    return SimpleNamespace(add_scalar=lambda *_: None)


@pytest.fixture
def aarl(tiny_target, tiny_scenes, features, distilled, quiet_progress):
    def make(kind, out, log=None, rewards=None, **changed):
        return AarlRun(
            find_model(tiny_target),
            distilled(kind),
            tiny_scenes,
            features,
            out,
            replace(SMALL, **changed),
            quiet_progress,
            log or silent(),
            rewards=rewards,
        )

    return make


@pytest.mark.parametrize("kind, anchor", [("dflash", "static"), ("eagle3", "self")])
def test_a_run_learns_writes_a_draft_and_logs(aarl, distilled, tmp_path, kind, anchor):
    logged = {}
    log = SimpleNamespace(add_scalar=lambda name, value, step: logged.setdefault(name, []).append((step, value)))
    run = aarl(kind, tmp_path / "out", log, anchor=anchor)
    result = run.run()
    before, after = (
        load_draft_network(folder, run.config.text).state_dict() for folder in (distilled(kind), tmp_path / "out")
    )
    assert any(not torch.equal(before[name], after[name]) for name in before)
    curve = [json.loads(line) for line in (tmp_path / "out" / "run" / "curve.jsonl").read_text().splitlines()]
    assert curve == result["curve"] and [each["step"] for each in curve] == [0, 2, 4]
    assert curve[0]["kl"] == pytest.approx(0.0, abs=1e-6) and curve[-1]["kl_all"] > 0
    assert all(each["accepted_length"] >= 1 for each in curve)
    sizes = {each["anchor_positions"] for each in curve}
    agreeing = {round(each["agreement"] - each["anchor_set"], 6) for each in curve}
    assert len(sizes) == 1 if anchor == "static" else agreeing == {0.0}
    assert {"train/reward", "train/kl", "train/anchor_set", "validation/accepted_length"} <= set(logged)
    assert [step for step, _ in logged["train/reward"]] == [1, 2, 3, 4]
    assert any(each["train"]["reward_spread"] > 0 for each in curve[1:])


def test_a_killed_run_resumes_to_the_same_weights_and_figures(aarl, tmp_path, monkeypatch):
    unbroken = aarl("dflash", tmp_path / "unbroken").run()
    real_step, calls = aarl_training.aarl_step, []

    def killed_at_the_third_step(*arguments):
        calls.append(arguments)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real_step(*arguments)

    monkeypatch.setattr(aarl_training, "aarl_step", killed_at_the_third_step)
    with pytest.raises(KeyboardInterrupt):
        aarl("dflash", tmp_path / "killed").run()
    monkeypatch.undo()
    run = aarl("dflash", tmp_path / "killed")
    resumed = run.run()
    assert [{**each, "train": 0} for each in resumed["curve"]] == [{**each, "train": 0} for each in unbroken["curve"]]
    assert resumed["curve"][-1]["train"]["reward"] == unbroken["curve"][-1]["train"]["reward"]
    one, other = (load_draft_network(tmp_path / name, run.config.text).state_dict() for name in ("unbroken", "killed"))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_later_run_goes_on_from_the_plans_of_an_earlier_one_and_learns_the_same(aarl, tmp_path):
    """The first rollouts of both anchors are the same, so the later run asks for no plan in its first step."""
    first, logged = aarl("dflash", tmp_path / "static"), {}
    first.run()
    log = SimpleNamespace(add_scalar=lambda name, value, step: logged.setdefault(name, []).append(value))
    shared = aarl("dflash", tmp_path / "shared", log, rewards=first.rewards, anchor="self").run()
    alone = aarl("dflash", tmp_path / "alone", anchor="self").run()
    assert logged["train/plans"][0] == 0
    for one, other in zip(shared["curve"], alone["curve"]):
        assert one["accepted_length"] == pytest.approx(other["accepted_length"])
        assert one["kl_all"] == pytest.approx(other["kl_all"], abs=1e-4)


def test_plans_do_not_depend_on_the_batch_and_follow_the_text(aarl, tmp_path):
    """The same requests one by one and together, texts of different lengths; another text is another plan."""
    stage, train, _ = aarl("dflash", tmp_path / "out").prepare()
    source = stage.rewards.source
    answers = [tuple(ids["token_ids"][ids["loss_mask"].bool()].tolist()) for ids in map(train.read, range(3))]
    requests = [(number, text) for number, answer in enumerate(answers) for text in (answer, answer[4:])]
    together = source.trajectories(requests)
    apart = np.concatenate([source.trajectories([request]) for request in requests])
    assert together.shape == (6, 64, 3) and np.abs(together - apart).max() < 1e-3
    assert all(np.abs(together[2 * k] - together[2 * k + 1]).max() > 0.05 for k in range(3))


def test_plans_are_the_planners(aarl, tiny_target, tiny_scenes, tmp_path):
    """The reward's head and the cycle's: the same sample, the same answer, the same plan."""
    from specdrive_ros.cycle import Planner
    from specdrive_ros.observation.observation import EgoHistory, Observation
    from specdrive_ros.shapes import FRAMES_PER_CAMERA
    from specdrive_ros.training.scenes import CAMERA, open_shards, planar_poses

    stage, train, _ = aarl("dflash", tmp_path / "out").prepare()
    planner = Planner.load(tiny_target, runtime="torch", threads=1)
    shard, sample = open_shards(tiny_scenes / "train")[0], 1
    newest = int(shard.sample_frame[sample])
    frames = shard.frames(newest - FRAMES_PER_CAMERA + 1, newest + 1)
    xyz, rotation = planar_poses(shard.sample_history[sample])
    speed = float(stage.rewards.source.samples.v0s[sample])
    stamps = np.arange(FRAMES_PER_CAMERA) * 100_000_000
    plan = planner.plan(
        Observation(int(stamps[-1]), {CAMERA: frames}, {CAMERA: stamps}, EgoHistory(xyz, rotation, speed))
    )
    ids = train.read(sample)
    answer = tuple(ids["token_ids"][ids["loss_mask"].bool()].tolist())
    assert plan.token_ids == answer
    (found,) = stage.rewards.source.trajectories([(sample, answer)])
    assert np.abs(found[:, :2] - plan.xyz[:, :2]).max() < 0.02 and np.abs(found[:, 2] - plan.yaw).max() < 0.02


def test_another_setting_is_another_run(aarl, tmp_path):
    aarl("dflash", tmp_path / "out", steps=1).run()
    with pytest.raises(InputError, match="is a run with another anchor; delete it"):
        aarl("dflash", tmp_path / "out", anchor="self").run()


def test_states_of_other_scenes_are_refused(aarl, tmp_path):
    """The same number of samples, in another order: a plan would be made behind another prompt than the draft's."""
    run = aarl("dflash", tmp_path / "out")
    stage, train, _ = run.prepare()
    source = stage.rewards.source
    with pytest.raises(InputError, match="holds states of other scenes"):
        run._check_samples(train, source.samples, source.chosen[::-1])


@pytest.mark.parametrize("wrong", [{"anchor": "loose"}, {"rollouts": 1}, {"states": 0}])
def test_settings_that_mean_nothing_are_refused(wrong):
    with pytest.raises(InputError, match="train aarl"):
        replace(SMALL, **wrong)


def test_from_the_command_line(tiny_target, tiny_scenes, distilled, features, tmp_path, capsys):
    argv = (
        f"train aarl --draft {distilled('dflash')} --model {tiny_target} --data {tiny_scenes} --features {features} "
        f"--out {tmp_path / 'out'} --steps 1 --batch 2 --rollouts 3 --pool 4 --anchor self"
    ).split()
    assert main([*argv, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["aarl"]["anchor"] == "self" and record["aarl"]["ahead"] == 7  # no longer than DFlash's block
    assert (tmp_path / "out" / "model.safetensors").is_file() and any(
        (tmp_path / "out" / "run" / "tensorboard").iterdir()
    )
    assert main(argv) == 0 and "accepted_length" in capsys.readouterr().out
    assert main([*argv, "--rollouts", "1"]) == 2 and capsys.readouterr().err.count("\n") == 1
    assert main([*argv, "--draft", str(tmp_path)]) == 2 and "config.json" in capsys.readouterr().err
