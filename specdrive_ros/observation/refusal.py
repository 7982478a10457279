"""Why there is no observation. One list of reasons for odometry, frames and their matching."""

from dataclasses import dataclass
from enum import Enum


class Reason(str, Enum):
    """Names are stable: they are published, and they are keys in `inputs.rejected`."""

    NO_ODOMETRY = "NO_ODOMETRY"
    TOO_SHORT = "TOO_SHORT"  # the odometry does not reach back 1.5 s
    GAP = "GAP"  # odometry is missing inside those 1.5 s
    TELEPORT = "TELEPORT"  # it moves faster than any car
    CLOCK_JUMP = "CLOCK_JUMP"  # the clock went back, so what was known is void
    NOT_YET = "NOT_YET"  # the frames are newer than the odometry
    NOT_FINITE = "NOT_FINITE"
    ZERO_QUATERNION = "ZERO_QUATERNION"
    DUPLICATE_ODOMETRY = "DUPLICATE_ODOMETRY"  # same stamp again: the newer message counts
    TOO_OLD = "TOO_OLD"  # older than anything that is kept
    NO_FRAMES = "NO_FRAMES"
    CAMERA_MISSING = "CAMERA_MISSING"
    NOT_SYNCHRONISED = "NOT_SYNCHRONISED"
    MISSING_FRAMES = "MISSING_FRAMES"
    STALE_FRAMES = "STALE_FRAMES"
    DUPLICATE_FRAME = "DUPLICATE_FRAME"  # same stamp again: the first one counts
    SIZE_CHANGED = "SIZE_CHANGED"  # the camera's older frames no longer fit
    NOTHING_NEW = "NOTHING_NEW"  # the newest set has already been used

    def __str__(self) -> str:
        return self.value

    @property
    def words(self) -> str:
        """For people: the words in which an input's monitor names the same fault when the message arrives."""
        return _WORDS.get(self, self.value.lower().replace("_", " "))


_WORDS = {
    Reason.DUPLICATE_ODOMETRY: "a stamp came twice; the newer sample counts",
    Reason.DUPLICATE_FRAME: "a stamp came twice; the first picture counts",
    Reason.TOO_OLD: "a stamp is older than all that is kept",
    Reason.CLOCK_JUMP: "the stamp jumped back; what was known is void",
}


@dataclass(frozen=True)
class Refusal:
    """No observation: the reason to act on, and a line for people."""

    reason: Reason
    text: str
