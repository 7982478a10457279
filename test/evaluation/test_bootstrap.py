import numpy as np
import pytest

from specdrive_ros.evaluation.bootstrap import difference_with_interval, mean_with_interval


def ones(count):
    return np.ones(count)


def test_the_interval_of_a_mean_is_that_of_its_standard_error():
    values = np.random.default_rng(1).normal(5.0, 2.0, 400)
    figure = mean_with_interval(values, ones(400))
    error = values.std() / np.sqrt(400)
    assert figure["mean"] == pytest.approx(values.mean(), abs=1e-4) and figure["n"] == 400
    assert figure["low"] == pytest.approx(values.mean() - 1.96 * error, abs=0.03)
    assert figure["high"] == pytest.approx(values.mean() + 1.96 * error, abs=0.03)


def test_a_share_is_of_all_that_was_asked_not_the_mean_of_shares():
    figure = mean_with_interval(np.array([1.0, 0.0]), np.array([1.0, 9.0]))
    assert figure["mean"] == 0.1


def test_samples_that_say_nothing_do_not_count():
    figure = mean_with_interval(np.array([1.0, 0.0, 0.0]), np.array([1.0, 1.0, 0.0]))
    assert figure["mean"] == 0.5 and figure["n"] == 2
    assert mean_with_interval(np.zeros(3), np.zeros(3)) == {"mean": None, "low": None, "high": None, "n": 0}


def test_a_single_sample_has_no_interval():
    assert mean_with_interval(ones(1), ones(1)) == {"mean": 1.0, "low": None, "high": None, "n": 1}


def test_a_difference_is_paired():
    """Samples differ much, the two measures of one sample by 0.1 each time: the pairs tell, the means would not."""
    hard = np.random.default_rng(2).normal(10.0, 5.0, 50)
    figure = difference_with_interval(hard + 0.1, ones(50), hard, ones(50))
    assert figure["mean"] == pytest.approx(0.1) and figure["low"] == pytest.approx(0.1, abs=1e-3)
    assert mean_with_interval(hard, ones(50))["high"] - mean_with_interval(hard, ones(50))["low"] > 1.0


def test_a_difference_leaves_out_what_one_side_does_not_say():
    figure = difference_with_interval(np.array([5.0, 9.0]), ones(2), np.array([3.0, 0.0]), np.array([1.0, 0.0]))
    assert figure["mean"] == 2.0 and figure["n"] == 1
    assert difference_with_interval(ones(2), ones(2), np.zeros(2), np.zeros(2))["mean"] is None


def test_equal_inputs_give_equal_figures():
    values = np.random.default_rng(3).random(30)
    assert mean_with_interval(values, ones(30)) == mean_with_interval(values.copy(), ones(30))


def test_seeds_and_samples_are_both_drawn_again():
    """Three models that agree on every sample: the interval is that of the samples. That differ: it is wider."""
    from specdrive_ros.evaluation.bootstrap import crossed_difference, crossed_mean, mean_with_interval

    parts, wholes = np.random.default_rng(0).normal(5.0, 1.0, 50), np.ones(50)
    same = crossed_mean(np.stack([parts] * 3), np.stack([wholes] * 3))
    assert same == mean_with_interval(parts, wholes) | {"n": 50}
    apart = crossed_mean(np.stack([parts - 1, parts, parts + 1]), np.stack([wholes] * 3))
    assert apart["mean"] == same["mean"]
    assert apart["high"] - apart["low"] > 2 * (same["high"] - same["low"])
    ours, theirs = np.stack([parts + 1] * 3), np.stack([parts] * 3)
    paired = crossed_difference(ours, np.ones((3, 50)), theirs, np.ones((3, 50)))
    assert (paired["mean"], paired["low"], paired["high"]) == pytest.approx((1.0, 1.0, 1.0), abs=1e-3)
