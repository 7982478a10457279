"""Positions of a draft's rows: the rotary embedding is a setting, everything else about a draft stays equal.

`mirror`  the target's own interleaved 3D M-RoPE: an image's rows share a time and count rows and columns.
`flat`    one index for every row, its place in the sequence, whatever it is (FlatRoPE, arXiv 2606.31160).

The public EAGLE-3 and DFlash drafts are flat; a mirrored one is the baseline that flat is measured against.
NumPy only.
"""

import numpy as np

from specdrive_ros.target.rope import frequency_axes, text_positions

ROPES = ("flat", "mirror")


class DraftRope:
    """Rotary tables [T, head_dim] of rows, in either setting."""

    def __init__(self, rope: str, head_dim: int, theta: float, mrope_section: tuple[int, int, int] | None = None):
        self.mirrors = rope == "mirror"
        exponents = np.arange(0, head_dim, 2, dtype=np.float32) / np.float32(head_dim)
        self._frequencies = (np.float32(1) / np.float32(theta) ** exponents).astype(np.float32)
        self._axes = frequency_axes(mrope_section) if self.mirrors else None

    def rows(self, first: int, positions: np.ndarray) -> np.ndarray:
        """Rotary positions of the rows from sequence index `first` on, given their positions [3, T] in the target.

        Returns [3, T]; flat rows have the same number on all three axes.
        """
        return positions if self.mirrors else text_positions(first, positions.shape[1], 0)

    def beyond(self, first: int, count: int, rope_delta: int) -> np.ndarray:
        """[3, count] positions of rows after the prompt, from sequence index `first` on: text on every axis."""
        return text_positions(first, count, rope_delta if self.mirrors else 0)

    def tables(self, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Cosines and sines [..., T, head_dim] of positions [3, ..., T] from `rows` or `beyond`."""
        angles = np.asarray(positions, np.float32)[..., None] * self._frequencies
        if self._axes is None:
            chosen = angles[0]
        else:
            chosen = np.where(self._axes == 1, angles[1], np.where(self._axes == 2, angles[2], angles[0]))
        chosen = np.concatenate([chosen, chosen], axis=-1)
        return np.cos(chosen), np.sin(chosen)
