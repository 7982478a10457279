"""Properties of one stream of stamped messages: rate, order, repetitions, jumps, frame ids. Judges nothing.

Two clocks: stamps are the sender's, arrivals are steady. Knows no message types. One thread at a time.
"""

from collections import deque

from specdrive_ros.shapes import NANOSECONDS

RATE_OVER = 20  # number of arrivals
JUMP_S = 1.0  # between two consecutive stamps: another clock, not a lost message


class StreamStatistics:
    """Counts since it was made; the rate is that of the last arrivals."""

    def __init__(self):
        self.received = self.out_of_order = self.duplicates = self.jumps = 0
        self.frame_id: str | None = None
        self.frame_changes = 0
        self.newest_ns: int | None = None
        self.largest_gap_s = 0.0
        self._arrivals: deque[int] = deque(maxlen=RATE_OVER)

    def note(self, stamp_ns: int, steady_ns: int, frame_id: str = "") -> str:
        """Takes one message. Returns what is odd about it: JUMP, DUPLICATE, OUT_OF_ORDER, FRAME_CHANGED or ""."""
        self.received += 1
        self._arrivals.append(steady_ns)
        changed = self.frame_id not in (None, frame_id)
        self.frame_id = frame_id
        self.frame_changes += changed
        odd = self._order(stamp_ns)
        return odd or ("FRAME_CHANGED" if changed else "")

    def _order(self, stamp_ns: int) -> str:
        if self.newest_ns is None:
            self.newest_ns = stamp_ns
            return ""
        step_s = (stamp_ns - self.newest_ns) / NANOSECONDS
        if abs(step_s) > JUMP_S:
            self.jumps += 1
            self.newest_ns = stamp_ns
            return "JUMP"
        if step_s <= 0:
            self.duplicates += step_s == 0
            self.out_of_order += step_s < 0
            return "OUT_OF_ORDER" if step_s < 0 else "DUPLICATE"
        self.largest_gap_s = max(self.largest_gap_s, step_s)
        self.newest_ns = stamp_ns
        return ""

    @property
    def arrived_ns(self) -> int | None:
        """Steady time of the last arrival."""
        return self._arrivals[-1] if self._arrivals else None

    def rate_hz(self, now_ns: int) -> float:
        """Messages per second over the last arrivals; falls while nothing comes. 0 if there are too few."""
        if len(self._arrivals) < 2:
            return 0.0
        mean_s = (self._arrivals[-1] - self._arrivals[0]) / (len(self._arrivals) - 1) / NANOSECONDS
        silent_s = (now_ns - self._arrivals[-1]) / NANOSECONDS
        return 1.0 / max(mean_s, silent_s, 1e-6)

    def values(self, now_ns: int) -> dict[str, object]:
        """All of them, rounded, for people to read."""
        return {
            "rate_hz": round(self.rate_hz(now_ns), 1),
            "out_of_order": self.out_of_order,
            "duplicates": self.duplicates,
            "jumps": self.jumps,
            "largest_gap_s": round(self.largest_gap_s, 3),
            "frame_id": self.frame_id or "",
            "frame_changes": self.frame_changes,
        }
