"""Passes of any shape agree with token-by-token passes: trees, blocks, masks, rows of logits, what the action
head may see. On both runtimes."""

import numpy as np
import pytest

from specdrive_ros.target.rope import text_positions

PROMPT = 12


@pytest.fixture
def prompt(networks):
    """`prompt()` -> a cache with twelve random tokens in it, the same every time."""

    def make():
        ids = np.random.default_rng(3).integers(0, 426, PROMPT)
        cache = networks.new_cache(128)
        networks.extend(networks.embed(ids), text_positions(0, PROMPT, 0), cache)
        return cache

    return make


def random_tree(nodes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Tokens and parents (-1 is the prompt's end), parents before children."""
    random = np.random.default_rng(seed)
    parents = np.array([random.integers(-1, node) for node in range(nodes)])
    return random.integers(0, 426, nodes), parents


def paths(parents: np.ndarray) -> list[list[int]]:
    """Per node the way to it, itself last."""
    found: list[list[int]] = []
    for node, parent in enumerate(parents):
        found.append([*(found[parent] if parent >= 0 else []), node])
    return found


def test_tree_equals_its_paths(networks, prompt):
    tokens, parents = random_tree(60, seed=1)
    ways = paths(parents)
    mask = np.zeros((60, PROMPT + 60), bool)
    mask[:, :PROMPT] = True
    for node, way in enumerate(ways):
        mask[node, PROMPT + np.array(way)] = True
    positions = np.broadcast_to(PROMPT - 1 + np.array([len(way) for way in ways]), (3, 60))
    cache = prompt()
    tree = networks.extend(networks.embed(tokens), positions, cache, mask=mask)
    leaves = sorted(set(range(60)) - set(parents.tolist()))
    for leaf in leaves:
        alone, way = prompt(), ways[leaf]
        for depth, node in enumerate(way):
            position = text_positions(PROMPT + depth, 1, 0)
            step = networks.extend(networks.embed(tokens[node : node + 1]), position, alone)
            np.testing.assert_allclose(tree.logits[node], step.logits[0], atol=1e-4)
            np.testing.assert_allclose(tree.taps[node], step.taps[0], atol=1e-4)
        np.testing.assert_allclose(
            cache.rows[:, PROMPT + np.array(way)], alone.rows[:, PROMPT : alone.length], atol=1e-4
        )


def test_accepted_path_leaves_the_cache_of_plain_decoding(networks, prompt):
    tokens, parents = random_tree(20, seed=2)
    way = max(paths(parents), key=len)
    mask = np.zeros((20, PROMPT + 20), bool)
    mask[:, :PROMPT] = True
    for node, ancestors in enumerate(paths(parents)):
        mask[node, PROMPT + np.array(ancestors)] = True
    depths = np.array([len(ancestors) for ancestors in paths(parents)])
    cache, alone = prompt(), prompt()
    networks.extend(networks.embed(tokens), np.broadcast_to(PROMPT - 1 + depths, (3, 20)), cache, mask=mask)
    cache.keep(PROMPT, np.array(way))
    networks.extend(networks.embed(tokens[way]), text_positions(PROMPT, len(way), 0), alone)
    assert cache.length == alone.length
    np.testing.assert_allclose(cache.rows[:, : cache.length], alone.rows[:, : alone.length], atol=1e-4)


def test_no_mask_is_causal(networks, prompt):
    tokens = np.arange(10, 16)
    causal = np.tril(np.ones((6, PROMPT + 6), bool), PROMPT)
    positions = text_positions(PROMPT, 6, 0)
    implicit = networks.extend(networks.embed(tokens), positions, prompt())
    explicit = networks.extend(networks.embed(tokens), positions, prompt(), mask=causal)
    np.testing.assert_array_equal(implicit.logits, explicit.logits)


def test_logits_only_of_the_rows_asked_for(networks, prompt):
    tokens, positions = np.arange(30, 35), text_positions(PROMPT, 5, 0)
    everything = networks.extend(networks.embed(tokens), positions, prompt())
    some = networks.extend(networks.embed(tokens), positions, prompt(), logit_rows=np.array([4, 1]))
    assert everything.logits.shape == (5, 4454) and some.taps.shape == (5, 192)
    np.testing.assert_allclose(some.logits, everything.logits[[4, 1]], atol=1e-5)
    none = networks.extend(networks.embed(tokens), positions, prompt(), logit_rows=np.array([], int))
    assert none.logits.shape == (0, 4454)


def test_truncated_cache_goes_on_as_if_nothing_had_been(networks, prompt):
    token, position = networks.embed(np.array([77])), text_positions(PROMPT, 1, 0)
    cache = prompt()
    networks.extend(networks.embed(np.arange(5)), text_positions(PROMPT, 5, 0), cache)
    cache.truncate(PROMPT)
    again = networks.extend(token, position, cache)
    np.testing.assert_allclose(again.logits, networks.extend(token, position, prompt()).logits, atol=1e-6)


def test_action_head_sees_only_the_visible_rows(networks, prompt):
    noise = np.random.default_rng(5).standard_normal((64, 2), np.float32)
    positions = text_positions(PROMPT, 64, 0)
    cache = prompt()
    before = networks.act(noise, positions, cache, visible=PROMPT)
    networks.extend(networks.embed(np.arange(4)), text_positions(PROMPT, 4, 0), cache)
    np.testing.assert_array_equal(networks.act(noise, positions, cache, visible=PROMPT), before)
    assert np.abs(networks.act(noise, positions, cache, visible=cache.length) - before).max() > 1e-3


def test_images_of_different_sizes_do_not_touch_each_other(networks):
    random = np.random.default_rng(7)
    grids = np.array([[1, 4, 8], [1, 4, 8], [1, 2, 6], [1, 4, 8]])
    patches = random.uniform(-1, 1, (int(grids.prod(1).sum()), 1536)).astype(np.float32)
    together = networks.encode_images(patches, grids)
    starts = np.concatenate([[0], np.cumsum(grids.prod(1))])
    for index, grid in enumerate(grids):
        alone = networks.encode_images(patches[starts[index] : starts[index + 1]], grid[None])
        tokens = slice(starts[index] // 4, starts[index + 1] // 4)
        np.testing.assert_allclose(together.embeddings[tokens], alone.embeddings, atol=1e-5)
        np.testing.assert_allclose(together.deepstack[:, tokens], alone.deepstack, atol=1e-5)


def test_full_cache_is_an_error_and_changes_nothing(networks):
    cache = networks.new_cache(4)
    with pytest.raises(ValueError, match="5 tokens do not fit a capacity of 4"):
        networks.extend(networks.embed(np.arange(5)), text_positions(0, 5, 0), cache)
    assert cache.length == 0
