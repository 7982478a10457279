"""Errors a user can act on. Each says what is wrong, where, and what would be right, in one line.

The command line turns `InputError` into exit code 2 and `WorkFailed` into exit code 1.
"""


class SpecdriveError(Exception):
    """Base of every error this package raises on purpose."""


class InputError(SpecdriveError):
    """Wrong arguments, files, checkpoints, bags or messages."""


class WorkFailed(SpecdriveError):
    """The input was fine, the work itself did not succeed."""
