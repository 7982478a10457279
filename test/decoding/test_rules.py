import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specdrive_ros.decoding.rules import ReasoningRules
from specdrive_ros.errors import InputError

WORD, END, START, TURN = 1, 7, 8, 9


def make(limit: int) -> ReasoningRules:
    return ReasoningRules(
        np.zeros(10, bool), cot_end=END, future_start=START, end_of_turn=TURN, max_new_tokens=limit
    )


def write(rules: ReasoningRules, choices) -> tuple[list[int], bool]:
    written, truncated = [], False
    for choice in choices:
        if rules.ended(written):
            break
        tokens, forced = rules.settle(choice, written)
        written += tokens
        truncated |= forced
    return written, truncated


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # the machine may be busy
@given(st.lists(st.integers(0, 9), min_size=30, max_size=30), st.integers(2, 20))
def test_every_reasoning_ends_within_its_limit(choices, limit):
    written, truncated = write(make(limit), choices)
    assert written[-1] == START and written.count(START) == 1
    assert len(written) <= limit and TURN not in written
    if not truncated:
        assert written == choices[: len(written)]


def test_limit_after_the_end_of_the_text_closes_with_one_token():
    assert write(make(5), [WORD, WORD, END, WORD, WORD]) == ([WORD, WORD, END, WORD, START], True)


def test_the_target_s_own_end_at_the_limit_is_no_truncation():
    assert write(make(4), [WORD, WORD, END, START]) == ([WORD, WORD, END, START], False)


def test_trajectory_bins_and_entries_beyond_the_tokenizer_are_forbidden(tokenizer):
    rules = ReasoningRules.of(tokenizer, tokenizer.size + 2, 24)
    allowed = rules.allowed(np.zeros((3, tokenizer.size + 2), np.float32))
    assert np.isneginf(allowed[:, tokenizer.base_size : tokenizer.base_size + 4000]).all()
    assert np.isneginf(allowed[:, tokenizer.size :]).all()
    assert np.isfinite(allowed[:, [0, tokenizer.base_size - 1, tokenizer.cot_end]]).all()


def test_limit_must_hold_the_closing_tokens():
    with pytest.raises(InputError, match="must be at least 2"):
        make(1)
