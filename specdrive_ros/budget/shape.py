"""The sizes of a model that determine its cost: of its networks and of a planning cycle.

From a YAML file under `engines/shapes/` (models whose weights are not here), or from a checkpoint's own config. No
weights are read. `engines/shape.schema.json` says the same to editors and CI.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from specdrive_ros.budget.yaml_file import find_file, parse
from specdrive_ros.engine.graph_file import exported_flow_steps
from specdrive_ros.errors import InputError
from specdrive_ros.model_settings import ModelSettings, find_model
from specdrive_ros.target.config import TargetConfig
from specdrive_ros.validation import is_count, require
from specdrive_ros.yaml_file import known_names, read_yaml

SHAPES = Path("engines") / "shapes"
LONGEST_REASONING = 100_000  # tokens; every number of passes is tried


class _Counts:
    """Checks that every field is an integer of at least 1, those in `MAY_BE_ZERO` of at least 0."""

    MAY_BE_ZERO: tuple[str, ...] = ()

    def __post_init__(self):
        for name, value in vars(self).items():
            least = 0 if name in self.MAY_BE_ZERO else 1
            require(is_count(value, least), name, f"a whole number of at least {least}", value)


@dataclass(frozen=True)
class TextShape(_Counts):
    """The language model. shared_embedding: 1 if the output head is the embedding's matrix, else 0."""

    MAY_BE_ZERO = ("shared_embedding",)

    layers: int
    hidden: int
    inner: int
    heads: int
    kv_heads: int
    head: int
    vocabulary: int
    shared_embedding: int = 0


@dataclass(frozen=True)
class VisionShape(_Counts):
    """The vision model. mergers: networks that make one token of merge x merge patches, including deepstack's."""

    MAY_BE_ZERO = ("positions",)

    layers: int
    hidden: int
    inner: int
    heads: int
    merge: int = 2
    mergers: int = 1
    patch_values: int = 1536
    positions: int = 0


@dataclass(frozen=True)
class ExpertShape(_Counts):
    """The action expert; layers, key-value heads and head size are the language model's."""

    hidden: int
    inner: int
    heads: int
    waypoints: int
    steps: int


@dataclass(frozen=True)
class CycleShape(_Counts):
    """patches: per image; prompt, reasoning and capacity in tokens. reasoning: of a typical cycle."""

    cameras: int
    frames: int
    patches: int
    prompt: int
    reasoning: int
    capacity: int

    def __post_init__(self):
        super().__post_init__()
        require(self.reasoning <= LONGEST_REASONING, "reasoning", f"at most {LONGEST_REASONING}", self.reasoning)
        need = self.prompt + self.reasoning
        require(self.capacity >= need, "capacity", f"at least {need} (prompt and reasoning)", self.capacity)


@dataclass(frozen=True)
class ModelShape:
    """A model. The language models of public figures have neither vision nor action expert nor cycle."""

    title: str
    source: str
    text: TextShape
    vision: VisionShape | None = None
    expert: ExpertShape | None = None
    cycle: CycleShape | None = None


def find_shape(model: str | Path) -> ModelShape:
    """By name in `engines/shapes/`, path of such a file, or a model's name or folder. Raises `InputError`."""
    if str(model) in known_names(SHAPES) or Path(model).suffix in (".yaml", ".yml"):
        return read_shape(model)
    try:
        settings = find_model(model)
    except InputError as error:
        raise InputError(f"{error}; shapes without a checkpoint: {', '.join(known_names(SHAPES))}") from None
    return shape_of(settings)


def read_shape(name: str | Path) -> ModelShape:
    path = find_file("model", SHAPES, name)
    return parse(ModelShape, read_yaml(path), str(path))


def shape_of(settings: ModelSettings, reasoning: int = 20) -> ModelShape:
    """From a checkpoint's config and tokenizer. Images are assumed to have the most pixels that the config allows."""
    config = TargetConfig.load(settings.checkpoint)
    text, vision, expert = config.text, config.vision, config.expert
    patches = config.images.max_pixels // vision.patch_size**2
    prompt = _prompt_tokens(config, len(settings.cameras) * settings.frames_per_camera, patches)
    return ModelShape(
        title=str(settings.checkpoint.resolve().name),
        source=str(settings.checkpoint / "config.json"),
        text=TextShape(
            text.num_hidden_layers, text.hidden_size, text.intermediate_size, text.num_attention_heads,
            text.num_key_value_heads, text.head_dim, text.vocab_size,
        ),
        vision=VisionShape(
            vision.depth, vision.hidden_size, vision.intermediate_size, vision.num_heads, vision.spatial_merge_size,
            1 + len(vision.deepstack_visual_indexes), vision.patch_values, vision.num_position_embeddings,
        ),
        expert=ExpertShape(
            expert.hidden_size, expert.intermediate_size, expert.num_attention_heads,
            config.action_space.n_waypoints, settings.action_steps or exported_flow_steps(settings.checkpoint),
        ),
        cycle=CycleShape(
            len(settings.cameras), settings.frames_per_camera, patches, prompt, reasoning,
            prompt + max(reasoning, settings.max_new_tokens) + 64,
        ),
    )  # fmt: skip


def _prompt_tokens(config: TargetConfig, images: int, patches: int) -> int:
    from specdrive_ros.target.prompt import placeholder_ids
    from specdrive_ros.target.tokens import TargetTokenizer

    merge = config.vision.spatial_merge_size
    grids = np.array([[1, merge, patches // merge]] * images)
    return len(placeholder_ids(config, TargetTokenizer.load(config), grids))


def with_cycle(shape: ModelShape, **changes: int) -> ModelShape:
    """The shape with changed numbers in its cycle; the capacity grows with them. Raises `InputError` without a
    cycle."""
    if shape.cycle is None or shape.vision is None or shape.expert is None:
        raise InputError(f"{shape.title}: has no vision, action expert and cycle; it must be a driving model")
    values = vars(shape.cycle) | changes
    values["capacity"] = max(values["capacity"], values["prompt"] + values["reasoning"])
    return replace(shape, cycle=CycleShape(**values))
