"""Checkpoints of the target: safetensors in, safetensors out, every name and shape accounted for.

Reads one `model.safetensors` or the shards named by its index. Nothing is unpickled and no code is run; a missing or
unexpected name, a wrong shape or a damaged file raises one `InputError`.
"""

from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from transformers.models.qwen3_vl.modeling_qwen3_vl import (
    Qwen3VLTextRotaryEmbedding,
    Qwen3VLVisionRotaryEmbedding,
)

from specdrive_ros.errors import InputError
from specdrive_ros.runtime.weights_file import WEIGHTS, list_some, weights_files
from specdrive_ros.target.config import TargetConfig
from specdrive_ros.target.network import AlpamayoTarget


def load_target(folder: str | Path, *, dtype: torch.dtype | None = torch.float32) -> AlpamayoTarget:
    """The target of a checkpoint folder, in evaluation mode. `dtype` None keeps the file's."""
    folder = Path(folder)
    weights = read_weights(folder)
    target = outline_target(folder, {name: tuple(value.shape) for name, value in weights.items()})
    if dtype is not None:  # one by one: the file's tensors are mapped, and each is released once it is converted
        weights = {name: weights.pop(name).to(dtype) for name in list(weights)}
    target.load_state_dict(weights, strict=True, assign=True)
    _make_rotary_embeddings(target)
    return target.eval()


def outline_target(folder: str | Path, shapes: dict[str, tuple[int, ...]]) -> AlpamayoTarget:
    """The target without weights, on the meta device. shapes: of the checkpoint's tensors, which must match
    exactly."""
    with torch.device("meta"):
        target = AlpamayoTarget(TargetConfig.load(folder))
    expected = {name: tuple(value.shape) for name, value in target.state_dict().items()}
    check_names_and_shapes(str(folder), expected, shapes)
    return target.eval()


def save_target(target: AlpamayoTarget, folder: str | Path) -> Path:
    """Writes `model.safetensors` (one file) into a folder; the configs are written by `write_configs`."""
    path = Path(folder) / WEIGHTS
    path.parent.mkdir(parents=True, exist_ok=True)
    weights = {name: value.detach().cpu().contiguous() for name, value in target.state_dict().items()}
    save_file(weights, path, metadata={"format": "pt"})
    return path


def read_weights(folder: Path) -> dict[str, Tensor]:
    """Every tensor of a checkpoint folder by name. Raises `InputError` for a damaged file."""
    weights: dict[str, Tensor] = {}
    for path in weights_files(folder):
        try:
            with safe_open(path, framework="pt") as file:
                weights.update({name: file.get_tensor(name) for name in file.keys()})
        except (SafetensorError, OSError, RuntimeError, ValueError) as error:
            raise InputError(
                f"{path} is damaged or no safetensors file ({error}); fetch or save it again"
            ) from None
    return weights


def check_names_and_shapes(where: str, expected: dict[str, tuple], found: dict[str, tuple]) -> None:
    """Raises one `InputError` listing missing names, unexpected names and wrong shapes."""
    faults = []
    if missing := sorted(expected.keys() - found.keys()):
        faults.append(f"{len(missing)} missing ({list_some(missing)})")
    if unexpected := sorted(found.keys() - expected.keys()):
        faults.append(f"{len(unexpected)} unexpected ({list_some(unexpected)})")
    wrong = [
        f"{name} {list(found[name])} must be {list(expected[name])}"
        for name in sorted(expected.keys() & found.keys())
        if tuple(found[name]) != tuple(expected[name])
    ]
    if wrong:
        faults.append(f"{len(wrong)} of another shape ({list_some(wrong)})")
    if faults:
        raise InputError(f"weights in {where} do not fit config.json: {'; '.join(faults)}")


def _make_rotary_embeddings(target: AlpamayoTarget) -> None:
    """Makes the frequencies, which no checkpoint contains: a model built on the meta device has them without
    values."""
    for model in (target.language_model, target.expert):
        model.rotary_emb = Qwen3VLTextRotaryEmbedding(model.config)
    visual = target.vlm.model.visual
    visual.rotary_pos_emb = Qwen3VLVisionRotaryEmbedding(visual.config)
