"""Health of a node as `/diagnostics`: one status per input, one for the model, one for the cycle.

Callbacks and the worker report events from their own threads; the node collects the statuses when it publishes them.
Every status has a code that stays the same as long as the problem does, so that a real change can be told from a
changed number in a text. Opens no sockets.
"""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock

from builtin_interfaces.msg import Time
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue

from specdrive_ros.observation.stream_statistics import StreamStatistics
from specdrive_ros.shapes import NANOSECONDS

OK, WARN, ERROR = DiagnosticStatus.OK, DiagnosticStatus.WARN, DiagnosticStatus.ERROR
HARDWARE_ID = "specdrive"
INPUT_STATUS = "input "  # prefix of the name of an input's status
REJECTED = "rejected "  # prefix of the key of a count of refusals
OVERRIDE = "nothing of it arrives; qos_overrides.<topic>.subscription.reliability: best_effort takes it"
SHOW_REFUSAL_S = 2.0  # how long a refused message counts as a warning; it is shown at least once, however late


@dataclass(frozen=True)
class Health:
    """One status. level: OK, WARN or ERROR; code: constant as long as the problem is the same."""

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


ODD = {
    "JUMP": "the stamp jumped by more than a second",
    "DUPLICATE": "a stamp came twice",
    "OUT_OF_ORDER": "a stamp is older than the one before",
    "FRAME_CHANGED": "the frame id is another one",
}


class InputMonitor:
    """What one subscription receives: how much, how fast, how fresh, in which order, what was refused and why.

    stale_after_s: silence longer than this is an error. min_hz, max_age_s: a lower rate or older messages (by the
    node's clock) are a warning; 0: never.
    """

    def __init__(self, name: str, topic: str, stale_after_s: float, *, min_hz: float = 0.0, max_age_s: float = 0.0):
        self.name, self.topic = name, topic
        self.stale_after_s, self.min_hz, self.max_age_s = stale_after_s, min_hz, max_age_s
        self._lock = Lock()
        self._statistics = StreamStatistics()
        self._received = self._overflowed = 0
        self._arrived_ns: int | None = None
        self._age_s: float | None = None
        self._rejected: Counter[str] = Counter()
        self._warned: Counter[str] = Counter()
        self._refusal: tuple[int, str, str] | None = None  # steady ns, code, text
        self._unheard, self._shown = 0, True

    @property
    def received(self) -> int:
        return self._received

    @property
    def rejected(self) -> dict[str, int]:
        """Reason -> number of messages refused for it."""
        with self._lock:
            return dict(self._rejected)

    def note_arrival(
        self, overflowed: bool = False, stamp_ns: int | None = None, frame_id: str = "", clock_ns: int | None = None
    ) -> None:
        """Records a message. clock_ns: the node's clock, to compare the stamp with."""
        now_ns = time.monotonic_ns()
        with self._lock:
            self._received += 1
            self._overflowed += overflowed
            self._arrived_ns = now_ns
            if stamp_ns is not None:
                odd = self._statistics.note(stamp_ns, now_ns, frame_id)
                self._age_s = None if clock_ns is None else (clock_ns - stamp_ns) / NANOSECONDS
                if odd:
                    self._warn(now_ns, odd, ODD[odd])

    def note_refusal(self, code: str, text: str) -> None:
        with self._lock:
            self._rejected[code] += 1
            self._refusal, self._shown = (time.monotonic_ns(), code, f"refused: {text}"), False

    def note_warning(self, code: str, text: str) -> None:
        """Records a message that was accepted but is odd."""
        with self._lock:
            self._warn(time.monotonic_ns(), code, text)

    def note_unheard(self, publishers: int) -> None:
        """Records the total number of publishers of the topic whose quality of service is incompatible, so nothing
        arrives."""
        with self._lock:
            self._unheard = publishers

    def _warn(self, now_ns: int, code: str, text: str) -> None:
        self._warned[code] += 1
        self._refusal, self._shown = (now_ns, code, text), False

    @property
    def is_stale(self) -> bool:
        """Whether messages came at some time and no longer do."""
        arrived_ns = self._arrived_ns
        return arrived_ns is not None and time.monotonic_ns() - arrived_ns > self.stale_after_s * NANOSECONDS

    def health(self, shown: bool = False) -> Health:
        """The input's status. shown: whether it is being published, not just looked at."""
        now_ns = time.monotonic_ns()
        with self._lock:
            level, code, text = self._judge(now_ns)
            self._shown |= shown and self._refusal is not None and code == self._refusal[1]
            values = {"topic": self.topic, "received": self._received, "overflowed": self._overflowed}
            if self._unheard:
                values["incompatible_publishers"] = self._unheard
            if self._arrived_ns is not None:
                values["age_s"] = round((now_ns - self._arrived_ns) / NANOSECONDS, 3)
            if self._age_s is not None:
                values["stamp_age_s"] = round(self._age_s, 3)
            values |= self._statistics.values(now_ns)
            values |= {REJECTED + reason: count for reason, count in sorted(self._rejected.items())}
            values |= {f"warned {reason}": count for reason, count in sorted(self._warned.items())}
        return Health(INPUT_STATUS + self.name, level, code, text, values)

    def _judge(self, now_ns: int) -> tuple[bytes, str, str]:
        if self._arrived_ns is None and self._unheard:
            return ERROR, "INCOMPATIBLE_QOS", f"a publisher of {self.topic} offers less than is asked for: {OVERRIDE}"
        if self._arrived_ns is None:
            return ERROR, "NOTHING_YET", f"nothing has come on {self.topic} yet"
        age_s = (now_ns - self._arrived_ns) / NANOSECONDS
        if age_s > self.stale_after_s:
            return ERROR, "STALE", f"nothing on {self.topic} for {age_s:.2f} s; limit {self.stale_after_s} s"
        young = self._refusal is not None and now_ns - self._refusal[0] < SHOW_REFUSAL_S * NANOSECONDS
        if young or not self._shown:
            return WARN, self._refusal[1], self._refusal[2]
        if self.max_age_s and self._age_s is not None and self._age_s > self.max_age_s:
            return WARN, "OLD", f"stamped {self._age_s:.2f} s ago; limit {self.max_age_s:g} s"
        rate_hz = self._statistics.rate_hz(now_ns)
        if self.min_hz and rate_hz and rate_hz < self.min_hz:
            return WARN, "SLOW", f"{rate_hz:.1f} a second; must be {self.min_hz:g} at least"
        return OK, "", "fresh"


def diagnostic_array(stamp: Time, node_name: str, statuses: Sequence[Health]) -> DiagnosticArray:
    message = DiagnosticArray(status=[health.message(node_name) for health in statuses])
    message.header.stamp = stamp
    return message


def signature(statuses: Sequence[Health]) -> tuple:
    """A value that changes when a level or code does, but not with the numbers."""
    return tuple((health.name, health.level, health.code) for health in statuses)
