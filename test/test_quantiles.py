import numpy as np
import pytest

from specdrive_ros.quantiles import quantiles


def test_quantiles_by_hand():
    values = [float(value) for value in range(101, 0, -1)]
    assert quantiles(values) == {"median": 51.0, "p99": 100.0, "max": 101.0}
    assert list(quantiles(values, ("max", "p90"))) == ["max", "p90"] and quantiles(values, ["p90"]) == {"p90": 91.0}
    assert quantiles([4.0, 8.0], ["median", "p90"]) == {"median": 6.0, "p90": pytest.approx(7.6)}
    assert set(quantiles([3.25]).values()) == {3.25}


def test_rounded_only_where_asked():
    values = np.random.default_rng(0).exponential(40.0, 501)
    median, p99, largest = np.median(values), np.percentile(values, 99), values.max()
    assert quantiles(values) == {"median": median, "p99": p99, "max": largest}
    rounded = quantiles(values, digits=2)
    assert rounded == {"median": round(median, 2), "p99": round(p99, 2), "max": round(largest, 2)}
    assert all(type(value) is float for value in rounded.values()), "as JSON wants them"
