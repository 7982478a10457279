"""Build profiles: what engines are built for, from a YAML file under `engines/profiles/` or anywhere else.

`engines/profile.schema.json` says the same to editors and CI. Every wrong value is refused with the rule and the
value; unknown keys are wrong. Knows no TensorRT.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from specdrive_ros.engine.axes import AXES, Range, Ranges, letters_of
from specdrive_ros.engine.identity import canonical
from specdrive_ros.errors import InputError
from specdrive_ros.validation import require
from specdrive_ros.yaml_file import SUFFIXES, known_names, named_file, read_yaml

BUILDERS = ("auto", "tensorrt", "tensorrt_rtx")
PRECISIONS = ("fp32", "fp16", "bf16")
ON_MISMATCH = ("rebuild", "refuse")
CURRENT = "current"
PATCHES_OF_A_TOKEN = 4  # vision merges two by two patches
PROFILES = Path("engines") / "profiles"
_CAPABILITY = re.compile(r"(\d{1,2})\.(\d)")


@dataclass(frozen=True)
class BuildProfile:
    """name:               of the file, without its suffix
    graphs:             graph -> ranges of each of its optimisation profiles
    builder:            tensorrt, tensorrt_rtx, or auto: tensorrt if it is installed
    targets:            compute capabilities ("8.9"), or "current": the present GPU
    precision:          of matrix products and of the cache; norms, softmax and sums stay fp32
    workspace_mb:       maximum scratch memory of a layer, 0 for the builder's default
    optimisation_level: 0 … 5; higher builds longer for faster engines
    on_mismatch:        what to do about an engine made from something else: rebuild or refuse
    """

    name: str
    graphs: dict[str, tuple[Ranges, ...]]
    builder: str = "auto"
    targets: tuple[str, ...] = (CURRENT,)
    precision: str = "fp16"
    workspace_mb: int = 0
    optimisation_level: int = 3
    on_mismatch: str = "rebuild"

    def __post_init__(self):
        _one_of("builder", self.builder, BUILDERS)
        _one_of("precision", self.precision, PRECISIONS)
        _one_of("on_mismatch", self.on_mismatch, ON_MISMATCH)
        _whole("workspace_mb", self.workspace_mb, 0, 2**20)
        _whole("optimisation_level", self.optimisation_level, 0, 5)
        _check_targets(self.targets)

    def identity_of(self, graph: str) -> str:
        """Canonical JSON of everything here that leads to a different engine of `graph`."""
        ranges = [{letter: [r.least, r.best, r.largest] for letter, r in one.items()} for one in self.graphs[graph]]
        return canonical(
            {"shapes": ranges, "workspace_mb": self.workspace_mb, "optimisation_level": self.optimisation_level}
        )


def find_profile(profile: str | Path) -> BuildProfile:
    """A profile by name (in `engines/profiles/`) or by path. Raises `InputError` if it is missing or wrong."""
    path = named_file(PROFILES, profile)
    if path.suffix not in SUFFIXES and not path.is_file():
        raise InputError(
            f"profile {str(profile)!r}: no such file, nor a name; known names: {', '.join(profile_names())}"
        )
    return read_profile(path)


def profile_names() -> list[str]:
    """Names of the profiles that come with the package."""
    return known_names(PROFILES)


def read_profile(path: Path) -> BuildProfile:
    """The profile in a file, named after the file. Raises `InputError` naming the file if it is missing or wrong."""
    if not path.exists():
        raise InputError(f"{path}: no such profile; known names: {', '.join(profile_names())}")
    content = read_yaml(path)
    try:
        return _profile(path.stem, content)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _profile(name: str, content: object) -> BuildProfile:
    known = {each for each in BuildProfile.__dataclass_fields__ if each != "name"}
    if not isinstance(content, dict) or not content.keys() <= known or "graphs" not in content:
        unknown = sorted(map(str, content.keys() - known)) if isinstance(content, dict) else []
        detail = f", not {', '.join(unknown)}" if unknown else ""
        raise InputError(f"must be a mapping with `graphs` and keys among {', '.join(sorted(known))}{detail}")
    values = dict(content)
    values["graphs"] = _graphs(content["graphs"])
    if "targets" in values:
        require(isinstance(values["targets"], list), "targets", "a list", values["targets"])
        values["targets"] = tuple(values["targets"])
    return BuildProfile(name, **values)


def _graphs(content: object) -> dict[str, tuple[Ranges, ...]]:
    require(isinstance(content, dict) and bool(content), "graphs", "a mapping from graphs to lists of ranges", content)
    return {graph: _ranges_of(graph, profiles) for graph, profiles in content.items()}


def _ranges_of(graph: str, profiles: object) -> tuple[Ranges, ...]:
    _one_of("graphs", graph, tuple(AXES))
    require(
        isinstance(profiles, list) and bool(profiles), graph, "a list of mappings from letters to ranges", profiles
    )
    return tuple(_ranges(graph, one) for one in profiles)


def _ranges(graph: str, content: object) -> Ranges:
    letters = letters_of(graph)
    if not isinstance(content, dict) or set(content) != set(letters):
        raise InputError(f"{graph}: a profile gives a range for each of {', '.join(letters)}, got {content!r}")
    ranges = {}
    for letter in letters:
        sizes = content[letter]
        try:
            ranges[letter] = Range(*sizes)
        except (TypeError, InputError):
            raise InputError(
                f"{graph}: {letter} must be three whole numbers [least, best, largest], 0 <= least <= best <= largest "
                f"and largest >= 1, got {sizes!r}"
            ) from None
    if "P" in ranges and any(ranges["P"].at(which) % PATCHES_OF_A_TOKEN for which in range(3)):
        raise InputError(f"{graph}: P must be multiples of {PATCHES_OF_A_TOKEN}, got {content['P']!r}")
    return ranges


def _check_targets(targets: tuple) -> None:
    rule = 'a list of compute capabilities such as "8.9", or only "current"'
    valid = bool(targets) and all(isinstance(each, str) for each in targets) and len(set(targets)) == len(targets)
    valid = valid and (targets == (CURRENT,) or all(map(_CAPABILITY.fullmatch, targets)))
    require(valid, "targets", rule, list(targets))


def _one_of(name: str, value: object, choices: tuple[str, ...]) -> None:
    require(value in choices, name, f"one of {', '.join(choices)}", value)


def _whole(name: str, value: object, least: int, largest: int) -> None:
    require(type(value) is int and least <= value <= largest, name, f"a whole number {least} … {largest}", value)
