"""Why an engine cannot be used. Each is an `InputError`: what is wrong, where, what would be right."""

from specdrive_ros.errors import InputError


class EngineFault(InputError):
    """Base: with this engine nothing is to be run; it can be built again."""


class EngineMissing(EngineFault):
    """There is no engine of this graph, or its file is gone."""


class EngineMismatch(EngineFault):
    """There is an engine, made from something else. `differences` says from what."""

    def __init__(self, message: str, differences: tuple[str, ...]):
        super().__init__(message)
        self.differences = differences


class EngineDamaged(EngineFault):
    """The file or its entry is not what was written: cut short, empty, changed, no regular file."""
