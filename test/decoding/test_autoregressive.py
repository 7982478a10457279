import numpy as np

from specdrive_ros.decoding.autoregressive import AutoregressiveDecoder
from specdrive_ros.decoding.choice import Sampler, greedy


def test_greedy_tokens_and_rows_are_the_reference_s(networks, rules, state, arrays):
    reasoning = AutoregressiveDecoder(networks, rules(24)).decode(state)
    expected = arrays("expected_greedy")["sequence_with_stop"][0, 205:220]  # it runs one token further
    assert reasoning.token_ids == tuple(expected)
    assert not reasoning.truncated and reasoning.target_passes == 15
    offset = int(arrays("expected_kv")["offset"])
    assert state.cache.length == offset  # the row of <|traj_future_start|> is the last
    for layer in (0, 3):
        keys = state.cache.rows[layer, :offset, 0].transpose(1, 0, 2)
        np.testing.assert_allclose(keys, arrays("expected_kv")[f"key_{layer}"][0], atol=1e-4)


def test_reasoning_that_fits_exactly_is_not_truncated(networks, rules, state):
    reasoning = AutoregressiveDecoder(networks, rules(15)).decode(state)
    assert len(reasoning.token_ids) == 15 and not reasoning.truncated


def test_limit_closes_the_reasoning(networks, rules, state, tokenizer, arrays):
    reasoning = AutoregressiveDecoder(networks, rules(9)).decode(state)
    free = tuple(arrays("expected_greedy")["tokens"][:7])
    assert reasoning.token_ids == (*free, tokenizer.cot_end, tokenizer.traj_future_start)
    assert reasoning.truncated and reasoning.target_passes == 8  # the two closing tokens share a pass
    assert state.cache.length == 205 + 9


def test_forced_tokens_leave_their_rows(networks, rules, state, tokenizer, prompt_end):
    """The cache of a closed reasoning is that of the same tokens written one by one."""
    reasoning = AutoregressiveDecoder(networks, rules(6)).decode(state)
    rows, logits, taps = prompt_end
    alone = networks.new_cache(rows.shape[1] + 6)
    alone.append(rows)
    for token in reasoning.token_ids:
        positions = np.full((3, 1), alone.length + state.rope_delta)
        networks.extend(networks.embed(np.array([token])), positions, alone)
    np.testing.assert_allclose(state.cache.rows[:, : alone.length], alone.rows, atol=1e-4)


def test_end_of_turn_closes_the_reasoning(networks, rules, state, tokenizer):
    end_of_turn = tokenizer.base_ids["<|im_end|>"]
    choices = iter([300, 301, end_of_turn])
    reasoning = AutoregressiveDecoder(networks, rules(24), lambda logits: next(choices)).decode(state)
    assert reasoning.token_ids == (300, 301, tokenizer.cot_end, tokenizer.traj_future_start)
    assert reasoning.truncated


def test_sampling_repeats_with_its_seed_and_differs_from_greedy(networks, rules, prompt_end, state):
    rows, logits, taps = prompt_end

    def decode(choose):
        state.cache.truncate(205)
        state.logits = logits.copy()
        return AutoregressiveDecoder(networks, rules(24), choose).decode(state).token_ids

    assert decode(Sampler(seed=5)) == decode(Sampler(seed=5))
    assert len({decode(Sampler(seed=seed)) for seed in range(4)} | {decode(greedy)}) > 1
