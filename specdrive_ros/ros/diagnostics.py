"""Health of a node as `/diagnostics`: one status an input, one for the model, one for the cycle.

Callbacks and the worker note what happens, from their own threads; the node asks for the statuses when
it publishes them. Every status has a code that stays the same while the trouble does, so that a change
can be told from a number in a text. Opens no sockets.
"""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock

from builtin_interfaces.msg import Time
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue

from specdrive_ros.shapes import NANOSECONDS

OK, WARN, ERROR = DiagnosticStatus.OK, DiagnosticStatus.WARN, DiagnosticStatus.ERROR
HARDWARE_ID = "specdrive"
SHOW_REFUSAL_S = 2.0  # how long a refused message is shown as a warning


@dataclass(frozen=True)
class Health:
    """One status. level: OK, WARN or ERROR; code: stable while the trouble is the same."""

    name: str
    level: bytes
    code: str
    text: str
    values: Mapping[str, object] = field(default_factory=dict)

    def message(self, node_name: str) -> DiagnosticStatus:
        values = [KeyValue(key=key, value=str(value)) for key, value in self.values.items()]
        return DiagnosticStatus(
            name=f"{node_name}: {self.name}",
            level=self.level,
            message=self.text,
            hardware_id=HARDWARE_ID,
            values=values,
        )


class InputMonitor:
    """What one subscription gets: how much, how fresh, what was refused and why."""

    def __init__(self, name: str, topic: str, stale_after_s: float):
        self.name, self.topic, self.stale_after_s = name, topic, stale_after_s
        self._lock = Lock()
        self.received = 0
        self._overflowed = 0
        self._arrived_ns: int | None = None
        self._rejected: Counter[str] = Counter()
        self._refusal: tuple[int, str, str] | None = None  # steady ns, code, text

    def note_arrival(self, overflowed: bool = False) -> None:
        with self._lock:
            self.received += 1
            self._overflowed += overflowed
            self._arrived_ns = time.monotonic_ns()

    def note_refusal(self, code: str, text: str) -> None:
        with self._lock:
            self._rejected[code] += 1
            self._refusal = (time.monotonic_ns(), code, text)

    def health(self) -> Health:
        now_ns = time.monotonic_ns()
        with self._lock:
            level, code, text = self._judge(now_ns)
            values = {"topic": self.topic, "received": self.received, "overflowed": self._overflowed}
            if self._arrived_ns is not None:
                values["age_s"] = round((now_ns - self._arrived_ns) / NANOSECONDS, 3)
            values |= {f"rejected {reason}": count for reason, count in sorted(self._rejected.items())}
        return Health(f"input {self.name}", level, code, text, values)

    def _judge(self, now_ns: int) -> tuple[bytes, str, str]:
        if self._arrived_ns is None:
            return ERROR, "NOTHING_YET", f"nothing has come on {self.topic} yet"
        age_s = (now_ns - self._arrived_ns) / NANOSECONDS
        if age_s > self.stale_after_s:
            return ERROR, "STALE", f"nothing on {self.topic} for {age_s:.2f} s; limit {self.stale_after_s} s"
        if self._refusal is not None and now_ns - self._refusal[0] < SHOW_REFUSAL_S * NANOSECONDS:
            return WARN, self._refusal[1], f"refused: {self._refusal[2]}"
        return OK, "", "fresh"


def diagnostic_array(stamp: Time, node_name: str, statuses: Sequence[Health]) -> DiagnosticArray:
    message = DiagnosticArray(status=[health.message(node_name) for health in statuses])
    message.header.stamp = stamp
    return message


def signature(statuses: Sequence[Health]) -> tuple:
    """Changes when a level or a code does, not with the numbers."""
    return tuple((health.name, health.level, health.code) for health in statuses)
