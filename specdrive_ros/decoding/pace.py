"""How much time the decoding loop may still take: consulted before every pass, and told how long each one took.

A pace can end the reasoning early or make its passes narrower; every token is still the target's own. Knows no clock:
`safety/deadline.py` has the pace that keeps a deadline.
"""

from typing import Protocol


class Pace(Protocol):
    """Decides how wide the next pass is, whether there is one, and whether the action head takes fewer steps."""

    def nodes(self, asked: int) -> int:
        """Nodes a draft may propose for the next pass: `asked` or fewer, at least 1."""

    def must_close(self) -> bool:
        """Whether the reasoning has to be closed now."""

    def must_shorten_action(self) -> bool:
        """Whether all steps of the action head would be too late; asked only if the planner may take fewer."""

    def note_pass(self, rows: int, milliseconds: float) -> None:
        """Records how long a pass over this many rows took."""


class Unhurried:
    """The pace without a limit."""

    def nodes(self, asked: int) -> int:
        return asked

    def must_close(self) -> bool:
        return False

    def must_shorten_action(self) -> bool:
        return False

    def note_pass(self, rows: int, milliseconds: float) -> None:
        return None


UNHURRIED = Unhurried()
