"""A reasoning that is hurried: closed early, marked, with a cache the action head can read; never other words."""

import pytest

from specdrive_ros.decoding.autoregressive import AutoregressiveDecoder
from specdrive_ros.decoding.speculative import SpeculativeDecoder

from .toy_drafts import Oracle
from .toy_target import FUTURE_START, ToyTarget, toy_rules, toy_state


class ClosesAfter:
    """Lets so many passes run, each at most `widest` nodes wide."""

    def __init__(self, passes: int, widest: int = 100):
        self.passes, self.widest, self.rows = passes, widest, []

    def nodes(self, asked: int) -> int:
        return min(asked, self.widest)

    def must_close(self) -> bool:
        return len(self.rows) >= self.passes

    def note_pass(self, rows: int, milliseconds: float) -> None:
        assert milliseconds >= 0
        self.rows.append(rows)


@pytest.mark.parametrize("passes", [0, 1, 3])
def test_plain_decoding_is_closed_after_the_words_it_had_time_for(passes):
    target, rules = ToyTarget(1), toy_rules()
    free = AutoregressiveDecoder(target, rules).decode(toy_state(target))
    state, pace = toy_state(target), ClosesAfter(passes)
    hurried = AutoregressiveDecoder(target, rules).decode(state, pace)
    assert hurried.token_ids == (*free.token_ids[:passes], rules.cot_end, FUTURE_START)
    assert hurried.truncated and hurried.target_passes == passes + 1 and pace.rows[-1] == 2
    assert state.cache.length == toy_state(target).cache.length + len(hurried.token_ids)


@pytest.mark.parametrize("passes", [0, 1, 2])
def test_speculation_is_closed_likewise_and_its_words_are_the_target_s(passes):
    target, rules = ToyTarget(1), toy_rules()
    free = AutoregressiveDecoder(target, rules).decode(toy_state(target))
    state = toy_state(target)
    decoder = SpeculativeDecoder(target, rules, Oracle(free.token_ids), nodes=3)
    hurried = decoder.decode(state, ClosesAfter(passes))
    words = hurried.token_ids[:-2]
    assert hurried.token_ids[-2:] == (rules.cot_end, FUTURE_START)
    assert words == free.token_ids[: len(words)] and len(words) == 4 * passes
    assert hurried.truncated and state.cache.length == toy_state(target).cache.length + len(hurried.token_ids)
    decoder.forget()
    assert decoder.previous == ()


def test_narrow_passes_change_the_passes_not_the_words():
    target, rules = ToyTarget(1), toy_rules()
    free = AutoregressiveDecoder(target, rules).decode(toy_state(target))
    pace = ClosesAfter(100, widest=1)
    narrow = SpeculativeDecoder(target, rules, Oracle(free.token_ids), nodes=7).decode(toy_state(target), pace)
    assert narrow.token_ids == free.token_ids and narrow.truncated == free.truncated
    assert max(pace.rows) == 2 and len(pace.rows) == narrow.target_passes


def test_a_reasoning_that_ends_by_itself_is_not_marked():
    """Time runs out in the very pass that ends it."""
    for target in map(ToyTarget, range(12)):
        free = AutoregressiveDecoder(target, toy_rules()).decode(toy_state(target))
        if not free.truncated:
            break
    assert not free.truncated, "one of these targets ends by itself"
    decoder = SpeculativeDecoder(target, toy_rules(), Oracle(free.token_ids), nodes=3)
    needed = decoder.decode(toy_state(target)).target_passes
    written = decoder.decode(toy_state(target), ClosesAfter(needed - 1))
    again = decoder.decode(toy_state(target), ClosesAfter(needed))
    assert again.token_ids == free.token_ids and not again.truncated
    assert written.token_ids[: len(written.token_ids) - 2] == free.token_ids[: len(written.token_ids) - 2]
