"""Budgets are what was measured; the pace narrows, then closes, and leaves time for what comes after."""

import pytest

from specdrive_ros.safety.deadline import DeadlinePace, Policy
from specdrive_ros.safety.stage_budgets import REMEMBERED, Budget, StageBudgets

MS = 1_000_000


class Clock:
    """Steady nanoseconds, set by the test in milliseconds."""

    def __init__(self):
        self.ms = 0.0

    def __call__(self) -> int:
        return round(self.ms * MS)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def budgets():
    """Passes: 1 row 4 ms, 2 rows 5 ms, 8 rows 10 ms, 16 rows 20 ms; action 20, check 1, publish 2 ms."""
    budgets = StageBudgets()
    for rows, milliseconds in ((1, 4.0), (2, 5.0), (8, 10.0), (16, 20.0)):
        budgets.note_pass(rows, milliseconds)
    budgets.note({"action": 20.0, "check": 1.0, "publish": 2.0, "vision": 30.0})
    return budgets


def test_a_budget_forgives_a_hiccup_and_believes_a_slow_machine():
    budget = Budget()
    for _ in range(REMEMBERED):
        budget.note(10.0)
    budget.note(500.0)
    assert budget.ms == pytest.approx(10.0)
    for _ in range(10):
        budget.note(40.0)
    assert budget.ms >= 40.0
    for _ in range(REMEMBERED):
        budget.note(12.0)
    assert budget.ms == pytest.approx(12.0)


def test_widths_never_run_take_the_nearest_that_was():
    budgets = StageBudgets()
    assert budgets.pass_ms(7) == 0.0 and budgets.stage_ms("action") == 0.0
    budgets.note_pass(16, 20.0)
    assert budgets.pass_ms(1) == budgets.pass_ms(200) == 20.0
    budgets.note_pass(1, 4.0)
    assert budgets.pass_ms(2) == 4.0 and budgets.pass_ms(9) == 20.0


def test_without_a_deadline_nothing_is_shortened(budgets, clock):
    pace = DeadlinePace(budgets, clock)
    pace.begin(None)
    clock.ms = 1e6
    assert pace.nodes(60) == 60 and not pace.must_close() and not pace.shortened


def test_first_narrower_then_closed(budgets, clock):
    """25 ms are reserved: action 20, check 1, publish 2, margin 2; the closing pass takes 5."""
    pace = DeadlinePace(budgets, clock)
    pace.begin(100 * MS)
    clock.ms = 40.0
    assert pace.nodes(15) == 15 and not pace.must_close() and not pace.shortened
    clock.ms = 55.0  # 15 ms for a pass
    assert pace.nodes(15) == 7 and pace.shortened and not pace.must_close()
    clock.ms = 65.5  # 4.5 ms
    assert pace.nodes(15) == 1 and not pace.must_close()
    clock.ms = 67.0  # a pass of one word and the closing one no longer fit
    assert pace.must_close()


def test_closing_leaves_time_for_what_comes_after(budgets, clock):
    """Driven with the durations it believes in, the reasoning ends before action, check and publish must begin."""
    for begun_ms in range(0, 100, 7):
        pace = DeadlinePace(budgets, clock)
        pace.begin(100 * MS)
        clock.ms = float(begun_ms)
        while not pace.must_close():
            clock.ms += budgets.pass_ms(pace.nodes(15) + 1)
        clock.ms += budgets.pass_ms(2)
        if begun_ms < 60:
            assert clock.ms + 20.0 + 1.0 + 2.0 <= 100.0


def test_nothing_known_nothing_reserved(clock):
    pace = DeadlinePace(StageBudgets(), clock)
    pace.begin(100 * MS)
    assert pace.nodes(15) == 15 and not pace.must_close()
    clock.ms = 99.0
    assert pace.must_close()


def test_policies_do_more_and_more():
    assert [policy.shortens for policy in Policy] == [False, True, True, True]
    assert [policy.stands_in for policy in Policy] == [False, False, True, True]


def test_the_action_head_is_shortened_only_where_all_of_it_would_be_late(budgets, clock):
    """5 ms are reserved behind it: check 1, publish 2, margin 2; its own steps take 20."""
    pace = DeadlinePace(budgets, clock)
    pace.begin(100 * MS)
    clock.ms = 75.0
    assert not pace.must_shorten_action() and not pace.shortened and not pace.action_shortened
    clock.ms = 75.5
    assert pace.must_shorten_action() and pace.shortened and pace.action_shortened
    pace.begin(200 * MS)
    assert not pace.action_shortened and not pace.must_shorten_action()
    pace.begin(None)
    assert not pace.must_shorten_action()


def test_an_action_head_never_measured_has_all_its_steps_until_the_deadline(clock):
    pace = DeadlinePace(StageBudgets(), clock)
    pace.begin(100 * MS)
    clock.ms = 97.0
    assert not pace.must_shorten_action()
    clock.ms = 99.0
    assert pace.must_shorten_action()
