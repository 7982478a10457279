"""The quantiles that measurements are reported by, milliseconds above all. One definition for every command.

Linear between neighbouring values, as in numpy. Knows nothing of what was measured.
"""

from collections.abc import Sequence

import numpy as np

PERCENT = {"median": 50, "p90": 90, "p99": 99, "max": 100}
REPORTED = ("median", "p99", "max")


def quantiles(
    values: Sequence[float] | np.ndarray, names: Sequence[str] = REPORTED, digits: int | None = None
) -> dict[str, float]:
    """Name -> quantile of one value or more, in the order of `names` (of `PERCENT`).

    digits: rounded to so many; None: not rounded.
    """
    found = np.percentile(np.asarray(values, np.float64), [PERCENT[name] for name in names])
    return {name: float(value) if digits is None else round(float(value), digits) for name, value in zip(names, found)}
