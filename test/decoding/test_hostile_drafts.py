"""One kind of malice at a time, in every pass: answer, mark of truncation and cache stay those of plain decoding."""

from dataclasses import dataclass

import numpy as np
import pytest

from specdrive_ros.decoding.autoregressive import AutoregressiveDecoder
from specdrive_ros.decoding.choice import Sampler, softmax
from specdrive_ros.decoding.speculative import SpeculativeDecoder
from specdrive_ros.decoding.token_tree import TokenTree
from specdrive_ros.decoding.verification import RejectionSampler
from specdrive_ros.draft.company import Company
from specdrive_ros.safety.deadline import NANOSECONDS_PER_MS, DeadlinePace
from specdrive_ros.safety.stage_budgets import StageBudgets

from .toy_target import VOCABULARY, ToyTarget, toy_rules, toy_state


@dataclass(frozen=True)
class Unchecked(TokenTree):
    """A tree that checks nothing of itself."""

    def __post_init__(self):
        pass


def unchecked(tokens, parents, log_probs=None, proposers=()) -> TokenTree:
    log_probs = np.zeros(len(tokens)) if log_probs is None else log_probs
    return Unchecked(np.array(tokens), np.array(parents), np.array(log_probs), proposers)


def tree(tokens, parents, log_probs=None) -> TokenTree:
    return TokenTree(np.array(tokens), np.array(parents), np.zeros(len(tokens)) if log_probs is None else log_probs)


KEPT: list[TokenTree] = []


def changed_behind_its_back() -> TokenTree:
    """A tree that is right, but the draft still holds it and wrote another parent into it."""
    KEPT.append(proposal := TokenTree.chain([1, 2, 3]))
    for each in KEPT:
        each.parents.setflags(write=True)
        each.parents[:] = [2, 0, 1]
    return proposal


FAULTS = {  # what makes no tree, or none that can be run: counted as a fault of the draft
    "raises": lambda: 1 / 0,
    "recursion": lambda: (lambda again: again(again))(lambda again: again(again)),
    "nothing": lambda: None,
    "tokens": lambda: [1, 2, 3],
    "above the vocabulary": lambda: tree([VOCABULARY], [-1]),
    "far above it": lambda: tree(np.array([2**63 + 5], np.uint64), [-1]),
    "below it": lambda: tree([-1, 2], [-1, 0]),
    "no whole number": lambda: tree([1.5], [-1]),
    "not a number": lambda: tree([1], [-1], np.array([np.nan])),
    "endless probability": lambda: tree([1], [-1], np.array([np.inf])),
    "too many": lambda: tree(list(range(8)) * 2, [-1] * 8 + [0] * 8),
    "cycle": lambda: tree([1, 2], [1, 0]),
    "its own parent": lambda: tree([1], [0]),
    "parent that comes later": lambda: tree([1, 2, 3], [-1, 2, 0]),
    "parent that is not there": lambda: tree([1, 2], [-1, 7]),
    "parent below the root": lambda: tree([1, 2], [-1, -2]),
    "one child twice": lambda: tree([1, 1], [-1, -1]),
    "one grandchild twice": lambda: tree([1, 4, 4], [-1, 0, 0]),
    "unchecked cycle": lambda: unchecked([1, 2], [1, 0]),
    "unchecked parent": lambda: unchecked([1, 2], [-1, 7]),
    "unchecked twins": lambda: unchecked([1, 1, 1], [-1, -1, -1]),
    "unchecked shapes": lambda: unchecked([1, 2, 3], [-1]),
    "unchecked proposers": lambda: unchecked([1, 2], [-1, 0], proposers=("a",)),
    "proposers that are no names": lambda: unchecked([1, 2], [-1, 0], proposers=([], [])),
    "changed behind its back": changed_behind_its_back,
}
LIES = {  # trees that can be run and say what is not so
    "certain of everything": lambda: tree([*range(8)], [-1] * 8, np.zeros(8)),
    "more than certain": lambda: tree([3, 4], [-1, 0], np.array([700.0, 900.0])),
    "never": lambda: tree([3, 4], [-1, 0], np.array([-1e300, -1e300])),
    "a child likelier than its parent": lambda: tree([3, 4, 5], [-1, 0, 1], np.array([-50.0, -1.0, 0.0])),
    "only ends": lambda: tree([8, 9, 10], [-1, 0, 0]),
    "what may not be written": lambda: tree([11, 11, 11], [-1, 0, 1]),
    "nothing at all": lambda: TokenTree.empty(),
}


class Hostile:
    name = "hostile"

    def __init__(self, propose, begin=lambda: None):
        self._propose, self.begin = propose, begin

    def propose(self, context, nodes):
        return self._propose()


def decoded(draft, target, limit=24, **more):
    state = toy_state(target)
    return SpeculativeDecoder(target, toy_rules(limit), draft, nodes=11, **more).decode(state), state


def assert_plain(written, state, target, limit=24):
    expected = toy_state(target)
    reasoning = AutoregressiveDecoder(target, toy_rules(limit)).decode(expected)
    assert written.token_ids == reasoning.token_ids and written.truncated == reasoning.truncated
    length = expected.cache.length
    assert state.cache.length == length
    np.testing.assert_array_equal(state.cache.rows[:, :length], expected.cache.rows[:, :length])
    return reasoning


@pytest.mark.parametrize("kind", FAULTS)
@pytest.mark.parametrize("company", [False, True])
def test_a_fault_costs_passes_and_nothing_else(kind, company):
    for seed in range(4):
        draft = Hostile(FAULTS[kind])
        written, state = decoded(Company([draft]) if company else draft, target := ToyTarget(seed))
        reasoning = assert_plain(written, state, target)
        assert written.target_passes <= reasoning.target_passes
        if not company:  # which takes its members' faults upon itself
            asked = written.target_passes - (1 if len(written.token_ids) > 1 else 0)
            assert written.draft_faults >= asked > 0 and written.proposed == 0 and not written.drafted


@pytest.mark.parametrize("kind", LIES)
@pytest.mark.parametrize("company", [False, True])
def test_a_lie_is_found_out(kind, company):
    for seed in range(6):
        draft = Hostile(LIES[kind])
        for limit in (3, 24):
            written, state = decoded(Company([draft]) if company else draft, target := ToyTarget(seed), limit)
            assert_plain(written, state, target, limit)
            assert written.draft_faults == 0


@pytest.mark.parametrize("company", [False, True])
def test_a_draft_that_cannot_even_begin(company):
    draft = Hostile(lambda: TokenTree.chain([1]), begin=lambda: 1 / 0)
    target = ToyTarget(2)
    assert_plain(*decoded(Company([draft]) if company else draft, target), target)


def test_whoever_stops_the_program_is_obeyed():
    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        decoded(Hostile(interrupted), ToyTarget(1))


def test_what_a_draft_is_shown_cannot_be_written_to():
    class Scribbler(Hostile):
        def propose(self, context, nodes):
            for array in (context.prompt_ids, context.taps, context.positions):
                with pytest.raises(ValueError, match="read-only"):
                    array[...] = 0
            return TokenTree.empty()

    target = ToyTarget(3)
    written, state = decoded(Scribbler(None), target)
    assert_plain(written, state, target)
    assert written.draft_faults == 0


def test_a_draft_that_takes_too_long_shortens_the_reasoning_by_the_deadline():
    """Whoever never comes back is met at the deadline by the node's watch: test/ros/test_deadlines.py."""
    clock = [0]
    target = ToyTarget(1)

    class Slow(Hostile):
        def propose(self, context, nodes):
            clock[0] += 60 * NANOSECONDS_PER_MS
            return TokenTree.empty()

    pace = DeadlinePace(StageBudgets(), lambda: clock[0])
    pace.begin(100 * NANOSECONDS_PER_MS)
    state = toy_state(target)
    written = SpeculativeDecoder(target, toy_rules(), Slow(None)).decode(state, pace)
    plain = assert_words_of_plain(written, target)
    assert written.truncated and len(written.token_ids) < len(plain) and written.target_passes <= 3


def assert_words_of_plain(written, target) -> tuple[int, ...]:
    """All words but the two that close it."""
    plain = AutoregressiveDecoder(target, toy_rules()).decode(toy_state(target)).token_ids
    assert written.token_ids[:-2] == plain[: len(written.token_ids) - 2]
    return plain


@pytest.mark.parametrize("kind", LIES)
def test_no_lie_changes_what_is_drawn(kind):
    """Chi-square over 3,000 first words against the target's distribution."""
    from scipy.stats import chisquare

    target, rules, sampler, draws = ToyTarget(3, sharpness=1.5), toy_rules(2), Sampler(0.8, 0.95), 3000
    logits = rules.allowed(toy_state(target).logits)
    expected = softmax(sampler.warp(logits))
    drawn = np.zeros(VOCABULARY)
    choose = RejectionSampler(sampler, seed=5)
    proposed = list(dict.fromkeys(LIES[kind]().tokens.tolist()))
    for _ in range(draws):
        drawn[choose(logits, proposed)] += 1
    often = expected * draws >= 5
    assert (drawn[expected == 0] == 0).all()
    rest = drawn[~often].sum(), draws * expected[~often].sum()
    observed, wanted = drawn[often], draws * expected[often]
    if rest[1] > 1:
        observed, wanted = np.append(observed, rest[0]), np.append(wanted, rest[1])
    assert chisquare(observed, wanted * observed.sum() / wanted.sum()).pvalue > 1e-3
