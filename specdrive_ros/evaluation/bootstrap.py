"""Means with 95 % bootstrap intervals. Knows nothing about what was measured.

A measure gives each sample a part and a whole; its mean is the sum of the parts over the sum of the wholes: (error, 1)
for a mean, (right, asked) for a share, (0, 0) for a sample that does not count. Samples must be independent of each
other. The draws depend only on the number of samples, so equal inputs give equal figures, and two measures of the same
samples are compared in pairs.
"""

from functools import lru_cache

import numpy as np

DRAWS, SEED, LEVEL = 2000, 0, 0.95
DIGITS = 4


def mean_with_interval(parts: np.ndarray, wholes: np.ndarray) -> dict:
    """parts, wholes: [n] -> {"mean", "low", "high", "n"}; n: number of samples that count; the others None if there
    are none."""
    return _summary(_ratio(parts, wholes), _drawn(parts, wholes), int(np.count_nonzero(wholes)))


def difference_with_interval(parts: np.ndarray, wholes: np.ndarray, other_parts: np.ndarray,
                             other_wholes: np.ndarray) -> dict:
    """The first mean minus the other, for the same samples [n] measured twice; samples that do not count in both are
    left out."""
    both = (wholes > 0) & (other_wholes > 0)
    ours, theirs = (parts[both], wholes[both]), (other_parts[both], other_wholes[both])
    if not both.any():
        return _summary(None, np.array([]), 0)
    return _summary(_ratio(*ours) - _ratio(*theirs), _drawn(*ours) - _drawn(*theirs), int(both.sum()))


def crossed_mean(parts: np.ndarray, wholes: np.ndarray) -> dict:
    """The same for samples measured with several trained models, [seeds, n]: both seeds and samples are resampled, so
    that the interval includes the variation between training runs. With one seed, only the samples vary."""
    return _summary(_ratio(parts, wholes), _crossed(parts, wholes), parts.shape[1])


def crossed_difference(
    parts: np.ndarray, wholes: np.ndarray, other_parts: np.ndarray, other_wholes: np.ndarray
) -> dict:
    """The first mean minus the other, for the same samples and seeds [seeds, n]."""
    return _summary(_ratio(parts, wholes) - _ratio(other_parts, other_wholes),
                    _crossed(parts, wholes) - _crossed(other_parts, other_wholes), parts.shape[1])


def _crossed(parts: np.ndarray, wholes: np.ndarray) -> np.ndarray:
    """[draws] means over resampled seeds and samples."""
    seeds, samples = (_times_drawn(count, stream) for stream, count in ((1, parts.shape[0]), (0, parts.shape[1])))
    with np.errstate(invalid="ignore"):
        return ((seeds @ parts) * samples).sum(1) / ((seeds @ wholes) * samples).sum(1)


def _ratio(parts: np.ndarray, wholes: np.ndarray) -> float | None:
    return float(parts.sum() / wholes.sum()) if wholes.sum() else None


def _drawn(parts: np.ndarray, wholes: np.ndarray) -> np.ndarray:
    """[draws] means over resampled samples; NaN for draws in which no sample counts."""
    times = _times_drawn(len(parts))
    with np.errstate(invalid="ignore"):
        return (times @ parts) / (times @ wholes)


@lru_cache(maxsize=8)
def _times_drawn(count: int, stream: int = 0) -> np.ndarray:
    """[draws, count]: how often each sample occurs in each draw. Draws of different streams are independent."""
    random = np.random.default_rng([SEED, stream] if stream else SEED)
    return random.multinomial(count, np.full(count, 1 / count), DRAWS).astype(np.float32)


def _summary(mean: float | None, drawn: np.ndarray, count: int) -> dict:
    """{"mean", "low", "high", "n"}; a single sample has a mean and no interval."""
    if mean is None:
        return {"mean": None, "low": None, "high": None, "n": 0}
    edges = np.nanquantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]) if count > 1 else (None, None)
    low, high = (None if edge is None else round(float(edge), DIGITS) for edge in edges)
    return {"mean": round(mean, DIGITS), "low": low, "high": high, "n": count}
