"""Why a call is refused, one class per kind; `service.py` maps each to a gRPC status.

A plain `InputError` is a bad request.
"""

from specdrive_ros.errors import InputError


class NotReady(InputError):
    """The request is fine, but what came before it is not enough to answer it."""


class UnknownSession(InputError):
    """No session of this name is open."""


class SessionExpired(UnknownSession):
    """The session was closed because nobody called it for too long."""


class SessionExists(InputError):
    """A session of this name is already open."""


class TooManySessions(InputError):
    """Another session would exceed the allowed number, which limits memory."""
