"""The YAML files of a budget: found by name or path, parsed into frozen dataclasses, every wrong value refused.

An error names the file, the place in it, the rule and the value. Knows neither devices nor models.
"""

from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import TypeVar

from specdrive_ros.errors import InputError
from specdrive_ros.yaml_file import known_names, named_file

Parsed = TypeVar("Parsed")  # a frozen dataclass


def find_file(kind: str, folder: Path, name: str | Path) -> Path:
    """The file with that name under `folder`, else the file `name`. Raises `InputError` with the known names."""
    path = named_file(folder, name)
    if not path.is_file():
        raise InputError(
            f"{kind} {str(name)!r}: neither a file nor a name; known names: {', '.join(known_names(folder))}"
        )
    return path


def parse(kind: type[Parsed], content: object, where: str) -> Parsed:
    """A dataclass from a mapping of its fields. Fields that are dataclasses are parsed likewise, fields of type
    `dict[str, T]` from a mapping of names; the dataclass itself checks its values. Raises `InputError`."""
    members = {one.name: one for one in fields(kind)}
    if not isinstance(content, dict) or not all(isinstance(name, str) for name in content):
        raise InputError(f"{where}: must be a mapping with keys among {', '.join(members)}, got {content!r}")
    needed = {name for name, one in members.items() if one.default is MISSING and one.default_factory is MISSING}
    for fault, names in (("unknown key", content.keys() - members.keys()), ("missing key", needed - content.keys())):
        if names:
            raise InputError(f"{where}: {fault} {sorted(names)[0]!r}; the keys are {', '.join(members)}")
    values = {name: _value(members[name].type, value, f"{where}: {name}") for name, value in content.items()}
    try:
        return kind(**values)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _value(kind: object, value: object, where: str) -> object:
    arguments = getattr(kind, "__args__", ())
    optional = next((one for one in arguments if is_dataclass(one)), None)
    if is_dataclass(kind):
        return parse(kind, value, where)
    if getattr(kind, "__origin__", None) is dict and optional is not None:
        if not isinstance(value, dict):
            raise InputError(f"{where}: must be a mapping, got {value!r}")
        return {str(name): parse(optional, one, f"{where}: {name}") for name, one in value.items()}
    if optional is not None:
        return None if value is None else parse(optional, value, where)
    return value
