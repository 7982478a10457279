"""Arrays of a pass in the padded sizes that its engine runs in: padding is zero, and hidden by a mask."""

import numpy as np

from specdrive_ros.runtime.bindings import HIDDEN


def padded(values: np.ndarray, axis: int, size: int) -> np.ndarray:
    """The array with zeros appended along `axis` up to `size`."""
    missing = [(0, size - length if number == axis else 0) for number, length in enumerate(values.shape)]
    return np.pad(values, missing)


def padded_in_front(values: np.ndarray, size: int) -> np.ndarray:
    """[T, …] -> [size, …] with zeros in front, so that the last row stays the last."""
    return np.pad(values, [(size - len(values), 0), *[(0, 0)] * (values.ndim - 1)])


def padded_mask(mask: np.ndarray, cached: int, width: int, rows: int) -> np.ndarray:
    """[T, S + T] -> [width, rows + width]: padding is hidden, and an added token sees only itself."""
    tokens = len(mask)
    found = np.full((width, rows + width), HIDDEN, np.float32)
    found[:tokens, :cached] = mask[:, :cached]
    found[:tokens, rows : rows + tokens] = mask[:, cached:]
    added = np.arange(tokens, width)
    found[added, rows + added] = 0
    return found


def seen_rows(cached: int, rows: int, tokens: int, width: int) -> np.ndarray:
    """[rows + width] for `SEEN`: 0 for the first `cached` of the rows and the last `tokens` of the new ones, else
    HIDDEN."""
    found = np.full(rows + width, HIDDEN, np.float32)
    found[:cached] = 0
    found[rows + width - tokens :] = 0
    return found
