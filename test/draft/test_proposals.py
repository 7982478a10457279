"""What holds for every kind of draft; the numbers themselves are held by test/golden."""

from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the train extra")

from dataclasses import replace  # noqa: E402

from safetensors.numpy import load_file  # noqa: E402

from specdrive_ros.draft.checkpoint import load_draft_network  # noqa: E402
from specdrive_ros.draft.dflash import DFlashDraft  # noqa: E402
from specdrive_ros.draft.eagle3 import Eagle3Draft  # noqa: E402
from specdrive_ros.runtime.torch_drafts import TorchDFlash, TorchEagle3  # noqa: E402

PROMPT = 600  # longer than a new draft's cache


@pytest.fixture(scope="module")
def parts(golden):
    weights = load_file(golden / "target" / "model.safetensors")
    return weights["model.embed_tokens.weight"], weights["lm_head.weight"]


@pytest.fixture(params=["chain", "tree", "block"])
def make(request, golden, text, parts):
    """`make(rope, end_token)`: a draft."""
    embedding, head = parts

    def build(rope="flat", end_token=None):
        folder = golden / ("dflash" if request.param == "block" else "eagle3") / "draft_fit"
        network = load_draft_network(folder, text)
        network.config = replace(network.config, rope=rope, mrope_section=(4, 2, 2))
        if request.param == "block":
            return DFlashDraft(TorchDFlash(network, head), lambda ids: embedding[ids], end_token=end_token)
        shape = {"depth": 5, "top_k": 1} if request.param == "chain" else {"depth": 3, "top_k": 4}
        return Eagle3Draft(TorchEagle3(network), lambda ids: embedding[ids], end_token=end_token, **shape)

    return build


def context(draft, known, first, seed=0, delta=0):
    """The rows from `first` on of a sequence of `known` tokens, and one token more."""
    random = np.random.default_rng(seed)
    ids = random.integers(3, 190, PROMPT + 50)
    taps = random.standard_normal((PROMPT + 50, len(draft.config.tap_layers) * 64), np.float32)
    positions = np.broadcast_to(first + delta + np.arange(known - first), (3, known - first))
    return SimpleNamespace(prompt_ids=ids[:PROMPT], written=tuple(ids[PROMPT:known]), newest_token=int(ids[known]),
                           taps=taps[first:known], positions=positions, rope_delta=delta)  # fmt: skip


def same(one, other, tolerance=1e-4):
    same_tree = all(np.array_equal(a, b) for a, b in zip(one[:2], other[:2]))
    return same_tree and np.allclose(one[2], other[2], atol=tolerance)


def proposals(draft):
    """Tokens and parents of both ways to propose."""
    for propose in (draft.propose, draft.tree):
        draft.begin()
        found = propose(context(draft, 610, 0), 12)
        yield (found.tokens, found.parents) if hasattr(found, "tokens") else found[:2]


def test_a_proposal_stops_where_the_reasoning_ends(make):
    """Whatever word is the end: it is proposed as before, and nothing below it."""
    for way, (tokens, _) in enumerate(proposals(make())):
        for end in set(tokens.tolist()):
            found, parents = list(proposals(make(end_token=end)))[way]
            assert end in found and end not in found[parents[parents >= 0]]


def test_rows_taken_up_bit_by_bit_are_those_taken_up_at_once(make):
    """A proposal leaves nothing of its guesses behind, however the true tokens come in."""
    step_by_step, at_once = make(), make()
    for first, known in ((0, PROMPT), (PROMPT, PROMPT + 1), (PROMPT + 1, PROMPT + 6)):
        found = step_by_step.propose(context(step_by_step, known, first), 7)
    assert same(found, at_once.propose(context(at_once, PROMPT + 6, 0), 7))
    assert step_by_step.cache.length == PROMPT + 6


def test_begin_forgets(make):
    used, new = make(), make()
    used.propose(context(used, PROMPT, 0, seed=3), 7)
    used.begin()
    assert same(used.propose(context(used, PROMPT, 0), 7), new.propose(context(new, PROMPT, 0), 7))


def test_no_more_nodes_than_asked_for(make):
    draft = make()
    for nodes in (1, 2, 5):
        draft.begin()
        tokens, parents, log_probs = draft.propose(context(draft, PROMPT, 0), nodes)
        assert len(tokens) == len(parents) == len(log_probs) == nodes
        assert (parents < np.arange(nodes)).all() and (log_probs <= 0).all()
        assert parents[0] == -1


def test_only_distances_count(make):
    """Rotary embeddings turn by differences: a mirrored draft does not see a shift of every position."""
    plain, moved = make("mirror"), make("mirror")
    one = plain.propose(context(plain, PROMPT, 0), 5)
    other = moved.propose(context(moved, PROMPT, 0, delta=-40), 5)
    assert same(one, other, 1e-3)


def test_a_mirrored_draft_minds_where_the_target_sees_a_row(make):
    """Rows of an image stand on one time: flat drafts cannot tell, mirrored ones must."""
    results = {}
    for rope in ("flat", "mirror"):
        for shape in ("text", "image"):
            draft = make(rope)
            given = context(draft, PROMPT, 0)
            given.positions = given.positions.copy()
            if shape == "image":
                given.positions[0, 20:560] = 20
                given.positions[1, 20:560] = 20 + np.arange(540) // 30
            results[rope, shape] = draft.propose(given, 5)[2]
    np.testing.assert_array_equal(results["flat", "text"], results["flat", "image"])
    assert np.abs(results["mirror", "text"] - results["mirror", "image"]).max() > 1e-4


def test_rows_left_out_are_an_error_not_a_guess(make):
    draft = make()
    with pytest.raises(ValueError, match="do not end before the newest token"):
        draft.propose(context(draft, PROMPT + 4, 2), 5)
