"""Reasons why an engine cannot be used. Each is an `InputError`: what is wrong, where, and what would be right."""

from specdrive_ros.errors import InputError


class EngineFault(InputError):
    """Base class: this engine must not be run; it can be built again."""


class EngineMissing(EngineFault):
    """There is no engine for this graph, or its file is gone."""


class EngineMismatch(EngineFault):
    """There is an engine, but made from something else; `differences` says what differs."""

    def __init__(self, message: str, differences: tuple[str, ...]):
        super().__init__(message)
        self.differences = differences


class EngineDamaged(EngineFault):
    """The file or its entry is not what was written: truncated, empty, changed, or not a regular file."""
