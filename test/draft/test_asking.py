import numpy as np
import pytest

from specdrive_ros.draft.asking import AskingCost, estimate, from_two, pays
from specdrive_ros.errors import InputError


def test_a_draft_pays_when_it_makes_more_tokens_a_millisecond():
    assert pays(4.0, 1.5, 2.0, 1.0, draft_ms=0.4)
    assert not pays(4.0, 1.5, 2.0, 1.0, draft_ms=0.6)


def test_two_measurements_make_a_cost():
    cost = from_two((5, 105), (1.4, 3.4))
    assert (cost.ms, cost.row_ms) == (pytest.approx(1.32), pytest.approx(0.02))
    assert cost.of(105, proposals=1) == pytest.approx(3.4)
    assert from_two((5, 105), (1.4, 1.2)) == AskingCost(1.4, 0.0), "more rows never count as cheaper"


def test_more_passes_and_layers_cost_more():
    few, many = estimate(1 / 8, 2, 1.0, 0.1), estimate(1 / 8, 8, 1.0, 0.1)
    assert few.ms < many.ms and estimate(1 / 4, 2, 1.0, 0.1).row_ms > few.row_ms > 0


@pytest.mark.parametrize("wrong", [(-1.0, 0.0), (np.nan, 0.0), (0.0, np.inf)])
def test_wrong_costs(wrong):
    with pytest.raises(InputError, match="cost of a draft"):
        AskingCost(*wrong)
