"""Checks of values that users wrote: a broken rule is one `InputError` that names the value, the rule and what came."""

from specdrive_ros.errors import InputError


def require(holds: bool, name: str, rule: object, value: object) -> None:
    """Raises `InputError` ("NAME must be RULE, got VALUE") unless `holds`."""
    if not holds:
        raise InputError(f"{name} must be {rule}, got {value!r}")


def is_number(value: object) -> bool:
    """Whether it is an int or a float; True and False are neither."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_count(value: object, least: int = 1) -> bool:
    """Whether it is an int of at least `least`."""
    return type(value) is int and value >= least
