"""The answer is that of plain decoding, whatever the draft does; so is the cache, and so is the plan."""

from collections import Counter

import numpy as np
import pytest

from specdrive_ros.decoding.autoregressive import AutoregressiveDecoder
from specdrive_ros.decoding.choice import Sampler, softmax
from specdrive_ros.decoding.speculative import SpeculativeDecoder
from specdrive_ros.decoding.state import Carried, DecodingState
from specdrive_ros.decoding.token_tree import TokenTree
from specdrive_ros.decoding.verification import RejectionSampler
from specdrive_ros.target.rope import text_positions

from .toy_drafts import Oracle, Rubbish, random_tree
from .toy_target import FUTURE_START, PROMPT, ChoosingTarget, ToyTarget, toy_rules, toy_state

DRAWS = 2000


def plain(target, limit=24):
    state = toy_state(target)
    return AutoregressiveDecoder(target, toy_rules(limit)).decode(state), state


def assert_same_end(state: DecodingState, expected: DecodingState):
    length = expected.cache.length
    assert state.cache.length == length
    np.testing.assert_array_equal(state.cache.rows[:, :length], expected.cache.rows[:, :length])


def test_an_oracle_needs_one_pass_a_block():
    target = ToyTarget(1)
    reasoning, expected = plain(target)
    state = toy_state(target)
    decoder = SpeculativeDecoder(target, toy_rules(), Oracle(reasoning.token_ids), nodes=7)
    written = decoder.decode(state)
    assert written.token_ids == reasoning.token_ids and len(written.token_ids) > 8
    assert written.target_passes == -(-len(written.token_ids) // 8) or written.truncated
    assert written.drafted == {"oracle": len(written.token_ids) - written.target_passes} or written.truncated
    assert_same_end(state, expected)


@pytest.mark.parametrize("limit", [2, 3, 5, 9, 24])
def test_greedy_answers_are_those_of_plain_decoding(limit):
    """Right, half-right and random drafts on 12 targets: words, mark of truncation, cache."""
    for seed in range(12):
        target = ToyTarget(seed)
        reasoning, expected = plain(target, limit)
        for draft in (Oracle(reasoning.token_ids, wrong=0.5, seed=seed), Rubbish(seed)):
            state = toy_state(target)
            written = SpeculativeDecoder(target, toy_rules(limit), draft, nodes=11).decode(state)
            assert written.token_ids == reasoning.token_ids and written.truncated == reasoning.truncated
            assert written.target_passes <= reasoning.target_passes
            assert_same_end(state, expected)


@pytest.mark.parametrize("limit", [2, 5, 24])
def test_a_target_that_chooses_by_itself_writes_the_same(limit):
    """Token numbers in place of logits, plainly and ahead, behind a prompt that has logits."""
    for seed in range(12):
        target = ChoosingTarget(seed)
        reasoning, expected = plain(ToyTarget(seed), limit)
        found, state = plain(target, limit)
        assert found.token_ids == reasoning.token_ids and found.truncated == reasoning.truncated
        assert state.logits is None and state.choice is not None
        assert_same_end(state, expected)
        state = toy_state(target)
        draft = Oracle(reasoning.token_ids, wrong=0.5, seed=seed)
        written = SpeculativeDecoder(target, toy_rules(limit), draft, nodes=11).decode(state)
        assert written.token_ids == reasoning.token_ids and written.truncated == reasoning.truncated
        assert_same_end(state, expected)


def test_who_draws_asks_for_logits():
    target = ChoosingTarget(1)
    draws = AutoregressiveDecoder(target, toy_rules(), Sampler(seed=3))
    ahead = SpeculativeDecoder(target, toy_rules(), Oracle(()), choose=RejectionSampler(Sampler(seed=3)))
    assert draws.forbidden is None and ahead.forbidden is None
    assert not draws.reads_taps and ahead.reads_taps  # who says nothing of it gets them
    state = toy_state(target)
    draws.decode(state)
    assert state.choice is None and state.logits.shape == (12,)


def test_forced_ends_are_among_the_cases():
    ends = {plain(ToyTarget(seed), limit)[0].truncated for seed in range(12) for limit in (5, 24)}
    assert ends == {True, False}


def test_a_broken_draft_is_counted_and_logged_once(caplog):
    target, faults = ToyTarget(1), 0
    for seed in range(8):
        faults += SpeculativeDecoder(target, toy_rules(), Rubbish(seed)).decode(toy_state(target)).draft_faults
    assert faults > 5
    caplog.clear()
    decoder = SpeculativeDecoder(target, toy_rules(), Raises())
    assert decoder.decode(toy_state(target)).draft_faults == decoder.decode(toy_state(target)).draft_faults > 1
    assert [record.message for record in caplog.records] == ["draft raises: no proposal (OSError: gone)"]


class Raises:
    name = "raises"

    def begin(self):
        pass

    def propose(self, context, nodes):
        raise OSError("gone")


def test_a_cache_without_room_for_a_tree_is_enough():
    target = ToyTarget(1)
    reasoning, _ = plain(target)
    room = len(reasoning.token_ids)
    decoder = SpeculativeDecoder(target, toy_rules(), Oracle(reasoning.token_ids), nodes=40)
    written = decoder.decode(toy_state(target, room))
    assert written.token_ids == reasoning.token_ids


def test_taps_are_every_accepted_row_once_and_in_order():
    target = ToyTarget(4)
    reasoning, _ = plain(target)
    draft = Oracle(reasoning.token_ids, wrong=0.4, seed=2)
    SpeculativeDecoder(target, toy_rules(), draft).decode(toy_state(target))
    for count, context in enumerate(draft.contexts, 1):
        taps = np.concatenate([each.taps for each in draft.contexts[:count]])
        positions = np.concatenate([each.positions for each in draft.contexts[:count]], axis=1)
        assert taps[:, 0].tolist() == [*PROMPT, *context.written[:-1]]
        np.testing.assert_array_equal(positions, [taps[:, 1]] * 3)
        assert positions[0].tolist() == list(range(2, 2 + len(taps)))
        assert context.newest_token == context.written[-1] and context.rope_delta == 2
        np.testing.assert_array_equal(context.prompt_ids, PROMPT)


def carried_state(target: ToyTarget, tokens) -> DecodingState:
    """The prompt with tokens behind it, in one pass."""
    cache = target.new_cache(len(PROMPT) + 60)
    ids = np.array([*PROMPT, *tokens])
    positions = text_positions(0, len(ids), 2)
    tree = TokenTree.chain(tokens, proposers=("carryover",) * len(tokens))
    if target.chooses:
        output = target.extend(target.embed(ids), positions, cache, forbidden=toy_rules().forbidden)
        choices = output.choices[len(PROMPT) - 1 :]
        carried = Carried(tree, None, choices[1:])
        return DecodingState(cache, None, output.taps, 2, PROMPT, positions, carried, int(choices[0]))
    output = target.extend(target.embed(ids), positions, cache)
    logits = output.logits[len(PROMPT) - 1 :]
    return DecodingState(cache, logits[0], output.taps, 2, PROMPT, positions, Carried(tree, logits[1:]))


@pytest.mark.parametrize("kind", [ToyTarget, ChoosingTarget])
@pytest.mark.parametrize("right", [0, 1, 4, None])
def test_carried_text_is_verified_in_the_prefill(right, kind):
    for seed in range(6):
        target = kind(seed)
        reasoning, expected = plain(target)
        carried = list(reasoning.token_ids)
        if right is not None and right < len(carried):
            carried[right] = (carried[right] + 1) % FUTURE_START
        state = carried_state(target, carried)
        written = SpeculativeDecoder(target, toy_rules(), Oracle((), 0), carry=True).decode(state)
        assert written.token_ids == reasoning.token_ids and written.truncated == reasoning.truncated
        assert_same_end(state, expected)
        if right is None:
            assert written.target_passes == 0 and written.drafted == {"carryover": len(carried)}


def test_what_is_carried_is_the_reasoning_before():
    target = ToyTarget(1)
    decoder = SpeculativeDecoder(target, toy_rules(), Oracle(()), carry=True)
    assert decoder.carried() == ()
    first = decoder.decode(toy_state(target))
    assert decoder.carried() == first.token_ids
    decoder.carry = False
    assert decoder.carried() == ()


class Random:
    """Proposes trees of two or three words, so that siblings are rejected and accepted."""

    name = "random"

    def __init__(self):
        self.random = np.random.default_rng(0)

    def begin(self):
        pass

    def propose(self, context, nodes):
        return random_tree(self.random, 6)


def test_sampled_answers_have_the_target_s_distribution():
    """Chi-square over 2,000 whole answers against the exact distribution; single passes: test_verification.py."""
    from scipy.stats import chisquare

    target, rules, sampler = ToyTarget(3, sharpness=1.5), toy_rules(4), Sampler(0.8, 0.9)
    exact = answer_probabilities(target, rules, sampler)
    decoder = SpeculativeDecoder(target, rules, Random(), nodes=6, choose=RejectionSampler(sampler, seed=11))
    prompt = toy_state(target)
    drawn = Counter()
    for _ in range(DRAWS):
        prompt.cache.truncate(len(PROMPT))
        state = DecodingState(prompt.cache, prompt.logits, prompt.taps, 2, PROMPT, prompt.positions)
        drawn[decoder.decode(state).token_ids] += 1
    assert set(drawn) <= set(exact)
    often = [answer for answer, probability in exact.items() if probability * DRAWS >= 5]
    observed = [drawn[answer] for answer in often]
    expected = [DRAWS * exact[answer] for answer in often]
    rest = DRAWS - sum(observed), DRAWS - sum(expected)
    assert chisquare([*observed, rest[0]], [*expected, rest[1]], sum_check=False).pvalue > 1e-3


def answer_probabilities(target, rules, sampler) -> dict[tuple[int, ...], float]:
    """Every answer plain sampling can give and how probable it is."""
    found: dict[tuple[int, ...], float] = Counter()

    def follow(written: list[int], probability: float) -> None:
        if rules.ended(written):
            found[tuple(written)] += probability
            return
        ids = np.array([*PROMPT, *written])
        output = target.extend(target.embed(ids), text_positions(0, len(ids), 2), target.new_cache(len(ids)))
        for choice, share in enumerate(softmax(sampler.warp(rules.allowed(output.logits[-1])))):
            if share > 0:
                follow(written + rules.settle(choice, written)[0], probability * share)

    follow([], 1.0)
    assert abs(sum(found.values()) - 1) < 1e-9
    return found


# The reference model


@pytest.mark.parametrize("seed", range(3))
def test_reference_tokens_cache_and_action(networks, rules, state, prompt_end, arrays, seed):
    """Half-right trees on the reference model leave its tokens, its rows and its action head's answer."""
    expected = tuple(int(token) for token in arrays("expected_greedy")["sequence_with_stop"][0, 205:220])
    draft = Oracle(expected, wrong=0.25 * seed, seed=seed)
    reasoning = SpeculativeDecoder(networks, rules(24), draft, nodes=15).decode(state)
    assert reasoning.token_ids == expected and reasoning.target_passes <= 15
    offset = int(arrays("expected_kv")["offset"])
    assert state.cache.length == offset
    for layer in (0, 3):
        keys = state.cache.rows[layer, :offset, 0].transpose(1, 0, 2)
        np.testing.assert_allclose(keys, arrays("expected_kv")[f"key_{layer}"][0], atol=1e-4)
    noise = arrays("inputs")["noise"][0]
    positions = text_positions(offset, len(noise), state.rope_delta)
    action = networks.act(noise, positions, state.cache, visible=offset)
    other = plain_state(networks, prompt_end, state.rope_delta)
    AutoregressiveDecoder(networks, rules(24)).decode(other)
    np.testing.assert_allclose(action, networks.act(noise, positions, other.cache, visible=offset), atol=1e-4)


def plain_state(networks, prompt_end, rope_delta) -> DecodingState:
    rows, logits, taps = prompt_end
    cache = networks.new_cache(rows.shape[1] + 40)
    cache.append(rows)
    return DecodingState(cache, logits.copy(), taps, rope_delta)
