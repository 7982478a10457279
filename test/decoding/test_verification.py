import json
from collections import Counter

import numpy as np
import pytest
from safetensors.numpy import load_file

from specdrive_ros.decoding.choice import Sampler, likeliest_few, nucleus, softmax
from specdrive_ros.decoding.rules import ReasoningRules
from specdrive_ros.decoding.token_tree import TokenTree
from specdrive_ros.decoding.verification import RejectionSampler, greedy_among, reject_siblings, verify

from .toy_target import COT_END, END_OF_TURN, FUTURE_START, VOCABULARY, toy_rules

FREE = ReasoningRules(np.zeros(192, bool), cot_end=-1, future_start=-1, end_of_turn=-1, max_new_tokens=1000)


@pytest.fixture(scope="module")
def reference(checkout):
    """`reference("greedy")` -> arrays and cases of that file."""
    folder = checkout / "test" / "golden" / "drafts_A" / "eagle_verify"
    return lambda name: (load_file(folder / f"{name}.safetensors"), json.loads((folder / f"{name}.json").read_text()))


def tree_of(arrays, prefix: str = "") -> TokenTree:
    tokens, parents = arrays[prefix + "draft_tokens"], arrays[prefix + "parents"]
    return TokenTree(tokens[1:], parents[1:] - 1, np.zeros(len(tokens) - 1))


def test_greedy_paths_are_the_reference_s(reference):
    arrays, cases = reference("greedy")
    for case in cases:
        tree = tree_of(arrays, case["key"].split("/")[0] + "/")
        verdict = verify(tree, arrays[case["key"] + "/node_logits"], FREE, [0], greedy_among)
        assert [int(tree.tokens[node]) for node in verdict.path] == arrays[case["key"] + "/accepted_tokens"].tolist()
        assert len(verdict.path) == case["accept_length"] and verdict.tokens == (case["next_token"],)


def test_rejected_siblings_are_the_reference_s(reference):
    """Same uniform numbers: same tokens kept, as many numbers used, same residual distribution."""
    arrays, document = reference("sampling")
    tree = tree_of(arrays)
    leaves = arrays["retrieve_indices_sampling_order"]
    for case in document["cases"]:
        uniforms = iter(arrays[case["key"] + "/uniforms"].tolist())
        used, kept, residuals = [], [], []

        def choose(scores, proposed):
            def uniform():
                used.append(next(uniforms))
                return used[-1]

            accepted, rest = reject_siblings(softmax(warped_as_eagle_does(scores, case)), proposed, uniform)
            residuals.append(rest)
            kept.append(accepted)
            return int(np.argmax(rest)) if accepted is None else accepted

        ordered = in_reference_order(tree, leaves)
        verdict = verify(ordered, arrays[case["key"] + "/node_logits"][order_of(tree, leaves)], FREE, [0], choose)
        assert len(verdict.path) == case["accept_length"] and len(used) == case["uniforms_used"]
        tokens = [int(arrays["draft_tokens"][0]), *(token for token in kept if token is not None)]
        assert tokens == arrays[case["key"] + "/kept_tokens"].tolist()
        np.testing.assert_allclose(residuals[-1], arrays[case["key"] + "/residual"], atol=1e-6)


def warped_as_eagle_does(logits: np.ndarray, case: dict) -> np.ndarray:
    """Temperature, top-p, top-k: the other way round than the release of the target, which is what `Sampler` does."""
    return likeliest_few(nucleus(logits / case["temperature"], case["top_p"] or 1.0), case["top_k"])


def test_the_reference_s_cases_have_every_warper(reference):
    cases = reference("sampling")[1]["cases"]
    assert {(bool(case["top_p"]), bool(case["top_k"])) for case in cases} == {
        (False, False), (True, False), (False, True), (True, True)
    }


def order_of(tree: TokenTree, leaves: np.ndarray) -> list[int]:
    """Rows (0 is the root) in the order in which the reference's leaf paths name them."""
    rows = [0]
    for depth in range(1, leaves.shape[1]):
        rows += [row for row in dict.fromkeys(leaves[:, depth].tolist()) if row > 0]
    return rows


def in_reference_order(tree: TokenTree, leaves: np.ndarray) -> TokenTree:
    rows = order_of(tree, leaves)
    place = {row: index - 1 for index, row in enumerate(rows)}
    nodes = np.array(rows[1:]) - 1
    return TokenTree(tree.tokens[nodes], [place[int(tree.parents[node]) + 1] for node in nodes], tree.log_probs)


def logits_of(*choices: int) -> np.ndarray:
    return 9.0 * np.eye(VOCABULARY)[list(choices)]


def test_trajectory_tokens_are_never_accepted():
    tree = TokenTree.chain([VOCABULARY - 1])
    logits = logits_of(VOCABULARY - 1, 0)
    logits[0, 5] = 1.0
    assert verify(tree, logits, toy_rules(), [0], greedy_among).tokens == (5,)


def test_the_end_stops_the_walk():
    tree = TokenTree.chain([COT_END, FUTURE_START, 3])
    verdict = verify(tree, logits_of(COT_END, FUTURE_START, 3, 3), toy_rules(), [0], greedy_among)
    assert verdict.path == (0, 1) and verdict.tokens == () and not verdict.forced


def test_end_of_turn_and_limit_close_by_force():
    tree = TokenTree.chain([1, END_OF_TURN, 2])
    verdict = verify(tree, logits_of(1, END_OF_TURN, 2, 2), toy_rules(), [0], greedy_among)
    assert verdict.path == (0,) and verdict.tokens == (COT_END, FUTURE_START) and verdict.forced
    verdict = verify(TokenTree.chain([1, 1, 1]), logits_of(1, 1, 1, 1), toy_rules(5), [0, 0], greedy_among)
    assert verdict.path == (0,) and verdict.tokens == (COT_END, FUTURE_START) and verdict.forced


def test_a_tree_may_hold_the_closing_tokens_of_a_forced_end():
    verdict = verify(TokenTree.chain([COT_END, FUTURE_START]), logits_of(END_OF_TURN, 0, 0), toy_rules(), [0],
                     greedy_among)
    assert verdict.path == (0, 1) and verdict.tokens == () and verdict.forced


def test_sampled_passes_have_the_target_s_distribution():
    """Chi-square over 20,000 passes: path and own token, jointly, against the exact warped distribution."""
    from scipy.stats import chisquare

    random = np.random.default_rng(8)
    tree = TokenTree(np.array([0, 1, 2, 0, 3, 1]), np.array([-1, -1, 0, 0, 1, 2]), np.zeros(6))
    logits = 1.2 * random.standard_normal((7, 5))
    rules = ReasoningRules(np.array([0, 0, 0, 0, 1], bool), -1, -1, -1, 1000)
    sampler = Sampler(temperature=0.8, top_p=0.95)
    choose = RejectionSampler(sampler, seed=3)
    drawn = Counter()
    for _ in range(20_000):
        verdict = verify(tree, logits, rules, [0], choose)
        drawn[verdict.path + verdict.tokens] += 1
    exact = pass_probabilities(tree, [softmax(sampler.warp(rules.allowed(row))) for row in logits])
    assert set(drawn) <= set(exact) and len(exact) > 10 and abs(sum(exact.values()) - 1) < 1e-9
    observed, expected = zip(*((drawn[key], 20_000 * share) for key, share in exact.items()), strict=True)
    assert chisquare(observed, expected).pvalue > 1e-3


def pass_probabilities(tree: TokenTree, shares) -> dict[tuple[int, ...], float]:
    """(accepted nodes …, own token) -> probability, by following every choice."""
    found = {}
    for node in range(-1, len(tree)):
        path = tuple(tree.path(node))
        reached = 1.0
        for child in path:
            reached *= shares[int(tree.parents[child]) + 1][tree.tokens[child]]
        below = {int(tree.tokens[child]) for child in tree.children.get(node, ())}
        for token in np.flatnonzero(shares[node + 1]).tolist():
            if token not in below:
                found[path + (token,)] = reached * shares[node + 1][token]
    return found
