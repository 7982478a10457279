import numpy as np
import pytest
from safetensors.numpy import load_file

from specdrive_ros.decoding.token_tree import TokenTree, merge

TREES = ["tree_16_4_4_rand", "tree_60_7_10_fit_deep"]


@pytest.fixture(params=TREES)
def reference(request, checkout):
    """A tree of the public EAGLE code; its row 0 is the root."""
    return load_file(checkout / "test" / "golden" / "drafts_A" / "eagle3" / f"{request.param}.safetensors")


def tree_of(reference) -> TokenTree:
    return TokenTree(
        reference["draft_tokens"][1:], reference["parents"][1:] - 1, reference["cum_logprob"][1:].astype(float)
    )


def test_mask_depths_and_paths_are_the_reference_s(reference):
    tree = tree_of(reference)
    np.testing.assert_array_equal(tree.depths, reference["tree_position_ids"][1:])
    np.testing.assert_array_equal(tree.attention_mask(0), reference["tree_mask"].astype(bool))
    leaves = [[node - 1 for node in row if node > 0] for row in reference["retrieve_indices"].tolist()]
    assert sorted(tree.paths()) == sorted(leaves)


def test_mask_with_a_cache_and_a_stem_of_two():
    mask = TokenTree(np.array([5, 6, 7]), np.array([-1, -1, 1]), np.zeros(3)).attention_mask(cached=2, stem=2)
    expected = ["11 10 000", "11 11 000", "11 11 100", "11 11 010", "11 11 011"]
    assert ["".join(str(int(seen)) for seen in row) for row in mask] == [row.replace(" ", "") for row in expected]


def test_positions_follow_depth_on_three_axes():
    tree = TokenTree(np.array([5, 6, 7]), np.array([-1, -1, 1]), np.zeros(3))
    np.testing.assert_array_equal(tree.positions(root_slot=10, rope_delta=-4), [[7, 7, 8]] * 3)
    assert TokenTree.empty().positions(10, 0).shape == (3, 0)


def test_a_chain_is_a_tree_of_width_one():
    chain = TokenTree.chain([4, 4, 4], [-0.1, -0.2, -0.3])
    assert chain.is_chain and chain.paths() == [[0, 1, 2]] and chain.depths.tolist() == [1, 2, 3]
    assert not TokenTree(np.array([1, 2]), np.array([-1, -1]), np.zeros(2)).is_chain
    assert TokenTree.empty().is_chain and not TokenTree.empty().paths()


@pytest.mark.parametrize(
    "tokens, parents, log_probs, says",
    [
        ([1, 2], [-1, 1], [0, 0], "parent must come before"),
        ([1, 2], [-2, 0], [0, 0], "parent must come before"),
        ([1, 1], [-1, -1], [0, 0], "siblings have the same token"),
        ([1], [-1], [np.nan], "finite"),
        ([1], [-1], [-np.inf], "finite"),
        ([1, 2], [-1], [0, 0], "of one n"),
        ([[1]], [[-1]], [[0]], "of one n"),
        ([1.5], [-1], [0], "whole numbers"),
    ],
)
def test_wrong_trees_are_refused(tokens, parents, log_probs, says):
    with pytest.raises(ValueError, match=says):
        TokenTree(np.array(tokens), np.array(parents), np.array(log_probs))


def test_pruning_keeps_the_most_probable_and_their_ancestors():
    tree = TokenTree(np.array([1, 2, 3, 4]), np.array([-1, 0, -1, 1]), np.array([-1.0, -3.0, -2.0, -0.5]))
    kept = tree.pruned(3)  # node 3 claims more than its parent; it does not outrun it
    assert kept.tokens.tolist() == [1, 2, 3] and kept.parents.tolist() == [-1, 0, -1]
    assert len(tree.pruned(0)) == 0 and tree.pruned(9) is tree


def test_merged_trees_share_paths_and_keep_the_best_within_the_budget():
    first = TokenTree.chain([1, 2, 3], [-0.1, -0.5, -2.0])
    second = TokenTree(np.array([1, 2, 5]), np.array([-1, 0, 0]), np.array([-0.3, -0.4, -1.0]))
    merged = merge([first, second], 10, ["a", "b"])
    assert merged.tokens.tolist() == [1, 2, 3, 5] and merged.parents.tolist() == [-1, 0, 1, 0]
    np.testing.assert_allclose(merged.log_probs, [-0.1, -0.4, -2.0, -1.0])
    assert merged.proposers == ("a", "b", "a", "b")
    assert merge([first, second], 3).tokens.tolist() == [1, 2, 5]
    assert len(merge([], 3)) == 0
