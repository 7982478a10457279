"""Whether the engines in a folder are intact and would be built the same today: `engine verify`.

What cannot be compared here (a module that is not installed, a missing GPU, a model elsewhere) is reported, not
guessed.
"""

from dataclasses import dataclass
from pathlib import Path

from specdrive_ros.engine.building import export_remedy
from specdrive_ros.engine.cuda_driver import DeviceInfo, device_at_hand
from specdrive_ros.engine.graph_file import graph_identity_parts
from specdrive_ros.engine.manifest import Entry
from specdrive_ros.engine.serving import installed_version, todays
from specdrive_ros.engine.store import EngineStore
from specdrive_ros.errors import InputError


@dataclass(frozen=True)
class Verdict:
    """faults: what is wrong, empty if the engine may be used; unchecked: what could not be compared here."""

    entry: Entry
    faults: tuple[str, ...]
    unchecked: tuple[str, ...]

    @property
    def fits(self) -> bool:
        return not self.faults


def judge(store: EngineStore, folder: Path | None = None) -> list[Verdict]:
    """One verdict per engine. folder: of the model to compare with; None: the one each engine was built from.

    Raises `EngineDamaged` if the manifest cannot be trusted.
    """
    device = _device()
    return [_judge_one(store, entry, folder, device) for entry in store.entries()]


def _judge_one(store: EngineStore, entry: Entry, folder: Path | None, device: DeviceInfo | None) -> Verdict:
    faults, unchecked = list(store.faults(entry)), []
    identity, model = entry.identity, Path(folder or entry.model)
    if installed_version(identity.builder) is None:
        unchecked.append(f"version: {identity.builder} is not installed here")
    if device is None:
        unchecked.append("target: no GPU here")
    try:
        if folder is None and not model.is_dir():
            unchecked.append(f"graph and weights: {model} is not here; name the model with --model")
            onnx, weights = identity.onnx, identity.weights
        else:
            _, onnx, weights = graph_identity_parts(
                model / f"{identity.graph}.onnx", export_remedy(model, identity.graph)
            )
        faults += identity.differences(todays(identity, onnx, weights, device))
    except InputError as error:
        faults.append(str(error))
    return Verdict(entry, tuple(faults), tuple(unchecked))


def _device() -> DeviceInfo | None:
    try:
        return device_at_hand()
    except InputError:
        return None
