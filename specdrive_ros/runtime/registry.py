"""Runtimes by name. Imports one only when asked for it, so that driving needs no torch."""

from importlib import import_module
from pathlib import Path

from specdrive_ros.errors import InputError
from specdrive_ros.runtime.networks import TargetNetworks

RUNTIMES = {
    "onnxruntime": ("specdrive_ros.runtime.onnx_networks", "OnnxNetworks", "pip install onnxruntime"),
    "torch": ("specdrive_ros.runtime.torch_networks", "TorchNetworks", "pip install 'specdrive_ros[train]'"),
    "tensorrt": (
        "specdrive_ros.runtime.tensorrt_networks",
        "TensorRtNetworks",
        "pip install 'specdrive_ros[tensorrt-rtx]'",
    ),
}


def load_networks(folder: str | Path, runtime: str = "onnxruntime", *, threads: int = 1) -> TargetNetworks:
    """The networks of a checkpoint folder. Raises `InputError` for an unknown runtime or one that is not installed."""
    if runtime not in RUNTIMES:
        raise InputError(f"runtime {runtime!r}: unknown; it must be one of {', '.join(RUNTIMES)}")
    module, name, remedy = RUNTIMES[runtime]
    try:
        networks = getattr(import_module(module), name)
    except ImportError as error:
        raise InputError(f"runtime {runtime!r}: {error.name} is not installed; {remedy}") from None
    return networks.load(folder, threads=threads)
