import numpy as np
import pytest

from specdrive_ros.decoding.choice import Sampler, greedy
from specdrive_ros.errors import InputError


def test_scores_are_the_reference_s(arrays):
    """Temperature 0.6, then top-p 0.98, on 72 rows of logits: same tokens out, same scores."""
    expected = arrays("expected_sampled")
    sampler = Sampler(0.6, 0.98)
    for logits, scores in zip(
        expected["logits"].reshape(72, -1), expected["scores"].reshape(72, -1), strict=True
    ):
        warped = sampler.warp(logits)
        np.testing.assert_array_equal(np.isneginf(warped), np.isneginf(scores))
        kept = np.isfinite(scores)
        np.testing.assert_allclose(warped[kept], scores[kept], rtol=1e-6)


def test_draws_have_the_distribution():
    logits = np.log(np.array([0.5, 0.3, 0.15, 0.05]))
    sampler = Sampler(temperature=1.0, top_p=0.9, seed=1)
    drawn = np.bincount([sampler(logits) for _ in range(4000)], minlength=4) / 4000
    np.testing.assert_allclose(drawn, np.array([0.5, 0.3, 0.15, 0]) / 0.95, atol=0.03)


def test_a_limit_on_words_comes_before_that_on_probability():
    logits = np.log(np.array([0.4, 0.3, 0.2, 0.1]))
    assert np.isfinite(Sampler(1.0, top_p=1.0, top_k=2).warp(logits)).tolist() == [True, True, False, False]
    assert np.isfinite(Sampler(1.0, top_p=0.55, top_k=2).warp(logits)).tolist() == [True, False, False, False]
    assert np.isfinite(Sampler(1.0, top_p=0.55).warp(logits)).tolist() == [True, True, False, False]


def test_forbidden_tokens_are_never_drawn():
    sampler = Sampler(temperature=5.0, top_p=1.0)
    assert {sampler(np.array([-np.inf, 0.0, -np.inf])) for _ in range(50)} == {1}


def test_greedy_takes_the_first_of_equals():
    assert greedy(np.array([1.0, 3.0, 3.0])) == 1


@pytest.mark.parametrize("wrong",
                         [{"temperature": 0}, {"temperature": -1}, {"top_p": 0}, {"top_p": 1.5}, {"top_k": -1}])
def test_settings_out_of_range(wrong):
    with pytest.raises(InputError):
        Sampler(**wrong)
