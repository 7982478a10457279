"""Detects a camera that sends the same image again and again while the car moves: it looks alive but is not.

A warning only: a rendered world that stands still looks the same, and so does a covered lens at night.
"""

import numpy as np

SAME_FRAMES = 5  # in a row
MOVING_MPS = 0.5
ROWS_COMPARED = 16


class FrozenPicture:
    """Watches one camera. Compares a few rows of each image with those of the previous one."""

    def __init__(self):
        self._rows: np.ndarray | None = None
        self.same = 0

    def note(self, rgb: np.ndarray, speed_mps: float) -> bool:
        """Takes an image [H, W, 3]; returns True if it has been the same for too long while the car moved."""
        rows = rgb[:: max(1, len(rgb) // ROWS_COMPARED)].copy()
        unchanged = self._rows is not None and np.array_equal(rows, self._rows)
        self._rows = rows
        self.same = self.same + 1 if unchanged and abs(speed_mps) > MOVING_MPS else 0
        return self.same >= SAME_FRAMES
