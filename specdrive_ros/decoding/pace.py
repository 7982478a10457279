"""How much time the decoding loop may still take: asked before every pass, told of every pass.

A pace makes a reasoning shorter or its passes narrower; what is written stays what the target wrote. Without one a
reasoning takes as long as it takes. Knows no clock: `safety/deadline.py` has the one that keeps a deadline.
"""

from typing import Protocol


class Pace(Protocol):
    """Who decides how wide the next pass is, whether there is one, and whether the action head takes fewer steps."""

    def nodes(self, asked: int) -> int:
        """Nodes a draft may propose for the next pass: `asked` or fewer, at least 1."""

    def must_close(self) -> bool:
        """Whether the reasoning has to be closed now."""

    def must_shorten_action(self) -> bool:
        """Whether all steps of the action head would be too late; asked where a planner may take fewer."""

    def note_pass(self, rows: int, milliseconds: float) -> None:
        """A pass over this many rows took so long."""


class Unhurried:
    """No limit."""

    def nodes(self, asked: int) -> int:
        return asked

    def must_close(self) -> bool:
        return False

    def must_shorten_action(self) -> bool:
        return False

    def note_pass(self, rows: int, milliseconds: float) -> None:
        return None


UNHURRIED = Unhurried()
