"""A YAML file read whole, or one error that names it. Does not know what should stand in it."""

from pathlib import Path

import yaml

from specdrive_ros.errors import InputError


def read_yaml(path: Path) -> object:
    """What stands in the file, None where it is empty. Raises InputError for whatever cannot be read."""
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except RecursionError:
        raise InputError(f"{path}: not readable as YAML (nested too deeply)") from None
    except (OSError, ValueError, yaml.YAMLError) as error:  # ValueError: no UTF-8, or a date that is none
        raise InputError(f"{path}: not readable as YAML ({' '.join(str(error).split())})") from None
