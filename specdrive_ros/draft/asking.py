"""What asking a draft costs, measured or, until then, estimated; and whether asking it pays off.

A draft that is not asked keeps unread rows for later, so asking it costs a proposal plus the rows it has to catch up
on, at first those of the prompt. Pure functions of numbers: no clock, no network.
"""

from dataclasses import dataclass

import numpy as np

from specdrive_ros.errors import InputError

OVERHEAD_MS = 0.15  # of a network's pass besides its arithmetic: bindings, rotary tables, a softmax (one CPU core)


@dataclass(frozen=True)
class AskingCost:
    """ms: of a proposal after a single new row; row_ms: of each further unread row."""

    ms: float = 0.0
    row_ms: float = 0.0

    def __post_init__(self):
        if not all(np.isfinite(ms) and ms >= 0 for ms in (self.ms, self.row_ms)):
            raise InputError(f"cost of a draft: milliseconds must be 0 or more, got {self.ms} and {self.row_ms}")

    def of(self, unread: int, proposals: float) -> float:
        """Milliseconds of asking with `unread` rows, the catching up spread over the proposals to come."""
        return self.ms + self.row_ms * max(unread - 1, 0) / max(proposals, 1.0)


def from_two(rows: tuple[int, int], ms: tuple[float, float]) -> AskingCost:
    """The cost of a draft that took `ms` with `rows` unread: two measurements, with few rows and with many."""
    row_ms = max(0.0, (ms[1] - ms[0]) / (rows[1] - rows[0]))
    return AskingCost(max(0.0, ms[0] - row_ms * (rows[0] - 1)), row_ms)


def estimate(layers: float, passes: int, pass_ms: float, row_ms: float) -> AskingCost:
    """The cost of a draft that was not measured here.

    layers: depth of its network as a share of the target's; passes: of its network per proposal; pass_ms, row_ms: of
    the target, a pass and a row of a wide pass.
    """
    return AskingCost(passes * (OVERHEAD_MS + layers * pass_ms), layers * row_ms)


def pays(tokens_with: float, ms_with: float, tokens_without: float, ms_without: float, draft_ms: float) -> bool:
    """Whether a pass with the draft's nodes writes more tokens per millisecond, including the draft's own time."""
    return tokens_with / (ms_with + draft_ms) > tokens_without / ms_without
