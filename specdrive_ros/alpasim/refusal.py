"""Why a call is refused, one class a kind; `service.py` has the gRPC status of each.

A plain `InputError` is a bad request.
"""

from specdrive_ros.errors import InputError


class NotReady(InputError):
    """The request is fine, what came before it is not enough to answer it."""


class UnknownSession(InputError):
    """No such session is open."""


class SessionExpired(UnknownSession):
    """It was open, and nobody called it for so long that it was closed."""


class SessionExists(InputError):
    """A session of this name is open already."""


class TooManySessions(InputError):
    """Another session would need more memory than was allowed for."""
