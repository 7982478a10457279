"""Drafts on engines beside their target's, in the host's memory: what they propose, and what crosses to the host.

ONNX Runtime stands in for the engines; proposals are compared with those of the drafts that run on it.
"""

import gc
import logging
from dataclasses import replace
from itertools import islice
from types import SimpleNamespace

import numpy as np
import pytest

from specdrive_ros.draft.dflash import DFlashDraft
from specdrive_ros.draft.draft import DraftContext
from specdrive_ros.draft.eagle3 import Eagle3Draft
from specdrive_ros.draft.taps import TapSelection
from specdrive_ros.engine.axes import Range
from specdrive_ros.engine.memory import array_at
from specdrive_ros.engine.profile import find_profile
from specdrive_ros.errors import InputError, WorkFailed
from specdrive_ros.installation import data_roots
from specdrive_ros.runtime.bindings import HIDDEN
from specdrive_ros.runtime.device_states import DeviceStates
from specdrive_ros.runtime.onnx_networks import OnnxNetworks
from specdrive_ros.runtime.padding import padded_in_front, seen_rows
from specdrive_ros.target.rope import text_positions

pytest.importorskip("onnxscript", reason="needs the train extra")
from specdrive_ros.runtime import tensorrt_drafts  # noqa: E402
from specdrive_ros.runtime.drafts import load_draft  # noqa: E402
from specdrive_ros.runtime.tensorrt_drafts import in_type, keep_matrix  # noqa: E402

MINI = data_roots()[0] / "models" / "mini"
WORDS = 500  # that the drafts of conftest.py can say
SHAPE = {"words": np.arange(WORDS), "depth": 3, "top_k": 4, "block_size": 8}
NODES = 12


@pytest.fixture(scope="module")
def plain():
    return OnnxNetworks(MINI, threads=1)


@pytest.fixture
def load(draft, draft_engines, monkeypatch):
    """`load(networks, profile)` -> the draft on engines beside a target on engines."""

    def make(networks, profile=None):
        monkeypatch.setattr(tensorrt_drafts, "load_engines", lambda *_: draft_engines(profile))
        return load_draft(draft[1], networks, **SHAPE)

    return make


def rounds(networks, draft, prompt: int = 41, accepted=((0, 1, 2), (0,), (0, 2, 3, 4), (0, 1))):
    """A drive of one prompt: the draft is asked before every pass of the target, of which some rows are kept."""
    random, cache = np.random.default_rng(0), networks.new_cache(256)
    ids, proposals = random.integers(0, WORDS, prompt), []
    positions = text_positions(0, prompt, 0)
    taps = networks.extend(networks.embed(ids), positions, cache, logit_rows=[0]).taps
    written = [int(random.integers(0, WORDS))]
    draft.begin()
    for kept in accepted:
        context = DraftContext(ids, tuple(written), written[-1], taps, positions, 0)
        proposals.append(draft.propose(context, NODES))
        start, tokens = cache.length, [written[-1], *random.integers(0, WORDS, 4).tolist()]
        positions = text_positions(start, 5, 0)
        taps = networks.extend(networks.embed(np.array(tokens)), positions, cache, logit_rows=[0]).taps
        cache.keep(start, np.array(kept))
        taps, positions = taps[list(kept)], positions[:, : len(kept)]
        written += [tokens[row] for row in kept[1:]] + [int(random.integers(0, WORDS))]
    return proposals


def rows_of(cache) -> np.ndarray:
    """[L, length, 2, H, D] of a draft's cache on the device."""
    rows, shape = cache.known, (cache.length, cache.row_bytes // 4)
    return np.stack([array_at(rows.layer(k), shape, np.float32).copy() for k in range(cache.layers)])


def assert_same(found, expected) -> None:
    for (tokens, parents, scores), (words, above, likely) in zip(found, expected, strict=True):
        assert tokens.tolist() == words.tolist() and parents.tolist() == above.tolist()
        np.testing.assert_allclose(scores, likely, atol=1e-4)


def test_proposals_are_those_of_onnx_runtime(draft, load, make_networks, plain, device):
    reference = load_draft(draft[1], plain, **SHAPE)
    networks = make_networks()
    made = load(networks)
    assert isinstance(made, {"eagle3": Eagle3Draft, "dflash": DFlashDraft}[draft[0]])
    assert type(made.networks).__module__ == "specdrive_ros.runtime.tensorrt_drafts"
    for _ in range(2):  # the second drive replays captured graphs, over what the first has left in the cache
        assert_same(rounds(networks, made), rounds(plain, reference))
        known = reference.cache.known
        np.testing.assert_allclose(rows_of(made.cache), known.reshape(*known.shape[:2], -1), atol=1e-4)
    assert device.launches and not device.queue


def test_no_state_visits_the_host_and_each_pass_waits_once(draft, load, make_networks, device):
    networks = make_networks()
    made = load(networks)
    rounds(networks, made)
    crossed = lambda: np.array([device.downloaded, device.uploaded, device.synchronisations])  # noqa: E731
    asked = []

    def propose(context, nodes):
        before = crossed()
        proposal = made.propose(context, nodes)
        asked.append(crossed() - before)
        return proposal

    before = crossed()
    rounds(networks, SimpleNamespace(begin=made.begin, propose=propose), accepted=((0, 1, 2), (0,)))
    passes = 1 + 3 if draft[0] == "eagle3" else 1  # newest tokens and three levels; a block, behind an injection
    rows = 1 + 3 * 4 if draft[0] == "eagle3" else 8
    for down, up, waits in asked:
        assert (down, waits) == (4 * WORDS * rows, passes)  # logits and nothing else
        assert up < 4 * 64 * 3 * 192  # of a prompt, less than its states alone would be
    down, _, waits = crossed() - before - sum(asked)
    assert (down, waits) == (3 * 4 * networks.config.text.vocab_size, 3)  # the target's: the logits that were asked for


def test_nothing_is_allocated_once_a_drive_was_run(load, make_networks, device):
    networks = make_networks()
    made = load(networks)
    for _ in range(2):
        rounds(networks, made)
    gc.collect()
    held = len(device.blocks)
    for prompt in (41, 37, 44):
        rounds(networks, made, prompt)
    gc.collect()
    assert len(device.blocks) == held


def test_what_is_no_number_is_told_and_forgotten(load, make_networks, plain, draft):
    """A proposal fails; the next prompt's are as ever, though rows of the cache had been no numbers."""
    networks = make_networks()
    made = load(networks)
    expected = rounds(plain, load_draft(draft[1], plain, **SHAPE))
    rounds(networks, made)
    broken = np.full((41, 3 * 192), np.nan, np.float32)
    made.begin()
    context = DraftContext(np.arange(41), (7,), 7, broken, text_positions(0, 41, 0), 0)
    with pytest.raises(WorkFailed, match="an engine's logits are not finite"):
        made.propose(context, NODES)
    assert_same(rounds(networks, made), expected)


def test_a_target_that_gave_no_numbers_starts_anew(make_networks, plain):
    """Rows behind a shorter prompt are hidden by a mask, through which what is no number would show."""
    networks = make_networks()
    cache, nothing = networks.new_cache(128), np.full((60, 192), np.nan, np.float32)
    with pytest.raises(WorkFailed, match="are not finite"):
        networks.extend(nothing, text_positions(0, 60, 0), cache, logit_rows=[59])
    found = {}
    for each, kept in ((networks, cache), (plain, plain.new_cache(128))):
        kept.truncate(0)
        for tokens in (20, 1):
            words = each.embed(np.arange(tokens))
            found[each] = each.extend(words, text_positions(kept.length, tokens, 0), kept, logit_rows=[0]).logits
    np.testing.assert_allclose(found[networks], found[plain], atol=1e-4)


def test_taps_of_a_target_that_gives_more(draft, load, make_networks, plain):
    """States in another order than the draft reads them: columns are picked on the device."""
    networks, reference = make_networks(), load_draft(draft[1], plain, **SHAPE)
    made, context = load(networks), {}
    made.select = reference.select = TapSelection((2, 4, 5), (5, 2, 4), 192, "here")
    for each in (networks, plain):
        cache, ids = each.new_cache(64), np.arange(30)
        taps = each.extend(each.embed(ids), text_positions(0, 30, 0), cache, logit_rows=[0]).taps
        shuffled = taps[:, np.r_[384:576, 0:384]]
        assert isinstance(shuffled, DeviceStates) == (each is networks)
        context[each] = DraftContext(ids, (3,), 3, shuffled, text_positions(0, 30, 0), 0)
    assert_same([made.propose(context[networks], NODES)], [reference.propose(context[plain], NODES)])


def test_a_prompt_longer_than_the_engines(load, make_networks, draft):
    profile = find_profile("rtx-ada")
    letter, graph = {"eagle3": ("T", "eagle3_newest"), "dflash": ("A", "dflash_context")}[draft[0]]
    short = {letter: Range(1, 8, 32)} | ({"S": Range(0, 64, 128)} if letter == "T" else {})
    networks = make_networks()
    made = load(networks, replace(profile, graphs=profile.graphs | {graph: (short,)}))
    said = f"the {graph} engine was built for {letter} <= 32.* this pass has {letter} = 41"
    with pytest.raises(InputError, match=said):
        rounds(networks, made)


def test_words_the_engine_was_not_built_for(load, make_networks, draft):
    if draft[0] != "dflash":
        pytest.skip("words of EAGLE-3 are its own")
    profile = find_profile("rtx-ada")
    few = {"B": Range(2, 8, 8), "S": Range(1, 64, 512), "W": Range(1, 64, 256)}
    networks = make_networks()
    made = load(networks, replace(profile, graphs=profile.graphs | {"dflash_block": (few,)}))
    said = "dflash_block engine was built for B 2 … 8, W 1 … 256, this pass has B = 8, W = 500"
    with pytest.raises(InputError, match=said):
        rounds(networks, made)


def test_where_none_was_built_a_draft_runs_on_onnx_runtime(
    draft, make_networks, plain, caplog, monkeypatch, tmp_path
):
    monkeypatch.setenv("SPECDRIVE_ENGINES", str(tmp_path / "none"))
    networks = make_networks()
    with caplog.at_level(logging.WARNING):
        made = load_draft(draft[1], networks, **SHAPE)
    assert "on ONNX Runtime, beside a target on engines" in caplog.text and "no engine of" in caplog.text
    expected = rounds(plain, load_draft(draft[1], plain, **SHAPE))
    assert_same(rounds(networks, made), expected)  # states come down when they are read
    with pytest.raises(InputError, match=f"no engine of {draft[0]}_.*build it with: ./specdrive engine build"):
        load_draft(draft[1], networks, "tensorrt", **SHAPE)
    with pytest.raises(InputError, match="beside a target on engines, this one runs on onnxruntime"):
        load_draft(draft[1], plain, "tensorrt", **SHAPE)


def test_drives_with_a_draft_on_engines(draft, load, make_networks, plain, device, tmp_path):
    """A planner's own loop and company, the carried text among them: the words are those of plain decoding."""
    from specdrive_ros.cycle import Planner
    from specdrive_ros.evaluation.decode_benchmark import observations
    from specdrive_ros.model_settings import find_model
    from specdrive_ros.target.tokens import TargetTokenizer

    (tmp_path / "drafts").mkdir()
    (tmp_path / "drafts" / f"{draft[0]}-flat").symlink_to(draft[1])
    settings, networks = find_model("mini"), make_networks()
    load(networks)  # from here on engines are found
    tokenizer = TargetTokenizer.load(plain.config)
    alone = Planner(settings, plain, tokenizer)
    drafted = Planner(replace(settings, checkpoint=tmp_path), networks, tokenizer, draft=f"carryover+{draft[0]}")
    inner = drafted.decoder.draft.drafts[-1].inner
    assert type(inner.networks).__module__ == "specdrive_ros.runtime.tensorrt_drafts"
    for observation in islice(observations(alone, 3), 2):
        expected, found = alone.plan(observation), drafted.plan(observation)
        assert found.token_ids == expected.token_ids
        np.testing.assert_allclose(found.xyz, expected.xyz, atol=1e-3)
    assert drafted.decoder.draft.times_asked[f"{draft[0]}-flat"] and not drafted.decoder.draft._faulty


def test_padding():
    assert padded_in_front(np.ones((2, 3)), 4).tolist() == [[0] * 3] * 2 + [[1] * 3] * 2
    assert seen_rows(2, 4, 1, 3).tolist() == np.float32([0, 0, HIDDEN, HIDDEN, HIDDEN, HIDDEN, 0]).tolist()


def test_half_types_of_a_matrix(device, monkeypatch):
    values = np.random.default_rng(0).standard_normal((7, 5)).astype(np.float32)
    torch = pytest.importorskip("torch", reason="the reference's rounding")
    bits = torch.from_numpy(values).bfloat16().view(torch.int16).numpy().view(np.uint16)
    np.testing.assert_array_equal(in_type(values, "bfloat16"), bits)
    monkeypatch.setattr(tensorrt_drafts, "_PIECE", 25)  # two rows at a time
    for dtype, expected in (("float16", values.astype(np.float16)), ("bfloat16", bits)):
        held, kept = len(device.blocks), keep_matrix(device, values, dtype)
        np.testing.assert_array_equal(array_at(kept.address, kept.shape, expected.dtype), expected)
        assert len(device.blocks) == held + 1 and not device.queue
