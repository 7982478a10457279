"""Which target a draft belongs to: a fingerprint of the target's language model, and its output head, without torch.

The fingerprint is that of the final norm, some hundred values that change with every training step of the language
model and stay the same when only the action head is trained; a checkpoint of 22 GB need not be read for it.
"""

import hashlib
from pathlib import Path

import numpy as np

from specdrive_ros.draft.config import DraftConfig
from specdrive_ros.errors import InputError
from specdrive_ros.runtime.weights_file import TensorPlace, tensor_places

FINAL_NORM = "vlm.model.language_model.norm.weight"
OUTPUT_HEAD = "vlm.lm_head.weight"


def fingerprint(final_norm: np.ndarray) -> str:
    """16 hexadecimal digits, from the weights [E] of the norm before the output head."""
    return hashlib.sha256(np.ascontiguousarray(final_norm, np.float32)).hexdigest()[:16]


def fingerprint_of(folder: str | Path) -> str:
    return fingerprint(_place(Path(folder), FINAL_NORM).read())


def output_head(folder: str | Path) -> np.ndarray:
    """[vocabulary, E]: mapped if the file is float32, else converted."""
    return _place(Path(folder), OUTPUT_HEAD).read()


def check_fingerprint(config: DraftConfig, found: str, where: str) -> None:
    """Raises `InputError` if a draft names a target other than this one."""
    if config.target and config.target != found:
        raise InputError(
            f"{where}: was trained on the target {config.target}, this one is {found} (the same sizes, other "
            f"weights); train a draft for this target: ./specdrive train draft --kind {config.kind} --model MODEL"
        )


def _place(folder: Path, name: str) -> TensorPlace:
    places = tensor_places(folder)
    if name not in places:
        raise InputError(f"{folder}: has no tensor {name}; it must be a target's checkpoint folder")
    return places[name]
