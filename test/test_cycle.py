"""The whole cycle on the reference checkpoint: pixels and history in, its words and waypoints out."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from specdrive_ros.cycle import Planner, make_decoder
from specdrive_ros.draft.company import PassCosts
from specdrive_ros.draft.phrasebook import FILE
from specdrive_ros.draft.registry import NETWORKS, draft_path
from specdrive_ros.draft.target_identity import fingerprint_of
from specdrive_ros.errors import InputError
from specdrive_ros.model_settings import ModelSettings, find_model
from specdrive_ros.observation.observation import EgoHistory, Observation
from specdrive_ros.runtime.registry import load_networks
from specdrive_ros.safety.plan_checks import PlanLimits
from specdrive_ros.target.tokens import TargetTokenizer
from specdrive_ros.target.unicycle import normalize
from specdrive_ros.training.phrasebook import learn_phrasebook

GOLDEN = Path(__file__).parent / "golden" / "alpamayo_A"
STAGES = ["vision", "prefill", "draft", "verify", "action", "check"]


@pytest.fixture(scope="module")
def inputs():
    with np.load(GOLDEN / "inputs.npz") as archive:
        return {name: archive[name] for name in archive.files}


@pytest.fixture(scope="module")
def expected():
    with np.load(GOLDEN / "expected_action.npz") as archive:
        return {name: archive[name] for name in archive.files}


@pytest.fixture(scope="module", params=["torch", "onnxruntime"])
def planner(request, exported):
    """The reference's cameras, token limit and noise."""
    settings = ModelSettings(exported, cameras=("cross_left", "front_wide"), max_new_tokens=24)
    networks = load_networks(exported, request.param, threads=1)
    planner = Planner(settings, networks, TargetTokenizer.load(networks.config))
    with np.load(GOLDEN / "inputs.npz") as archive:
        planner.noise = archive["noise"][0]
    return planner


@pytest.fixture
def observation(inputs, expected, planner) -> Observation:
    frames = inputs["images"].transpose(0, 1, 3, 4, 2)
    history = EgoHistory(
        inputs["ego_history_xyz"][0, 0].astype(float),
        inputs["ego_history_rot"][0, 0].astype(float),
        float(expected["v0"][0]),
    )
    stamps = np.arange(4) * 10**8
    return Observation(
        int(stamps[-1]),
        {camera: np.ascontiguousarray(each) for camera, each in zip(planner.cameras, frames, strict=True)},
        dict.fromkeys(planner.cameras, stamps),
        history,
    )


def test_words_and_waypoints_are_the_reference_s(planner, observation, expected):
    plan = planner.plan(observation)
    assert plan.token_ids == tuple(expected["sequences_raw"][0, 205:220])
    with np.load(GOLDEN / "expected_greedy.npz") as greedy:
        assert str(greedy["cot_text"]).startswith(plan.reasoning) and plan.reasoning
    assert plan.v0_mps == pytest.approx(expected["v0"][0], abs=1e-3)
    np.testing.assert_allclose(plan.xyz, expected["pred_xyz"][0, 0, 0], atol=1e-3)
    np.testing.assert_allclose(plan.acceleration, expected["accel"][0], atol=1e-3)
    np.testing.assert_allclose(plan.curvature, expected["curvature"][0], atol=1e-4)
    assert plan.t0_ns == observation.t0_ns and not plan.truncated and plan.target_passes == 15


def test_stages_are_timed(planner, observation):
    assert list(planner.plan(observation).stage_ms) == STAGES


def test_same_observation_same_plan(planner, observation):
    first, second = planner.plan(observation), planner.plan(observation)
    assert first.token_ids == second.token_ids
    np.testing.assert_array_equal(first.xyz, second.xyz)


def test_earlier_cycles_leave_no_trace(planner, observation):
    """A cycle on other pictures and another history in between changes nothing."""
    before = planner.plan(observation)
    other = replace(
        observation,
        frames={camera: 255 - frames for camera, frames in observation.frames.items()},
        history=replace(observation.history, xyz=observation.history.xyz * 0.5),
    )
    assert not np.array_equal(planner.plan(other).xyz, before.xyz)
    np.testing.assert_allclose(planner.plan(observation).xyz, before.xyz, atol=1e-4)


def test_a_plan_depends_on_every_frame(planner, observation):
    before = planner.plan(observation).xyz
    for camera in planner.cameras:
        for index in range(4):
            frames = {name: each.copy() for name, each in observation.frames.items()}
            frames[camera][index] = 255 - frames[camera][index]
            assert not np.array_equal(planner.plan(replace(observation, frames=frames)).xyz, before)


def test_limit_is_marked(planner, observation, monkeypatch):
    monkeypatch.setattr(planner.decoder, "rules", replace(planner.decoder.rules, max_new_tokens=5))
    plan = planner.plan(observation)
    assert plan.truncated and len(plan.token_ids) == 5 and np.isfinite(plan.xyz).all()


def test_missing_camera(planner, observation):
    with pytest.raises(InputError, match="camera 'front_wide'"):
        planner.plan(replace(observation, frames={"cross_left": observation.frames["cross_left"]}))


def test_failed_checks_are_in_the_plan(planner, observation):
    standing = replace(observation, history=replace(observation.history, speed_mps=0.0))
    assert [text.split(":")[0] for text in planner.plan(standing).violations].count("START_SPEED") == 1


def test_load_by_folder(exported):
    planner = Planner.load(exported, threads=1, max_new_tokens=12, seed=3)
    assert planner.cameras == ("rgb_front",) and planner.decoder.rules.max_new_tokens == 12
    same = Planner.load(exported, threads=1, seed=3).noise
    np.testing.assert_array_equal(planner.noise, same)
    assert not np.array_equal(Planner.load(exported, threads=1, seed=4).noise, same)


@pytest.mark.parametrize("runtime", ["torch", "onnxruntime"])
def test_a_folder_without_settings_has_the_steps_of_its_graphs(tmp_path, runtime):
    """A copy of mini, whose four steps are in the settings that its name finds and in its graphs."""
    folder = shutil.copytree(find_model("mini").checkpoint, tmp_path / "copy")
    planner = Planner.load(folder, runtime=runtime, threads=1)
    assert planner.networks.flow_steps == 4 and planner.settings.action_steps is None
    assert Planner.load("mini", runtime=runtime, threads=1).networks.flow_steps == 4


def test_settings_that_do_not_fit_the_graphs(exported, tmp_path):
    folder = shutil.copytree(exported, tmp_path / "model")
    (folder / "model.yaml").write_text("action_steps: 5\n")
    with pytest.raises(InputError, match="the action head has 10 steps, the model's settings say 5"):
        Planner.load(folder, threads=1)


@pytest.fixture(scope="module")
def drafted(planner, tmp_path_factory):
    """`drafted(draft)`: the planner's model decoded with a draft; the phrasebook knows other sentences."""
    folder = shutil.copytree(planner.settings.checkpoint, tmp_path_factory.mktemp("drafted") / "model")
    learn_phrasebook(["Keep lane since the road is clear."], planner.tokenizer, folder / "drafts" / FILE)
    names = NETWORKS if planner.networks.runtime == "torch" else ("eagle3-mirror", "dflash-flat")
    for name in names:
        chance_draft(draft_path(folder, name), name, planner)
    settings = replace(planner.settings, checkpoint=folder)

    def make(draft: str) -> Planner:
        made = Planner(settings, planner.networks, planner.tokenizer, draft=draft)
        made.noise = planner.noise
        return made

    return make


def chance_draft(folder, name: str, planner, spoilt=None) -> None:
    """A network with chance weights, which proposes what nobody would say; on ONNX Runtime with its graphs."""
    import torch

    from specdrive_ros.draft.checkpoint import new_draft, save_draft
    from specdrive_ros.runtime.draft_export import export_draft
    from specdrive_ros.training.draft_training import DraftTraining, draft_config

    kind, _, rope = name.partition("-")
    config, words = planner.config, np.flatnonzero(~planner.rules.forbidden)
    mask_token, target = planner.tokenizer.base_ids["<|im_end|>"], fingerprint_of(config.folder)
    taps = planner.networks.tap_layers
    torch.manual_seed(0)
    draft = new_draft(draft_config(config, DraftTraining(kind, rope, block_size=8), taps, len(words), mask_token,
                                   target))
    if kind == "eagle3":
        draft.set_vocabulary(words)
    if spoilt is not None:
        with torch.no_grad():
            draft.fc.weight.fill_(spoilt)
    save_draft(draft, folder)
    if planner.networks.runtime == "onnxruntime":
        export_draft(folder, folder, config.text)


COMPANIES = ["eagle3-mirror", "dflash-flat", "phrasebook+dflash-flat", "carryover+phrasebook+eagle3-mirror+dflash-flat"]


@pytest.mark.parametrize("draft", ["carryover", "phrasebook", "carryover+phrasebook", *COMPANIES])
def test_drafts_change_neither_words_nor_waypoints(planner, drafted, observation, draft):
    """Over cycles whose thought changes and comes back; the second and the last carry the right text along."""
    darker = {camera: frames // 3 for camera, frames in observation.frames.items()}
    other = replace(observation, frames=darker, history=replace(observation.history, xyz=observation.history.xyz * 0.7))
    fast, passes = drafted(draft), []
    for each in (observation, observation, other, observation, observation):
        expected, plan = planner.plan(each), fast.plan(each)
        assert plan.token_ids == expected.token_ids and plan.truncated == expected.truncated
        np.testing.assert_allclose(plan.xyz, expected.xyz, atol=1e-4)
        own = len(plan.token_ids) - sum(plan.drafted.values())
        assert own - plan.truncated <= plan.target_passes <= own, "a pass writes one token, or two that close"
        passes.append(plan.target_passes)
    if "carryover" in draft:
        assert passes[1] == passes[4] == 0, "the whole reasoning rode along in the prefill"


@pytest.mark.parametrize("costs", [PassCosts((1, 2), (1.0, 9.0)), PassCosts((1, 128), (1.0, 1.0))],
                         ids=["dear", "free"])
@pytest.mark.parametrize("draft", ["eagle3-flat", "dflash-mirror", "phrasebook+eagle3-flat"])
def test_no_width_changes_the_answer(planner, drafted, observation, draft, costs):
    """Chains and the published 60-node tree, on the reference runtime."""
    if planner.networks.runtime != "torch":
        pytest.skip("the tree's shape does not hang on the runtime")
    fast, expected = drafted(draft), planner.plan(observation)
    fast.decoder = make_decoder(fast.networks, fast.rules, draft, fast.settings.checkpoint, fast.tokenizer, costs)
    assert fast.decoder.nodes == costs.most_nodes
    plan = fast.plan(observation)
    assert plan.token_ids == expected.token_ids
    np.testing.assert_allclose(plan.xyz, expected.xyz, atol=1e-4)


@pytest.mark.parametrize("spoilt", [float("nan"), 1e30])
@pytest.mark.parametrize("name", ["eagle3-flat", "dflash-flat"])
def test_a_spoilt_network_only_costs_time(planner, observation, tmp_path, name, spoilt):
    if planner.networks.runtime != "torch":
        pytest.skip("weights spoil every runtime alike")
    chance_draft(draft_path(tmp_path, name), name, planner, spoilt)
    expected = planner.plan(observation)
    fast = Planner(planner.settings, planner.networks, planner.tokenizer)
    fast.noise = planner.noise
    fast.decoder = make_decoder(fast.networks, fast.rules, name, tmp_path, fast.tokenizer)
    for _ in range(2):
        plan = fast.plan(observation)
        assert plan.token_ids == expected.token_ids
        np.testing.assert_allclose(plan.xyz, expected.xyz, atol=1e-4)


def test_a_draft_that_is_none_or_has_no_file(exported):
    with pytest.raises(InputError, match="no such draft"):
        Planner.load(exported, draft="fast")
    with pytest.raises(InputError, match="no phrasebook there; learn one"):
        Planner.load(exported, threads=1, draft="phrasebook")


class AtOnce:
    """A pace that closes the reasoning before its first word."""

    def nodes(self, asked: int) -> int:
        return 1

    def must_close(self) -> bool:
        return True

    def note_pass(self, rows: int, milliseconds: float) -> None:
        assert rows == 2


def test_a_cycle_in_a_hurry_still_plans_and_says_so(planner, observation):
    free = planner.plan(observation)
    planner.pace = AtOnce()
    try:
        hurried = planner.plan(observation)
    finally:
        del planner.pace
    assert hurried.truncated and hurried.reasoning == "" and len(hurried.token_ids) == 2
    assert hurried.xyz.shape == (64, 3) and np.isfinite(hurried.xyz).all()
    assert planner.plan(observation).token_ids == free.token_ids, "the next one has its time again"


class InTimeButForTheAction(AtOnce):
    """A pace that has time for the reasoning only."""

    def must_close(self) -> bool:
        return False

    def must_shorten_action(self) -> bool:
        return True

    def nodes(self, asked: int) -> int:
        return asked

    def note_pass(self, rows: int, milliseconds: float) -> None:
        return None


def test_fewer_action_steps_only_where_allowed_and_only_when_late(planner, observation):
    free = planner.plan(observation)
    planner.pace = InTimeButForTheAction()
    try:
        not_allowed = planner.plan(observation)
        planner.allow_fewer_action_steps(3)
        fewer = planner.plan(observation)
        del planner.pace
        in_time = planner.plan(observation)
    finally:
        planner.__dict__.pop("pace", None)
        planner.allow_fewer_action_steps(0)
    for same in (not_allowed, in_time):
        np.testing.assert_array_equal(same.xyz, free.xyz)
        assert same.action_steps == 0
    assert fewer.action_steps == 3 and fewer.token_ids == free.token_ids
    assert np.abs(fewer.xyz - free.xyz).max() > 1e-3 and np.isfinite(fewer.xyz).all()


@pytest.mark.parametrize("steps", (-1, 10, 11))
def test_action_steps_that_are_not_fewer_are_refused(planner, steps):
    with pytest.raises(InputError, match="must be from 0 to 9"):
        planner.allow_fewer_action_steps(steps)


def test_forward_only_plans_wait_where_they_stop(planner, observation, monkeypatch):
    braking = normalize(planner.config.action_space, np.tile([-3.0, 0.0], (64, 1)))
    monkeypatch.setattr(planner.networks, "act", lambda *arguments, **options: braking)
    rolls_back = planner.plan(observation)
    monkeypatch.setattr(planner, "settings", replace(planner.settings, forward_only=True))
    waits = planner.plan(observation)
    assert rolls_back.speed_mps[-1] < -1 and [text.split(":")[0] for text in rolls_back.violations] == ["REVERSE"]
    assert (waits.speed_mps >= -1e-9).all() and waits.speed_mps[-1] == pytest.approx(0) and waits.violations == ()
    moving = waits.speed_mps > 1e-9
    np.testing.assert_allclose(waits.xyz[moving], rolls_back.xyz[moving], atol=1e-6)
    assert waits.token_ids == rolls_back.token_ids


def test_warm_up_measures_and_leaves_nothing_behind(planner, observation):
    free = planner.plan(observation)
    stages = planner.warm_up(2)
    assert [list(each) for each in stages] == [STAGES, STAGES] and all(each["vision"] > 0 for each in stages)
    again = planner.plan(observation)
    assert again.token_ids == free.token_ids
    np.testing.assert_array_equal(again.xyz, free.xyz)


def test_limits_of_the_checks_are_the_planner_s(planner, observation):
    assert planner.plan(observation).violations == ()
    planner.limits = PlanLimits(curvature_per_m=1e-6, start_m=1e-6)
    try:
        assert [text.split(":")[0] for text in planner.plan(observation).violations][:2] == ["START", "CURVATURE"]
    finally:
        del planner.limits
