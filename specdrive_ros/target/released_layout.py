"""The released JSON layout of a checkpoint folder: read into a `TargetConfig`, written from one.

`config.json` beside the weights says what the reasoning model adds (tokens, expert, action space), and
`vlm_name_or_path` in it names the folder of the vision-language backbone, whose own `config.json` has the rest.
Nothing is downloaded and nothing is guessed: a missing value or one of a wrong type raises `InputError`. Relations
between values are checked by the configs themselves.
"""

import json
from dataclasses import asdict, fields
from pathlib import Path

from specdrive_ros.errors import InputError
from specdrive_ros.json_file import parse_json
from specdrive_ros.target.config import (
    ActionInputConfig,
    ActionSpaceConfig,
    ExpertConfig,
    FutureTokenizerConfig,
    HistoryTokenizerConfig,
    ImageLimits,
    TargetConfig,
    TextConfig,
    VisionConfig,
    VocabularyConfig,
    require,
)

PACKAGE = "alpamayo_r1"  # the release's package, in its class names


def read_config(folder: str | Path) -> TargetConfig:
    """The config of a checkpoint folder and of the backbone it names. Raises `InputError`."""
    folder = Path(folder)
    where = str(folder / "config.json")
    released = read_json(folder / "config.json", "the checkpoint's config")
    causal = not released.get("expert_non_causal_attention", True)
    require(not causal, where, "expert_non_causal_attention must be true", False)
    backbone_folder = find_backbone(folder, str(_take(released, "vlm_name_or_path", where)))
    backbone_where = str(backbone_folder / "config.json")
    backbone = read_json(backbone_folder / "config.json", "the backbone's config")
    text = _text_config(backbone, _take(released, "vocab_size", where), backbone_where)
    return TargetConfig(
        text=text,
        vision=_vision_config(backbone, backbone_where),
        expert=_expert_config(*_section(released, "expert_cfg", where), text),
        action_input=_parse(ActionInputConfig, *_section(released, "action_in_proj_cfg", where)),
        vocabulary=_parse(VocabularyConfig, released, where),
        images=_parse(ImageLimits, released, where),
        action_space=_parse(ActionSpaceConfig, *_section(released, "action_space_cfg", where)),
        history=_parse(HistoryTokenizerConfig, *_section(released, "hist_traj_tokenizer_cfg", where)),
        future=_parse(FutureTokenizerConfig, *_section(released, "traj_tokenizer_cfg", where)),
        folder=folder,
        backbone_folder=backbone_folder,
    )


def find_backbone(folder: Path, name: str) -> Path:
    """The backbone's folder: `name` inside the checkpoint folder, else beside it, else as a path. Raises
    `InputError`."""
    beside = folder.parent / Path(name).name
    for candidate in (folder / name, folder.parent / name, Path(name), folder / Path(name).name, beside):
        if (candidate / "config.json").is_file():
            return candidate
    raise InputError(
        f"{folder / 'config.json'}: vlm_name_or_path {name!r} is no folder here and nothing is downloaded; "
        f"put the backbone's config.json and tokenizer.json into {beside}"
    )


def write_configs(
    folder: str | Path,
    config: TargetConfig,
    traj_token_ids: dict[str, int],
    base_vocab_size: int,
    base_token_ids: dict[str, int],
) -> None:
    """Writes `config.json` and `backbone/config.json` in the released layout, which `read_config` reads.

    traj_token_ids: ids of the trajectory placeholders and brackets (`TargetTokenizer.trajectory_ids`).
    base_token_ids: ids of `<|image_pad|>`, `<|vision_start|>` … in the base vocabulary.
    """
    folder = Path(folder)
    (folder / "backbone").mkdir(parents=True, exist_ok=True)
    for path, content in (
        (folder / "config.json", _released_json(config, traj_token_ids)),
        (folder / "backbone" / "config.json", _backbone_json(config, base_vocab_size, base_token_ids)),
    ):
        path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def read_json(path: Path, what: str) -> dict:
    """The JSON object in a file; the `InputError` says what the file should be."""
    if path.is_fifo():  # reading it would wait forever
        raise InputError(f"{path} is a pipe; it must be {what}")
    try:
        content = parse_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path} does not exist; it must be {what}") from None
    except (ValueError, OSError) as error:
        raise InputError(f"{path} cannot be read as JSON ({error}); it must be {what}") from None
    require(isinstance(content, dict), str(path), "must be a JSON object", type(content).__name__)
    return content


def _take(source: dict, name: str, where: str) -> object:
    if name not in source:
        raise InputError(f"{where}: {name!r} is missing; the released layout has it")
    return source[name]


def _section(source: dict, name: str, where: str) -> tuple[dict, str]:
    """An object inside `source`, and the place to name in errors."""
    section, where = _take(source, name, where), f"{where} {name}"
    require(isinstance(section, dict), where, "must be an object", section)
    return section, where


def _parse(kind: type, source: dict, where: str):
    """A config dataclass from the keys of the same names, all of which must be there."""
    return kind(
        **{
            item.name: _typed(_take(source, item.name, where), item.type, f"{where} {item.name}")
            for item in fields(kind)
        }
    )


def _typed(value: object, kind: type, where: str) -> object:
    """`value` as an int, a float or a tuple of numbers."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if kind is int:
        require(number and isinstance(value, int), where, "must be a whole number", value)
        return value
    if kind is float:
        require(number, where, "must be a number", value)
        return float(value)
    numbers = isinstance(value, list) and all(isinstance(item, (int, float)) for item in value)
    require(numbers, where, "must be a list of numbers", value)
    return tuple(value)


def _text_config(backbone: dict, vocab_size: object, where: str) -> TextConfig:
    source, where = _section(backbone, "text_config", where)
    rope = source.get("rope_scaling") or source.get("rope_parameters") or {}
    require(isinstance(rope, dict), f"{where} rope_scaling", "must be an object", rope)
    tied = source.get("tie_word_embeddings", backbone.get("tie_word_embeddings", False))
    for name, value, needed in (
        ("hidden_act", source.get("hidden_act", "silu"), "silu"),
        ("attention_bias", source.get("attention_bias", False), False),
        ("tie_word_embeddings", tied, False),
        ("mrope_interleaved", rope.get("mrope_interleaved"), True),
    ):
        require(value == needed, f"{where} {name}", f"must be {needed!r}", value)
    optional = _defaults(TextConfig, "rms_norm_eps", "initializer_range", "max_position_embeddings")
    return _parse(TextConfig, {**optional, **source, **rope, "vocab_size": vocab_size}, where)


def _vision_config(backbone: dict, where: str) -> VisionConfig:
    source, where = _section(backbone, "vision_config", where)
    needed = "gelu_pytorch_tanh"
    activation = source.get("hidden_act", needed)
    require(activation == needed, f"{where} hidden_act", f"must be {needed!r}", activation)
    optional = _defaults(VisionConfig, "in_channels", "initializer_range")
    return _parse(VisionConfig, {**optional, **source}, where)


def _defaults(kind: type, *names: str) -> dict:
    """Defaults of a config for values that the files may leave out."""
    return {name: getattr(kind, name) for name in names}


def _expert_config(source: dict, where: str, text: TextConfig) -> ExpertConfig:
    """The expert's overrides of the text config; everything else is taken from there."""
    for name in ("num_hidden_layers", "num_key_value_heads"):
        needed = getattr(text, name)
        require(
            source.get(name, needed) == needed,
            f"{where} {name}",
            f"must be {needed}, the text model's, whose cache the expert reads",
            source.get(name),
        )
    return _parse(ExpertConfig, {**asdict(text), **source}, where)


def _released_json(config: TargetConfig, traj_token_ids: dict[str, int]) -> dict:
    action_space = {
        "_target_": f"{PACKAGE}.action_space.UnicycleAccelCurvatureActionSpace",
        **asdict(config.action_space),
    }
    return {
        "architectures": ["AlpamayoR1"],
        "model_type": PACKAGE,
        "vlm_name_or_path": "backbone",
        "vlm_backend": "qwenvl3",
        "dtype": "float32",
        "model_dtype": "float32",
        "keep_same_dtype": True,
        "attn_implementation": "sdpa",
        "vocab_size": config.text.vocab_size,
        "add_special_tokens": True,
        **asdict(config.vocabulary),
        "traj_token_ids": traj_token_ids,
        **asdict(config.images),
        "expert_cfg": {"dtype": "float32", **asdict(config.expert)},
        "expert_non_causal_attention": True,
        "action_in_proj_cfg": {
            "_target_": f"{PACKAGE}.models.action_in_proj.PerWaypointActionInProjV2",
            **asdict(config.action_input),
        },
        "action_out_proj_cfg": {"_target_": "torch.nn.Linear"},
        "action_space_cfg": action_space,
        "diffusion_cfg": {
            "_target_": f"{PACKAGE}.diffusion.flow_matching.FlowMatching",
            "int_method": "euler",
            "x_dims": "???",
        },
        "hist_traj_tokenizer_cfg": {
            "_target_": f"{PACKAGE}.models.delta_tokenizer.DeltaTrajectoryTokenizer",
            "load_weights": False,
            "predict_yaw": False,
            **asdict(config.history),
        },
        "traj_tokenizer_cfg": {
            "_target_": f"{PACKAGE}.action_space.DiscreteTrajectoryTokenizer",
            "_recursive_": False,
            "action_space_cfg": action_space,
            **asdict(config.future),
        },
    }


def _backbone_json(config: TargetConfig, base_vocab_size: int, base_token_ids: dict[str, int]) -> dict:
    text = asdict(config.text)
    rope = {"rope_type": "default", "mrope_interleaved": True, "mrope_section": text.pop("mrope_section")}
    return {
        "architectures": ["Qwen3VLForConditionalGeneration"],
        "model_type": "qwen3_vl",
        "image_token_id": base_token_ids["<|image_pad|>"],
        "video_token_id": base_token_ids["<|video_pad|>"],
        "vision_start_token_id": base_token_ids["<|vision_start|>"],
        "vision_end_token_id": base_token_ids["<|vision_end|>"],
        "tie_word_embeddings": False,
        "text_config": {
            "model_type": "qwen3_vl_text",
            "hidden_act": "silu",
            "attention_bias": False,
            "attention_dropout": 0.0,
            "use_cache": True,
            "dtype": "float32",
            "bos_token_id": base_token_ids["<|endoftext|>"],
            "eos_token_id": base_token_ids["<|im_end|>"],
            **text,
            "rope_scaling": rope,
            "vocab_size": base_vocab_size,
        },
        "vision_config": {
            "model_type": "qwen3_vl",
            "hidden_act": "gelu_pytorch_tanh",
            **asdict(config.vision),
        },
    }
