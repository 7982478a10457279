import numpy as np

from specdrive_ros.decoding.teacher_forcing import greedy_choices


def test_the_reference_s_answer_is_chosen_again_at_every_place(networks, rules, state, arrays):
    answer = tuple(int(token) for token in arrays("expected_greedy")["sequence_with_stop"][0, 205:220])
    before = state.cache.length
    assert greedy_choices(networks, rules(24), state, answer) == list(answer)
    assert state.cache.length == before + len(answer) - 1


def test_another_answer_is_followed_by_other_choices_only_after_it_differs(networks, rules, state, arrays, tokenizer):
    answer = [int(token) for token in arrays("expected_greedy")["sequence_with_stop"][0, 205:220]]
    changed = [*answer[:5], answer[5] + 1, *answer[6:]]
    choices = greedy_choices(networks, rules(24), state, tuple(changed))
    assert choices[:6] == answer[:6] and len(choices) == len(answer)
    forbidden = np.flatnonzero(rules(24).forbidden)
    assert not np.isin(choices, forbidden).any()


def test_an_answer_of_one_token_needs_no_pass(networks, rules, state):
    before = state.cache.length
    assert len(greedy_choices(networks, rules(24), state, (7,))) == 1 and state.cache.length == before
