"""Finds YAML files by name in the package's data and reads them; every failure is one error that names the file.

Does not know what they should contain.
"""

from pathlib import Path

import yaml

from specdrive_ros.errors import InputError
from specdrive_ros.installation import data_roots

SUFFIXES = (".yaml", ".yml")
DEEPEST = 64  # levels of nesting; a deeper file is hostile, as the time to read it rises with the square of its depth


class _ShallowLoader(yaml.SafeLoader):
    def fetch_more_tokens(self) -> None:
        if len(self.indents) + self.flow_level > DEEPEST:
            raise yaml.scanner.ScannerError(None, None, f"nested too deeply: over {DEEPEST} levels", self.get_mark())
        super().fetch_more_tokens()


def parse_yaml(text: str) -> object:
    """As `yaml.safe_load`. Raises yaml.YAMLError for what is no YAML or is nested too deeply, ValueError for a wrong
    value such as a date that is none."""
    return yaml.load(text, _ShallowLoader)


def read_yaml(path: Path) -> object:
    """The file's content, None if it is empty. Raises InputError for a file that cannot be read."""
    try:
        return parse_yaml(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (OSError, ValueError, yaml.YAMLError) as error:  # ValueError: no UTF-8, or a date that is none
        raise InputError(f"{path}: not readable as YAML ({' '.join(str(error).split())})") from None


def named_file(folder: Path, name: str | Path) -> Path:
    """The file `name`.yaml in `folder` of the package's data; else `name` as a path, which need not exist."""
    path = Path(name)
    if path.suffix in SUFFIXES:
        return path
    candidates = (root / folder / f"{name}.yaml" for root in data_roots())
    return next((each for each in candidates if each.is_file()), path)


def known_names(folder: Path) -> list[str]:
    """Names of the YAML files in `folder` of the package's data, sorted, without suffix."""
    return sorted({path.stem for root in data_roots() for path in (root / folder).glob("*.yaml")})
