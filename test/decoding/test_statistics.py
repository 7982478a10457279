import pytest

from specdrive_ros.decoding.statistics import accepted_length, routine_share


@pytest.mark.parametrize(
    "tokens, passes, reasonings, length, share",
    [
        (15, 15, 1, 1.0, 0.0),  # plain decoding
        (15, 3, 1, 5.0, 0.8),
        (30, 0, 2, 15.0, 1.0),  # all rode along in the prefill
        (0, 0, 0, 0.0, 0.0),  # nothing was written
    ],
)
def test_lengths_and_shares(tokens, passes, reasonings, length, share):
    assert accepted_length(tokens, passes, reasonings) == length
    assert routine_share(tokens, passes) == pytest.approx(share)
