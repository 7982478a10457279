"""The TensorRT runtime's own part: bindings, padded shapes, device buffers, cache, order of work, CUDA graphs.

ONNX Runtime stands in for the engines and the host's memory for the GPU's; results are compared with the ONNX runtime.
"""

import gc
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

from specdrive_ros.engine.axes import Range
from specdrive_ros.engine.memory import array_at
from specdrive_ros.engine.profile import find_profile
from specdrive_ros.errors import InputError, WorkFailed
from specdrive_ros.installation import data_roots
from specdrive_ros.runtime.device_features import DeviceFeatures, runs
from specdrive_ros.runtime.frame_encoder import FrameEncoder
from specdrive_ros.runtime.networks import ImageRows, VisionFeatures
from specdrive_ros.runtime.onnx_networks import OnnxNetworks
from specdrive_ros.runtime.registry import load_networks
from specdrive_ros.target.rope import text_positions

MINI = data_roots()[0] / "models" / "mini"


@pytest.fixture(scope="module")
def plain():
    return OnnxNetworks(MINI, threads=1)


def rows_of(cache) -> np.ndarray:
    """[L, length, 2, H, D] of either cache."""
    if hasattr(cache, "rows"):
        return cache.rows[:, : cache.length].copy()
    layers = [
        array_at(cache.past(cache.length).layer(k), (cache.length, 2, 2, 32), np.float32) for k in range(cache.layers)
    ]
    return np.stack([layer.copy() for layer in layers])


def tree_mask(cached: int, parents: list[int]) -> np.ndarray:
    mask = np.zeros((len(parents), cached + len(parents)), bool)
    mask[:, :cached] = True
    for row, parent in enumerate(parents):
        if parent >= 0:
            mask[row] = mask[parent]
        mask[row, cached + row] = True
    return mask


def exercise(networks) -> dict[str, np.ndarray]:
    """A cycle's passes: prompt, single tokens, a tree of which a path is kept, a block, the action head."""
    random, out = np.random.default_rng(0), {}
    cache = networks.new_cache(300)
    for cycle in range(2):  # the same addresses again: captured graphs are replayed
        cache.truncate(0)
        features = networks.encode_images(
            random.standard_normal((120, 1536)).astype(np.float32), np.array([[2, 6, 10]])
        )
        out[f"{cycle} features"], out[f"{cycle} levels"] = features.embeddings, features.deepstack
        prompt = networks.embed(random.integers(0, 700, 141))
        deepstack = random.standard_normal((2, 141, 192)).astype(np.float32)
        rows = np.array([139, 140])
        found = networks.extend(prompt, text_positions(0, 141, 0), cache, deepstack=deepstack, logit_rows=rows)
        out[f"{cycle} prompt"], out[f"{cycle} prompt taps"] = found.logits, found.taps
        for step in range(3):
            token = networks.embed(random.integers(0, 700, 1))
            out[f"{cycle} token {step}"] = networks.extend(token, text_positions(cache.length, 1, 3), cache).logits
        start, parents = cache.length, [-1, 0, 0, 1, 1, 2, 3, 5, 6, 6, 8]
        tree = networks.embed(random.integers(0, 700, len(parents)))
        positions = text_positions(start, len(parents), 3)
        out[f"{cycle} tree"] = networks.extend(tree, positions, cache, mask=tree_mask(start, parents)).logits
        cache.keep(start, np.array([0, 1, 3, 6, 8]))
        block = networks.embed(random.integers(0, 700, 16))
        out[f"{cycle} block"] = networks.extend(block, text_positions(cache.length, 16, 3), cache).logits
        cache.truncate(cache.length - 7)
        noise = random.standard_normal((64, 2)).astype(np.float32)
        out[f"{cycle} action"] = networks.act(
            noise, text_positions(cache.length, 64, 3), cache, visible=cache.length - 2
        )
        out[f"{cycle} cache"] = rows_of(cache)
    return out


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name].shape == value.shape
        np.testing.assert_allclose(found[name], value, atol=1e-4, err_msg=name)


@pytest.fixture(scope="module")
def expected(plain):
    return exercise(plain)


def test_a_cycle_is_that_of_the_onnx_runtime(make_networks, device, expected):
    networks = make_networks()
    assert_same(exercise(networks), expected)
    assert device.launches  # the second cycle replayed what the first had run
    assert not device.queue


def test_without_cuda_graphs(make_networks, device, expected):
    assert_same(exercise(make_networks(use_graphs=False)), expected)
    assert device.launches == 0


def test_an_engine_that_cannot_be_captured_runs_all_the_same(make_networks, device, expected, monkeypatch):
    def capture(enqueue):
        raise WorkFailed("captured nothing")

    monkeypatch.setattr(device, "capture", capture)
    networks = make_networks()
    assert_same(exercise(networks), expected)
    assert networks._graphs["text"].runner.capture_fault == "captured nothing"


def test_one_upload_and_one_wait_a_pass(make_networks, device):
    networks = make_networks()
    cache = networks.new_cache(64)
    before = device.uploads, device.synchronisations
    networks.extend(networks.embed(np.arange(5)), text_positions(0, 5, 0), cache)
    assert (device.uploads - before[0], device.synchronisations - before[1]) == (1, 1)
    before = device.uploads, device.synchronisations
    networks.encode_images(np.zeros((240, 1536), np.float32), np.array([[2, 6, 10]] * 2))
    assert (device.uploads - before[0], device.synchronisations - before[1]) == (1, 1)  # of all images of one size
    before = device.uploads, device.synchronisations
    networks.act(np.zeros((64, 2), np.float32), text_positions(5, 64, 0), cache, visible=5)
    assert (device.uploads - before[0], device.synchronisations - before[1]) == (1, 1)  # of ten steps


def test_nothing_is_allocated_once_a_cycle_was_run(make_networks, device):
    networks = make_networks()
    cache = networks.new_cache(200)

    def cycle():
        cache.truncate(0)
        for tokens in (100, 1, 7, 1, 16):
            networks.extend(
                networks.embed(np.arange(tokens)), text_positions(cache.length, tokens, 0), cache, logit_rows=[0]
            )
        networks.act(np.zeros((64, 2), np.float32), text_positions(9, 64, 0), cache, visible=cache.length)

    cycle()
    gc.collect()
    held = len(device.blocks)
    for _ in range(5):
        cycle()
    assert len(device.blocks) == held


def test_results_that_are_still_held_are_not_overwritten(make_networks):
    networks = make_networks()
    cache = networks.new_cache(64)
    first = networks.extend(networks.embed(np.arange(5)), text_positions(0, 5, 0), cache)
    kept, copy = first.logits, first.logits.copy()
    for token in range(6):
        networks.extend(networks.embed(np.array([token])), text_positions(cache.length, 1, 0), cache)
    np.testing.assert_array_equal(kept, copy)


def test_a_cache_gives_its_memory_back(make_networks, device):
    networks = make_networks()
    held = len(device.blocks)
    cache = networks.new_cache(64)
    assert len(device.blocks) == held + 1
    del cache
    gc.collect()
    assert len(device.blocks) == held


def test_cache_that_is_full(make_networks):
    networks = make_networks()
    cache = networks.new_cache(128)
    networks.extend(networks.embed(np.arange(120)), text_positions(0, 120, 0), cache, logit_rows=[0])
    with pytest.raises(ValueError, match="129 tokens do not fit a capacity of 128"):
        networks.extend(networks.embed(np.arange(9)), text_positions(120, 9, 0), cache)
    with pytest.raises(ValueError, match="cannot truncate 120 tokens to 121"):
        cache.truncate(121)


def test_prompt_longer_than_the_engines(make_networks):
    networks = make_networks()
    with pytest.raises(InputError, match="the text engine was built for T <= 512.* this pass has T = 513"):
        networks.extend(
            networks.embed(np.zeros(513, int)), text_positions(0, 513, 0), networks.new_cache(600), logit_rows=[0]
        )


def test_image_the_engine_was_not_built_for(make_networks):
    profile = find_profile("rtx-ada")
    small = replace(profile, graphs=profile.graphs | {"vision": ({"I": Range(1, 1, 4), "P": Range(24, 24, 24)},)})
    with pytest.raises(InputError, match="vision engine was built for I 1 … 4, P 24 … 24, this pass has I = 2, P = 60"):
        make_networks(small).encode_images(np.zeros((120, 1536), np.float32), np.array([[2, 6, 10]]))


def test_outputs_that_are_no_numbers_make_no_plan(make_networks):
    networks = make_networks()
    nothing, vocabulary = np.full((1, 192), np.nan, np.float32), networks.config.text.vocab_size
    for asked in ({}, {"forbidden": np.zeros(vocabulary, bool)}):
        with pytest.raises(WorkFailed, match="an engine's logits are not finite"):
            networks.extend(nothing, text_positions(0, 1, 0), networks.new_cache(64), **asked)


@pytest.mark.parametrize("draft", ["none", "carryover"])
def test_drives_as_the_onnx_runtime_does(make_networks, plain, draft, planners):
    (one, other), cycles = planners(plain, make_networks(), draft=draft)
    for observation in cycles(3):
        expected, found = one.plan(observation), other.plan(observation)
        assert found.token_ids == expected.token_ids
        np.testing.assert_allclose(found.xyz, expected.xyz, atol=1e-3)


def test_a_prompt_is_begun_ahead_only_where_the_engine_has_room_for_the_rest(make_networks, plain, planners):
    (one, other), cycles = planners(plain, make_networks(), draft="carryover")
    for observation in cycles(3):
        expected, found = one.plan(observation), other.plan(observation)
        assert found.token_ids == expected.token_ids and other.prefill.begun_rows == 0
        assert not other.prefill_ahead(), "the rest follows more rows than the profile of prompts has"


def test_a_prompt_begun_ahead_gives_the_same_plans(make_networks, plain, planners):
    profile = find_profile("rtx-ada")
    wider = tuple({**each, "S": replace(each["S"], largest=512)} for each in profile.graphs["text"])
    roomy = make_networks(replace(profile, graphs=profile.graphs | {"text": wider}))
    (one, other), cycles = planners(plain, roomy, draft="carryover")
    for number, observation in enumerate(cycles(4)):
        expected, found = one.plan(observation), other.plan(observation)
        assert found.token_ids == expected.token_ids and (other.prefill.begun_rows > 0) == (number >= 2)
        np.testing.assert_allclose(found.xyz, expected.xyz, atol=1e-3)
        assert other.prefill_ahead() == (number >= 1)


@pytest.fixture(scope="module")
def planners():
    """`planners(networks, …, draft=…)` -> planners of mini on those networks, and cycles to plan."""
    from specdrive_ros.cycle import Planner
    from specdrive_ros.evaluation.decode_benchmark import observations
    from specdrive_ros.model_settings import find_model
    from specdrive_ros.target.tokens import TargetTokenizer

    def make(*networks, draft: str):
        tokenizer = TargetTokenizer.load(networks[0].config)
        made = [Planner(find_model("mini"), each, tokenizer, draft=draft) for each in networks]
        return made, lambda cycles: islice(observations(made[0], 3), cycles)

    return make


def test_one_wait_a_stage_and_no_feature_or_logit_on_the_way(make_networks, device, planners):
    """Of a driving cycle after the first: what is waited for, what goes up and what comes down."""
    networks = make_networks()
    (planner,), cycles = planners(networks, draft="carryover")
    first, second = cycles(2)
    carried = planner.plan(first).token_ids
    waits, down = device.synchronisations, device.downloaded
    plan = planner.plan(second)
    assert device.synchronisations - waits == 3 + plan.target_passes  # vision, prefill and the action head beside them
    text, rows = networks.config.text, 1 + len(carried) + plan.target_passes * (1 + planner.decoder.spare_rows)
    assert device.downloaded - down <= (4 + 4) * rows + 4 * (64 * 2)  # choices and the action, nothing else
    state = planner.perceive(second, {})  # every frame is known: no wait for vision, and logits are asked for
    assert device.downloaded - down > 4 * text.vocab_size and state.logits.shape == (text.vocab_size,)
    features = joined(planner.encoder.encode(second.frames, second.frame_stamps_ns))
    assert isinstance(features, DeviceFeatures)
    image_rows = len(features.embeddings)
    before = device.uploaded
    planner.perceive(second, {})
    prompt = device.uploaded - before
    assert prompt < 4 * (512 * 2 * 32 + 512**2) + 4 * text.hidden_size * (state.cache.length - image_rows + 1)


def joined(frames):
    first, *others = [frame.features for frame in frames]
    return first.followed_by(others)


def test_kept_frames_are_not_encoded_again_and_stay_where_they_are(make_networks, device, plain):
    networks = make_networks()
    encoders = [FrameEncoder(each, ("a", "b")) for each in (networks, plain)]
    pictures = np.random.default_rng(0).integers(0, 255, (2, 9, 96, 160, 3), np.uint8)
    for cycle in range(6):
        frames = {name: pictures[k, cycle : cycle + 4] for k, name in enumerate("ab")}
        stamps = dict.fromkeys("ab", np.arange(cycle, cycle + 4))
        waits = device.synchronisations
        found, expected = [joined(encoder.encode(frames, stamps)) for encoder in encoders]
        assert device.synchronisations - waits == 1  # of both cameras
        np.testing.assert_allclose(found.embeddings, expected.embeddings, atol=1e-4)
        np.testing.assert_allclose(found.deepstack, expected.deepstack, atol=1e-4)
        if cycle == 2:
            held = len(device.blocks)
    gc.collect()
    assert len(device.blocks) == held  # blocks of forgotten frames are given out again
    assert encoders[0].encoded_frames == 8 + 5 * 2


def test_more_images_than_the_engine_takes_at_once(make_networks, plain):
    profile = find_profile("rtx-ada")
    few = replace(profile, graphs=profile.graphs | {"vision": ({"I": Range(1, 1, 2), "P": Range(24, 60, 60)},)})
    patches = np.random.default_rng(0).standard_normal((5 * 60 + 24, 1536)).astype(np.float32)
    grids = np.array([[5, 6, 10], [1, 4, 6]])
    found, expected = make_networks(few).encode_images(patches, grids), plain.encode_images(patches, grids)
    np.testing.assert_allclose(found.embeddings, expected.embeddings, atol=1e-4)
    np.testing.assert_allclose(found.deepstack, expected.deepstack, atol=1e-4)
    with pytest.raises(ValueError, match="images of .15, 15, 15, 15, 15, 6. tokens, asked for"):
        found.split([15, 66])


def test_runs_of_rows():
    assert runs(np.array([3, 4, 5, 9, 11, 12])) == [(0, 3, 3), (3, 9, 1), (4, 11, 2)]
    assert runs(np.arange(4)) == [(0, 0, 4)] and runs(np.zeros(0, int)) == []


def test_image_rows_come_together_on_the_device(make_networks, plain):
    """Words around and between images, an image cut in two by a word, features of either kind."""
    random, networks = np.random.default_rng(0), make_networks()
    patches, grid = random.standard_normal((120, 1536)).astype(np.float32), np.array([[1, 6, 10]] * 2)
    rows = np.array([*range(4, 19), *range(20, 27), *range(28, 36)])
    words = plain.embed(random.integers(0, 700, 41 - len(rows)))
    expected = on_rows(plain, words, rows, plain.encode_images(patches, grid))
    features = networks.encode_images(patches, grid)
    on_rows(networks, words + np.float32(9), rows, features)  # what lay in the input before must not shine through
    for each in (features, VisionFeatures(features.embeddings, features.deepstack)):
        for name, value in on_rows(networks, words, rows, each).items():
            np.testing.assert_allclose(value, expected[name], atol=1e-4, err_msg=name)


def on_rows(networks, words, rows, features) -> dict[str, np.ndarray]:
    cache = networks.new_cache(64)
    output = networks.extend(words, text_positions(0, 41, 0), cache, images=ImageRows(rows, features))
    return {"logits": output.logits, "taps": output.taps, "cache": rows_of(cache)}


def test_choices_are_those_of_the_logits(make_networks, plain, device):
    random, networks = np.random.default_rng(0), make_networks()
    tokens = networks.embed(random.integers(0, 700, 16))
    vocabulary = networks.config.text.vocab_size

    def ask(each, **asked):
        return each.extend(tokens, text_positions(0, 16, 0), each.new_cache(64), logit_rows=np.arange(3, 16), **asked)

    logits = ask(plain).logits
    for share in (0.0, 0.5, 0.999):  # of the vocabulary forbidden, another one each time
        forbidden = random.random(vocabulary) < share
        expected = np.where(forbidden, -np.inf, logits).argmax(-1)
        before = device.downloaded
        found = ask(networks, forbidden=forbidden)
        assert found.logits is None and found.choices.tolist() == expected.tolist()
        assert device.downloaded - before == 13 * (4 + 4) and found.taps.shape == (16, 3 * 192)  # they stay there
        assert np.asarray(found.taps).nbytes == found.taps.nbytes == device.downloaded - before - 13 * (4 + 4)
        before = device.downloaded
        without = ask(networks, forbidden=forbidden, taps=False)
        assert without.choices.tolist() == expected.tolist() and without.taps.shape == (16, 0)
        assert device.downloaded - before == 13 * (4 + 4)
        assert ask(plain, forbidden=forbidden).choices.tolist() == expected.tolist()
    np.testing.assert_allclose(ask(networks).logits, logits, atol=1e-4)


def test_runtime_without_a_gpu(monkeypatch):
    monkeypatch.setattr("specdrive_ros.engine.cuda_driver.CudaDevice.__init__.__defaults__", ("libno_cuda.so",))
    with pytest.raises(InputError, match="no NVIDIA driver here .* engines run on a machine with an NVIDIA GPU"):
        load_networks(MINI, "tensorrt")


def test_fewer_steps_of_the_action_head_are_those_of_the_onnx_runtime(make_networks, plain, device):
    noise = np.random.default_rng(1).standard_normal((64, 2)).astype(np.float32)
    found = {}
    for networks in (plain, make_networks()):
        cache = networks.new_cache(64)
        networks.extend(networks.embed(np.arange(20)), text_positions(0, 20, 0), cache)
        found[networks] = networks.act(noise, text_positions(20, 64, 0), cache, visible=20, steps=3)
    ours, theirs = found.values()
    np.testing.assert_allclose(ours, theirs, atol=1e-4)
    assert not device.queue
