"""Both kinds of draft, small: they learn, resume to the same weights, load again, and propose what they learnt."""

from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from specdrive_ros.draft.checkpoint import load_draft_network
from specdrive_ros.draft.config import DFlashConfig, Eagle3Config
from specdrive_ros.draft.dflash import DFlashDraft
from specdrive_ros.draft.eagle3 import Eagle3Draft
from specdrive_ros.draft.eagle3_network import Eagle3
from specdrive_ros.errors import InputError
from specdrive_ros.runtime.torch_drafts import TorchDFlash, TorchEagle3
from specdrive_ros.target.config import TargetConfig
from specdrive_ros.training import draft_training
from specdrive_ros.training.draft_features import DraftFeatures, FeatureSettings, chosen_samples
from specdrive_ros.training.draft_training import DraftRun, DraftTraining, drawn
from specdrive_ros.training.frozen_target import FrozenTarget
from specdrive_ros.training.warm_start import copy_word_rows

TAPS = (1, 2, 3)
CONFIG = Eagle3Config(
    hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1, head_dim=8,
    vocab_size=12, draft_vocab_size=3, target_layers=4, tap_layers=TAPS, rope_theta=1e4,
)  # fmt: skip


@contextmanager
def quiet_progress(_name, _total):
    yield SimpleNamespace(advance=lambda *_: None)


def draft_run(target, data, out, kind, features, *, steps, rope="flat", start_from=None, **training):
    settings = FeatureSettings(TAPS, count=4, max_new_tokens=14, dtype="float32", batch=2)
    training = {"batch": 2, "save_every": 1, "warmup": 1, "evaluate_every": 1000, "learning_rate": 3e-3, **training}
    return DraftRun(target, data, features, out,
                    DraftTraining(kind, rope, steps=steps, block_size=8, anchors=12, **training),
                    settings, quiet_progress, SimpleNamespace(add_scalar=lambda *_: None),
                    start_from=start_from)  # fmt: skip


@pytest.fixture(scope="module")
def features(tmp_path_factory):
    return tmp_path_factory.mktemp("features")


@dataclass(frozen=True)
class Context:
    """What the decoding loop hands to a draft."""

    prompt_ids: np.ndarray
    written: tuple
    newest_token: int
    taps: np.ndarray
    positions: np.ndarray
    rope_delta: int


def accepted_length(draft, sample, nodes) -> float:
    """Tokens a pass, the bonus included, when the draft proposes over text the target wrote greedily. The two closing
    tokens are left out: this target never ends by itself, they are forced, and EAGLE-3 learns the target's choice."""
    ids, taps = sample["token_ids"].numpy()[:-2], sample["hidden_states"][:, :-1].float().flatten(1).numpy()
    positions = sample["position_ids"].long().numpy()
    prompt = int(sample["loss_mask"].bool().int().argmax())
    known, fed, passes, delta = prompt, 0, 0, int(positions[0, len(ids) - 1]) - (len(ids) - 1)
    draft.begin()
    while known < len(ids) - 1:
        context = Context(ids[:prompt], tuple(ids[prompt:known]), int(ids[known]), taps[fed:known],
                          positions[:, fed:known], delta)
        fed = known
        tokens, parents, log_probs = draft.propose(context, nodes)
        assert (np.diff(log_probs) <= 1e-6).all() and (parents == np.arange(len(tokens)) - 1).all()
        following = ids[known + 1 :]
        agree = int(np.cumprod(tokens[: len(following)] == following[: len(tokens)]).sum())
        known, passes = known + agree + 1, passes + 1
    return (known - prompt) / passes


@pytest.mark.parametrize("kind, rope", [("eagle3", "mirror"), ("dflash", "flat")])
def test_an_overfitted_draft_proposes_what_it_learnt(target, data, features, tmp_path, kind, rope):
    run = draft_run(target, data, tmp_path / kind, kind, features, steps=180 if kind == "eagle3" else 100, rope=rope,
                    batch=4, save_every=1000, learning_rate=6e-3 if kind == "eagle3" else 3e-3)  # fmt: skip
    run.run()
    network = load_draft_network(tmp_path / kind, run.config.text)
    assert network.config.rope == rope and network.config.tap_layers == TAPS
    embedding = run.network.language_model.embed_tokens.weight.numpy()
    if kind == "eagle3":
        assert isinstance(network.config, Eagle3Config)
        draft = Eagle3Draft(TorchEagle3(network), lambda ids: embedding[ids], depth=6, top_k=1)
    else:
        assert isinstance(network.config, DFlashConfig)
        draft = DFlashDraft(TorchDFlash(network, run.network.vlm.lm_head.weight.numpy()), lambda ids: embedding[ids])
    cached = DraftFeatures(features / "train")
    lengths = [accepted_length(draft, cached.read(number), 7) for number in range(len(cached))]
    assert np.mean(lengths) >= 5, lengths  # 11 tokens behind the first: 8 and 3 make 5.5


@pytest.mark.parametrize("kind", ["eagle3", "dflash"])
def test_a_run_starts_from_the_weights_of_another_draft(target, data, features, tmp_path, kind):
    draft_run(target, data, tmp_path / "first", kind, features, steps=2).run()
    draft_run(target, data, tmp_path / "fresh", kind, features, steps=1, learning_rate=1e-9, seed=1).run()
    draft_run(target, data, tmp_path / "next", kind, features, steps=1, learning_rate=1e-9, seed=1,
              start_from=tmp_path / "first").run()
    text = TargetConfig.load(target).text
    first, fresh, found = (load_draft_network(tmp_path / name, text).state_dict() for name in ("first", "fresh", "next"))
    for name, weights in first.items():
        torch.testing.assert_close(found[name], weights, rtol=1e-5, atol=1e-6)
    assert not torch.allclose(first["fc.weight"], fresh["fc.weight"], atol=1e-3)


def test_rows_of_the_output_head_follow_their_words():
    def head(words):
        draft = Eagle3(replace(CONFIG, draft_vocab_size=len(words)))
        draft.set_vocabulary(np.array(words))
        return draft

    source, draft = head([3, 5, 9]), head([2, 5, 7, 9])
    before = draft.lm_head.weight.detach().clone()
    with torch.no_grad():
        copy_word_rows(draft, source)
    expected = torch.stack([before[0], source.lm_head.weight[1], before[2], source.lm_head.weight[2]])
    torch.testing.assert_close(draft.lm_head.weight, expected)


@pytest.mark.parametrize("change, message", [
    ({"kind": "dflash"}, "is Eagle3, must be DFlash"),
    ({"rope": "mirror"}, "rope is flat there, must be mirror"),
])
def test_a_draft_that_cannot_be_started_from(target, data, features, tmp_path, change, message):
    draft_run(target, data, tmp_path / "first", "eagle3", features, steps=1).run()
    kind, rope = change.get("kind", "eagle3"), change.get("rope", "flat")
    run = draft_run(target, data, tmp_path / "next", kind, features, steps=1, rope=rope, start_from=tmp_path / "first")
    with pytest.raises(InputError, match=f"cannot start from .*first: {message}"):
        run.run()


@pytest.mark.parametrize("kind", ["eagle3", "dflash"])
def test_a_killed_run_resumes_to_the_same_weights(target, data, features, tmp_path, monkeypatch, kind):
    draft_run(target, data, tmp_path / "unbroken", kind, features, steps=4).run()
    real_step, calls = draft_training.draft_step, []

    def killed_at_the_third_step(*arguments):
        calls.append(arguments)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real_step(*arguments)

    monkeypatch.setattr(draft_training, "draft_step", killed_at_the_third_step)
    with pytest.raises(KeyboardInterrupt):
        draft_run(target, data, tmp_path / "killed", kind, features, steps=4).run()
    monkeypatch.undo()
    run = draft_run(target, data, tmp_path / "killed", kind, features, steps=4)
    run.run()
    one, other = (load_draft_network(tmp_path / name, run.config.text).state_dict() for name in ("unbroken", "killed"))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_cached_states_are_those_of_the_target_on_its_own_answer(target, data, features, tmp_path):
    """The greedy answer, checked against the very states that were written."""
    run = draft_run(target, data, tmp_path / "draft", "eagle3", features, steps=1)
    cached = run._features("train")
    sample = cached.read(1)
    final = run.network.language_model.norm(sample["hidden_states"][:, -1].float())
    said = run.rules.allowed(run.network.logits(final).detach().numpy()).argmax(-1)
    written = sample["loss_mask"].bool().numpy()
    ids = sample["token_ids"].numpy()
    first = int(written.argmax())
    assert (said[first - 1 : -3] == ids[first:-2]).all()  # the last two may be forced
    assert list(ids[-2:]) == [run.tokenizer.cot_end, run.tokenizer.traj_future_start]
    assert len({tuple(cached.read(n)["token_ids"][first:].tolist()) for n in range(4)}) > 1


def test_states_of_another_kind_are_refused(target, data, features, tmp_path):
    run = draft_run(target, data, tmp_path / "draft", "eagle3", features, steps=1)
    run._features("train")
    run.settings = replace(run.settings, taps=(1, 2, 4))
    with pytest.raises(InputError, match="holds states made with another taps; delete it"):
        run._features("train")


def test_samples_are_taken_from_all_shards_alike(data):
    """With their own histories, words and frames; the frames of a shard stay as they are numbered."""
    shards = 3 * draft_training.open_shards(data / "train")
    every = sum(len(shard.sample_frame) for shard in shards)
    for count in (1, 7, every - 1, every, 10**6):
        chosen = draft_training.spread(shards, count)
        kept = [len(shard.sample_frame) for shard in chosen]
        assert sum(kept) == min(count, every) and len(chosen) == len(shards)
        assert count < len(shards) or max(kept) - min(kept) <= 1
        for shard, part in zip(shards, chosen):
            places = [shard.sample_frame.tolist().index(frame) for frame in part.sample_frame]
            assert part.words == [shard.words[place] for place in places]
            np.testing.assert_array_equal(part.sample_history, shard.sample_history[places])
            np.testing.assert_array_equal(part.frames(0, 2), shard.frames(0, 2))


def test_a_run_under_way_goes_on_as_it_began(target, data, features, tmp_path):
    draft_run(target, data, tmp_path / "draft", "dflash", features, steps=1).run()
    draft_run(target, data, tmp_path / "draft", "dflash", features, steps=2).run()  # more steps are the same run
    with pytest.raises(InputError, match="is a run with another learning_rate, rope; delete it"):
        draft_run(target, data, tmp_path / "draft", "dflash", features, steps=2, rope="mirror", learning_rate=1.0).run()


@pytest.mark.parametrize("wrong", [{"kind": "medusa"}, {"kind": "eagle3", "rope": "spiral"}])
def test_unknown_kinds_are_refused(target, data, features, tmp_path, wrong):
    with pytest.raises(InputError, match="must be one of"):
        draft_run(target, data, tmp_path, wrong.pop("kind"), features, steps=1, **wrong).run()


def test_states_are_those_of_a_single_pass_over_prompt_and_answer(target, data, tmp_path):
    """What is cached comes of two passes, over the prompt and over the answer behind it."""
    run = draft_run(target, data, tmp_path / "draft", "eagle3", tmp_path / "features", steps=1)
    cached = run._features("train")
    shards = draft_training.spread(draft_training.open_shards(data / "train"), 4)
    _, grid = draft_training.frame_patches(shards[0].frames(0, 4), run.network)
    samples = draft_training.SampleSet(shards, run.config, run.tokenizer, np.asarray(grid))
    frames = draft_training.FrameFeatures(run.network, shards)
    writer = draft_training.FeatureWriter(run.network, samples, frames, run.rules, run.settings)
    sample, index = cached.read(2), chosen_samples(len(samples), 4)[[2]]
    ids, positions = sample["token_ids"][None], sample["position_ids"].long()[:, None]
    levels = frames[samples.frame_rows[index]].float().permute(2, 0, 1, 3, 4).flatten(1, 3)
    image_mask = torch.zeros(ids.shape, dtype=torch.bool)
    image_mask[:, torch.from_numpy(np.asarray(writer.prompt.image_rows))] = True
    with torch.no_grad():
        embeddings = run.network.embed_prompt(ids, image_mask, levels[0])
        output = run.network.text_forward(embeddings, positions, deepstack=list(levels[1:]), image_mask=image_mask)
    entering = [embeddings, *output.layers]
    whole = torch.stack([entering[tap][0] for tap in (*TAPS, len(output.layers))], 1)
    assert torch.allclose(sample["hidden_states"], whole, atol=2e-3 * float(whole.abs().max()))


def test_where_all_states_are_known_no_scene_is_read(target, data, features, tmp_path, monkeypatch):
    run = draft_run(target, data, tmp_path / "draft", "eagle3", features, steps=1)
    first = run._features("train")
    monkeypatch.setattr(draft_training, "SampleSet", lambda *_: pytest.fail("scenes were read again"))
    assert run._features("train").paths == first.paths
    monkeypatch.undo()
    kept = first.paths[1].stat().st_mtime_ns
    first.paths[2].unlink()
    assert run._features("train").paths[2].exists() and first.paths[1].stat().st_mtime_ns == kept


def test_every_sample_comes_once_before_one_comes_again():
    training = DraftTraining("dflash", batch=3)
    batches = np.concatenate([drawn(10, training, number) for number in range(10)])
    epochs = batches.reshape(3, 10)
    assert all(sorted(epoch) == list(range(10)) for epoch in epochs) and (epochs[0] != epochs[1]).any()
    other = np.concatenate([drawn(10, replace(training, seed=1), number) for number in range(4)])
    assert (other[:10] != epochs[0]).any()


def test_a_draft_learns_to_run_ahead_as_far_as_it_is_asked_to(target, data, features, tmp_path):
    for ahead, steps in ((None, 15), (7, 7)):
        run = draft_run(target, data, tmp_path / f"draft{ahead}", "eagle3", features, steps=1)
        run.training = DraftTraining("eagle3", block_size=16, ahead=ahead)
        stage = run._stage(FrozenTarget.of(run.network, run.rules.forbidden), run._features("train"))
        assert stage.steps == steps


@pytest.mark.parametrize("kind", ["eagle3", "dflash"])
def test_the_accepted_length_of_the_validation_is_that_of_the_driving_path(target, data, features, tmp_path, kind):
    """Over the very answers of the training: tokens a pass counted here, and by a draft that proposes."""
    run = draft_run(target, data, tmp_path / kind, kind, features, steps=60, batch=4, save_every=1000, learning_rate=4e-3)
    run.run()
    cached, network = DraftFeatures(features / "train"), load_draft_network(tmp_path / kind, run.config.text)
    stage = run._stage(FrozenTarget.of(run.network, run.rules.forbidden), cached)
    stage.draft = network
    found = draft_training.evaluate_draft(stage, cached, ahead=7, count=4)["accepted_length"]
    embedding = run.network.language_model.embed_tokens.weight.numpy()
    if kind == "eagle3":
        draft = Eagle3Draft(TorchEagle3(network), lambda ids: embedding[ids], depth=6, top_k=1)
    else:
        words, head = np.flatnonzero(~run.rules.forbidden), run.network.vlm.lm_head.weight.numpy()
        draft = DFlashDraft(TorchDFlash(network, head, words), lambda ids: embedding[ids])
    passes = [passes_taken(draft, cached.read(number), 7) for number in range(len(cached))]
    tokens = sum(int(cached.read(number)["loss_mask"].sum()) for number in range(len(cached)))
    assert found == pytest.approx(tokens / sum(passes), abs=1e-6) and found > 1.2


def passes_taken(draft, sample, nodes) -> int:
    """Passes of the target for a whole answer, the closing tokens like all others, one that only caches the last too."""
    ids, taps = sample["token_ids"].numpy(), sample["hidden_states"][:, :-1].float().flatten(1).numpy()
    positions = sample["position_ids"].long().numpy()
    prompt = int(sample["loss_mask"].bool().int().argmax())
    known, fed, passes, delta = prompt, 0, 0, int(positions[0, len(ids) - 1]) - (len(ids) - 1)
    draft.begin()
    while known < len(ids):
        passes += 1
        if known == len(ids) - 1:
            break
        context = Context(ids[:prompt], tuple(ids[prompt:known]), int(ids[known]), taps[fed:known], positions[:, fed:known], delta)
        fed, following = known, ids[known + 1 :]
        tokens, *_ = draft.propose(context, nodes)
        agree = int(np.cumprod(tokens[: len(following)] == following[: len(tokens)]).sum())
        if agree == len(following):
            break
        known += agree + 1
    return passes
