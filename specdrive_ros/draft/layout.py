"""`config.json` of a draft: reads the public layouts, writes ours.

| layout | kind | contents |
|---|---|---|
| SafeAILab EAGLE | eagle3 | sizes and `draft_vocab_size`; neither target layers nor taps |
| z-lab DFlash | dflash | sizes, `block_size`, `num_target_layers`, `dflash_config` |
| speculators | both | `speculators_model_type`, sizes in `transformer_layer_config` |

Ours are the first two plus a section `specdrive`: rotary embedding, taps, target. What a file leaves out is never
guessed if that could silently change results; what this implementation does not support is refused by name. Knows no
weights and no torch.
"""

import json
from pathlib import Path

from specdrive_ros.draft.config import DFlashConfig, DraftConfig, Eagle3Config
from specdrive_ros.draft.taps import dflash_taps, eagle3_taps, from_outputs, to_outputs
from specdrive_ros.errors import InputError
from specdrive_ros.target.config import TextConfig, require
from specdrive_ros.target.released_layout import read_json

CONFIG = "config.json"
LAYOUT_OF_KEY = {  # in this order: speculators' EAGLE-3 has a draft_vocab_size, too
    "speculators_model_type": "speculators",
    "dflash_config": "z-lab DFlash",
    "draft_vocab_size": "SafeAILab EAGLE-3",
}
_SIZES = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
          "vocab_size")  # fmt: skip


def read_draft_config(folder: str | Path, text: TextConfig) -> Eagle3Config | DFlashConfig:
    """The config of a draft folder, checked against the target it is for. Raises `InputError`."""
    path = Path(folder) / CONFIG
    source = read_json(path, "a draft's config in the layout of EAGLE, DFlash or speculators")
    try:
        config = _config_of(source, text, path)
    except InputError as error:  # about a value: only here is it known which file it is in
        raise InputError(str(error) if str(path) in str(error) else f"{path}: {error}") from None
    config.check_target(text, str(folder))
    return config


def layout_of(source: dict) -> str | None:
    """The layout of a `config.json`, by the keys that only it has; None if it is not a draft's."""
    return next((layout for key, layout in LAYOUT_OF_KEY.items() if key in source), None)


def _config_of(source: dict, text: TextConfig, path: Path) -> Eagle3Config | DFlashConfig:
    layout = layout_of(source)
    if layout == "speculators":
        return _from_speculators(source, text, str(path))
    if layout == "z-lab DFlash":
        return _dflash(source, str(path), **_zlab(source, str(path)))
    if layout == "SafeAILab EAGLE-3":
        return _eagle3(source, text, str(path), eagle3_taps(text.num_hidden_layers), qk_norm=False)
    raise InputError(
        f"{path}: is no draft; it must have draft_vocab_size (EAGLE-3), dflash_config (DFlash) or "
        "speculators_model_type"
    )


def _zlab(source: dict, where: str) -> dict:
    section = _section(source, "dflash_config", where)
    layers = _whole(source, "num_target_layers", where)
    ids = _layers(section, "target_layer_ids", f"{where} dflash_config")
    taps = dflash_taps(layers, _whole(source, "num_hidden_layers", where)) if ids is None else from_outputs(ids)
    return {
        "taps": taps,
        "target_layers": layers,
        "block_size": _whole(source, "block_size", where),
        "mask_token_id": _whole(section, "mask_token_id", f"{where} dflash_config"),
    }


def _from_speculators(source: dict, text: TextConfig, where: str) -> Eagle3Config | DFlashConfig:
    kind = source["speculators_model_type"]
    layer = {**_section(source, "transformer_layer_config", where), "specdrive": source.get("specdrive", {})}
    within = f"{where} transformer_layer_config"
    for name in ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output", "sample_from_anchor",
                 "sliding_window_non_causal"):  # fmt: skip
        require(not source.get(name), f"{where} {name}", "must be false, the published form", source.get(name))
    if kind == "eagle3":
        family = layer.get("model_type")
        known = ("llama", "qwen3")
        require(family in known, f"{within} model_type", f"must be one of {', '.join(known)}", family)
        taps = _layers(source, "eagle_aux_hidden_state_layer_ids", where) or eagle3_taps(text.num_hidden_layers)
        layer["draft_vocab_size"] = _whole(source, "draft_vocab_size", where)
        return _eagle3(layer, text, within, tuple(taps), qk_norm=family == "qwen3")
    require(kind == "dflash", f"{where} speculators_model_type", "must be eagle3 or dflash", kind)
    taps = _layers(source, "aux_hidden_state_layer_ids", where)
    require(taps is not None, f"{where} aux_hidden_state_layer_ids", "must be a list of layers", taps)
    return _dflash(
        layer, within, taps=tuple(taps), target_layers=text.num_hidden_layers,
        block_size=source.get("block_size", 8), mask_token_id=_whole(source, "mask_token_id", where),
    )  # fmt: skip


def _eagle3(source: dict, text: TextConfig, where: str, taps: tuple[int, ...], qk_norm: bool) -> Eagle3Config:
    theta = _theta(source, where, default=10000.0)  # default for what Llama's configs leave out
    return Eagle3Config(
        **_common(source, where, theta, taps, text.num_hidden_layers),
        draft_vocab_size=_whole(source, "draft_vocab_size", where),
        qk_norm=qk_norm,
    )


def _dflash(
    source: dict, where: str, *, taps: tuple[int, ...], target_layers: int, block_size: int, mask_token_id: int
) -> DFlashConfig:
    common = _common(source, where, _theta(source, where), taps, target_layers)
    return DFlashConfig(**common, block_size=block_size, mask_token_id=mask_token_id)


def _common(source: dict, where: str, theta: float, taps: tuple[int, ...], target_layers: int) -> dict:
    """Fields of both kinds; a section `specdrive` overrides what the public layout leaves to convention."""
    for name, needed in (("hidden_act", "silu"), ("attention_bias", False), ("mlp_bias", False)):
        require(source.get(name, needed) == needed, f"{where} {name}", f"must be {needed!r}", source.get(name))
    sizes = {name: _whole(source, name, where) for name in _SIZES}
    eps = source.get("rms_norm_eps")
    require(isinstance(eps, float), f"{where} rms_norm_eps", "must be a number", eps)
    own = _section(source, "specdrive", where) if "specdrive" in source else {}
    section = _layers(own, "mrope_section", f"{where} specdrive", "numbers")
    return {
        **sizes,
        "head_dim": source.get("head_dim") or sizes["hidden_size"] // sizes["num_attention_heads"],
        "rope_theta": theta,
        "rms_norm_eps": eps,
        "tap_layers": tuple(_layers(own, "tap_layers", f"{where} specdrive") or taps),
        "target_layers": own.get("target_layers", target_layers),
        "rope": own.get("rope", "flat"),
        "mrope_section": tuple(section) if section else None,
        "target": own.get("target", ""),
    }


def _theta(source: dict, where: str, default: float | None = None) -> float:
    scaling = source.get("rope_parameters") or source.get("rope_scaling") or {}
    require(isinstance(scaling, dict), f"{where} rope_scaling", "must be an object", scaling)
    kind = scaling.get("rope_type", "default")
    require(kind == "default", f"{where} rope_type", "must be 'default'", kind)
    theta = source.get("rope_theta", scaling.get("rope_theta", default))
    require(isinstance(theta, (int, float)), f"{where} rope_theta", "must be a number", theta)
    return float(theta)


def _section(source: dict, name: str, where: str) -> dict:
    require(isinstance(source.get(name), dict), f"{where} {name}", "must be an object", source.get(name))
    return source[name]


def _layers(source: dict, name: str, where: str, of: str = "layers") -> list[int] | None:
    """A list of integers, None if it is left out."""
    value = source.get(name)
    whole = isinstance(value, list) and all(type(each) is int for each in value)
    require(value is None or whole, f"{where} {name}", f"must be a list of {of}", value)
    return value


def _whole(source: dict, name: str, where: str) -> int:
    value = source.get(name)
    require(isinstance(value, int) and not isinstance(value, bool), f"{where} {name}", "must be a whole number", value)
    return value


def write_draft_config(folder: str | Path, config: Eagle3Config | DFlashConfig, dtype: str = "float32") -> None:
    """Writes `config.json` in the public layout of the kind, with the section `specdrive`. dtype: of the weights."""
    content = sizes_as_json(config) | {"torch_dtype": dtype}
    if isinstance(config, Eagle3Config):
        content |= {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "draft_vocab_size": config.draft_vocab_size,
        }
        require(not config.qk_norm, "eagle3 draft qk_norm", "must be false in the layout of EAGLE", True)
    else:
        content |= {
            "architectures": ["DFlashDraftModel"],
            "model_type": "qwen3",
            "block_size": config.block_size,
            "num_target_layers": config.target_layers,
            "dflash_config": {
                "mask_token_id": config.mask_token_id,
                "target_layer_ids": to_outputs(config.tap_layers),
            },
        }
    Path(folder).mkdir(parents=True, exist_ok=True)
    (Path(folder) / CONFIG).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def sizes_as_json(config: DraftConfig) -> dict:
    """The sizes of a layer that every layout has, and our section `specdrive`."""
    return {
        **{name: getattr(config, name) for name in (*_SIZES, "head_dim", "rope_theta", "rms_norm_eps")},
        "hidden_act": "silu",
        "attention_bias": False,
        "tie_word_embeddings": False,
        "specdrive": {
            "rope": config.rope,
            "mrope_section": config.mrope_section,
            "tap_layers": config.tap_layers,
            "target_layers": config.target_layers,
            "target": config.target,
        },
    }
