"""A model by name or folder: where its checkpoint is and how a cycle uses it. Knows no networks.

A name stands for a file in `config/` (`mini` is `config/mini.yaml`). A folder is a checkpoint in the released layout; a
`model.yaml` in it has the same keys as such a file, and without one the defaults below apply.
"""

from dataclasses import dataclass, fields, replace
from pathlib import Path

from specdrive_ros.errors import InputError
from specdrive_ros.installation import data_roots
from specdrive_ros.shapes import FRAME_STEP_S, FRAMES_PER_CAMERA
from specdrive_ros.validation import is_count, is_number, require
from specdrive_ros.yaml_file import known_names, read_yaml

CONFIG = Path("config")


@dataclass(frozen=True)
class ModelSettings:
    """checkpoint:        folder of the weights, tokenizer and graphs
    cameras:           names in the order of the prompt
    frames_per_camera: frames of each camera in the prompt, `frame_step_s` seconds apart
    max_new_tokens:    the longest reasoning, with the two tokens that close it
    action_steps:      Euler steps of the action head; None: those of its graphs, ten as published where it has none
    action_noise:      spread of the noise they start from; 0 starts from its centre, whatever the seed
    forward_only:      whether a plan that brakes to a stop waits there, even if its actions would roll on backwards
    draft:             default drafts, as `a+b`; those that the folder lacks are left out
    scenarios:         families of scenes it was trained in, which is what `--scenario all` drives; empty: every family
    """

    checkpoint: Path
    cameras: tuple[str, ...] = ("rgb_front",)
    frames_per_camera: int = FRAMES_PER_CAMERA
    frame_step_s: float = FRAME_STEP_S
    max_new_tokens: int = 64
    action_steps: int | None = None
    action_noise: float = 1.0
    forward_only: bool = False
    draft: str = "none"
    scenarios: tuple[str, ...] = ()

    def __post_init__(self):
        names = "a list of different names"
        rules = {
            "cameras": (bool(self.cameras) and _different_names(self.cameras), names),
            "frames_per_camera": (self.frames_per_camera == FRAMES_PER_CAMERA, FRAMES_PER_CAMERA),
            "frame_step_s": (self.frame_step_s == FRAME_STEP_S, FRAME_STEP_S),
            "max_new_tokens": (is_count(self.max_new_tokens, 2), "a whole number of at least 2"),
            "action_steps": (
                self.action_steps is None or is_count(self.action_steps), "a whole number of at least 1"
            ),
            "action_noise": (is_number(self.action_noise) and 0 <= self.action_noise <= 1, "a number from 0 to 1"),
            "forward_only": (isinstance(self.forward_only, bool), "true or false"),
            "draft": (isinstance(self.draft, str) and self.draft != "", "none or names joined by +"),
            "scenarios": (_different_names(self.scenarios), names),
        }
        for name, (holds, rule) in rules.items():
            value = getattr(self, name)
            require(holds, name, rule, list(value) if isinstance(value, tuple) else value)


def find_model(model: str | Path) -> ModelSettings:
    """The settings of a model given by name or folder. Raises `InputError` when there is none."""
    folder = Path(model)
    if (folder / "config.json").is_file():
        settings = folder / "model.yaml"
        return replace(_read(settings, folder), checkpoint=folder) if settings.is_file() else ModelSettings(folder)
    if folder.is_dir():
        raise InputError(
            f"{folder}: no config.json; a model's folder holds config.json, model.safetensors and the graphs"
        )
    for config in _config_folders():
        if folder.name == str(model) and (config / f"{model}.yaml").is_file():
            return _read(config / f"{model}.yaml", config)
    raise InputError(
        f"model {str(model)!r}: neither a folder nor a name; known names: {', '.join(_names()) or 'none'}"
    )


def _read(path: Path, base: Path) -> ModelSettings:
    """`checkpoint` in the file is relative to the folder `base`."""
    content = read_yaml(path)
    known = {field.name for field in fields(ModelSettings)}
    if not isinstance(content, dict) or not content.keys() <= known:
        unknown = ", ".join(sorted(map(str, content.keys() - known))) if isinstance(content, dict) else repr(content)
        raise InputError(f"{path}: must be a mapping with keys among {', '.join(sorted(known))}, got {unknown}")
    for name in ("cameras", "scenarios"):
        if not isinstance(content.get(name, []), list):
            raise InputError(f"{path}: {name} must be a list of names, got {content[name]!r}")
    content["checkpoint"] = base / str(content.get("checkpoint", "."))
    content |= {name: tuple(content[name]) for name in ("cameras", "scenarios") if name in content}
    try:
        return ModelSettings(**content)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def _config_folders() -> list[Path]:
    return [root / CONFIG for root in data_roots()]


def _names() -> list[str]:
    return [name for name in known_names(CONFIG) if ".param" not in name]


def _different_names(values: tuple) -> bool:
    return all(isinstance(name, str) and name for name in values) and len(set(values)) == len(values)
