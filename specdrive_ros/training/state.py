"""A training run on disk: weights, optimiser and step in one safetensors file, so that a run can be resumed.

No pickle anywhere. Batches are drawn from (seed, step) alone, so a resumed run sees the same ones as an unbroken one.
"""

import json
import math
from pathlib import Path

import torch
from accelerate import PartialState
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from specdrive_ros.atomic_file import atomic_write
from specdrive_ros.errors import InputError


def save_state(path: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer, step: int, record: dict) -> None:
    """Writes atomically: a run killed while saving keeps the previous state. Only the first of several processes
    writes; their weights are identical."""
    if not PartialState().is_main_process:
        return
    tensors = {f"model.{name}": value.detach().cpu().contiguous() for name, value in trainable(model)}
    for name, parameter in trainable(model):
        for key, value in optimizer.state.get(parameter, {}).items():
            tensors[f"optimizer.{key}.{name}"] = torch.as_tensor(value).detach().cpu().clone().contiguous()
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(path) as unfinished:
        save_file(tensors, str(unfinished), metadata={"step": str(step), "record": json.dumps(record)})


def load_state(path: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> tuple[int, dict]:
    """Loads weights and optimiser state; returns (step, record), or (0, {}) if there is no state yet.

    Raises InputError if the file is unreadable or does not fit the model.
    """
    if not path.exists():
        return 0, {}
    try:
        with safe_open(str(path), "pt") as file:
            stored = {name: file.get_tensor(name) for name in file.keys()}
            meta = file.metadata()
    except (SafetensorError, OSError) as error:
        raise InputError(f"training state cannot be read: {path} ({error}); delete it to start anew") from error
    for name, parameter in trainable(model):
        value = stored.get(f"model.{name}")
        if value is None or value.shape != parameter.shape:
            raise InputError(f"training state does not fit this model: {path} ({name}); delete it to start anew")
        parameter.data.copy_(value)
        state = {key: stored[f"optimizer.{key}.{name}"] for key in ("step", "exp_avg", "exp_avg_sq", "momentum")
                 if f"optimizer.{key}.{name}" in stored}
        if state:
            optimizer.state[parameter] = state
    return int(meta["step"]), json.loads(meta["record"])


def trainable(model: torch.nn.Module) -> list[tuple[str, torch.nn.Parameter]]:
    return [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]


def cosine_rate(step: int, steps: int, peak: float, warmup: int = 100, floor: float = 0.02) -> float:
    """Learning rate: linear warm-up, then half a cosine down to `floor * peak`."""
    if step < warmup:
        return peak * (step + 1) / warmup
    progress = min(1.0, (step - warmup) / max(1, steps - warmup))
    return peak * (floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * progress)))
