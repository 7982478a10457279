"""Weights of a draft: reads both public layouts, writes ours, every name accounted for. PyTorch.

speculators calls the layer of EAGLE-3 `layers.0`, SafeAILab `midlayer`. Copies of the target's weights (embedding,
head, final norm) may be in a file and are ignored: a draft reads the target's own.
"""

from pathlib import Path
from typing import TypeVar

import torch
from safetensors.torch import save_file
from torch import Tensor

from specdrive_ros.draft.config import DFlashConfig, Eagle3Config
from specdrive_ros.draft.dflash_network import DFlash
from specdrive_ros.draft.eagle3_network import Eagle3
from specdrive_ros.draft.layout import read_draft_config, write_draft_config
from specdrive_ros.errors import InputError
from specdrive_ros.runtime.weights_file import WEIGHTS
from specdrive_ros.target.checkpoint import check_names_and_shapes, read_weights
from specdrive_ros.target.config import TextConfig

T = TypeVar("T")
OF_THE_TARGET = ("embed_tokens.weight", "verifier_lm_head.weight", "verifier_norm.weight")


def new_draft(config: Eagle3Config | DFlashConfig) -> Eagle3 | DFlash:
    return Eagle3(config) if isinstance(config, Eagle3Config) else DFlash(config)


def outline_draft(config: Eagle3Config | DFlashConfig) -> Eagle3 | DFlash:
    """A draft without weights, on the meta device."""
    with torch.device("meta"):
        return new_draft(config).eval()


def load_draft_network(
    folder: str | Path, text: TextConfig, *, dtype: torch.dtype | None = torch.float32
) -> Eagle3 | DFlash:
    """The network of a draft folder for a target of these sizes, checked. `dtype` None keeps the file's."""
    config = read_draft_config(folder, text)
    draft = outline_draft(config)
    weights = published_names(read_weights(Path(folder)), config)
    check_names_and_shapes(
        str(folder),
        {name: value.shape for name, value in draft.state_dict().items()},
        {name: value.shape for name, value in weights.items()},
    )
    if dtype is not None:
        weights = {name: value.to(dtype) if value.is_floating_point() else value for name, value in weights.items()}
    draft.load_state_dict(weights, strict=True, assign=True)
    if isinstance(draft, Eagle3):
        check_vocabulary(draft.d2t, draft.t2d, str(folder))
    return draft.eval()


def published_names(weights: dict[str, T], config: Eagle3Config | DFlashConfig) -> dict[str, T]:
    """A file's tensors, or their places, by the names of the kind's own repository, without copies of the target's."""
    if isinstance(config, DFlashConfig):
        return {name: value for name, value in weights.items() if name not in (*OF_THE_TARGET, "lm_head.weight")}
    return {
        name.replace("layers.0.", "midlayer.", 1) if name.startswith("layers.0.") else name: value
        for name, value in weights.items()
        if name not in OF_THE_TARGET
    }


def check_vocabulary(d2t: Tensor, t2d: Tensor, where: str) -> None:
    """Raises `InputError` unless both maps of the reduced vocabulary describe the same tokens."""
    ids = torch.arange(len(d2t)) + d2t
    said = torch.zeros_like(t2d, dtype=torch.bool)
    if int(ids.min()) >= 0 and int(ids.max()) < len(t2d):
        said[ids] = True
    if not torch.equal(said, t2d.bool()):
        raise InputError(f"{where}: d2t and t2d disagree about the draft's words; fetch or convert the draft again")


def save_draft(draft: Eagle3 | DFlash, folder: str | Path) -> Path:
    """Writes `config.json` and `model.safetensors` in the public layout of the kind."""
    write_draft_config(folder, draft.config, str(draft.fc.weight.dtype).removeprefix("torch."))
    path = Path(folder) / WEIGHTS
    weights = {name: value.detach().cpu().contiguous() for name, value in draft.state_dict().items()}
    save_file(weights, str(path), metadata={"format": "pt"})
    return path
