"""Finds TensorRT: its own module on Jetson, DRIVE and data-centre GPUs, TensorRT for RTX elsewhere.

Both have the same API; the differences are collected here. The module is imported only on request, never at the top of
a file: nothing else in the package needs it.
"""

import re
import warnings
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType

from specdrive_ros.errors import InputError, WorkFailed

RTX, PROPER = "tensorrt_rtx", "tensorrt"
_MODULES = {PROPER: ("tensorrt",), RTX: ("tensorrt_rtx", "tensorrt_rtx_bindings")}
_REMEDY = {
    PROPER: "it comes with the device's image (JetPack, DriveOS) or from NVIDIA's package index",
    RTX: "pip install 'specdrive_ros[tensorrt-rtx]'",
}


@dataclass(frozen=True)
class TensorRT:
    """One of the two modules: `name` is tensorrt or tensorrt_rtx, whichever package it was imported from."""

    name: str
    module: ModuleType

    @property
    def version(self) -> str:
        return str(self.module.__version__)

    @property
    def ahead_of_time(self) -> bool:
        """Whether it builds for compute capabilities that are not present."""
        return self.name == RTX


def find_tensorrt(wanted: str = "auto") -> TensorRT:
    """The module `wanted`; auto prefers tensorrt. Raises `InputError` if it is not installed or broken."""
    names = (PROPER, RTX) if wanted == "auto" else (wanted,)
    reasons = []
    for name in names:
        try:
            return TensorRT(name, _import(name))
        except ImportError as error:
            reasons.append(
                f"{name} is not installed ({_REMEDY[name]})"
                if _is_absent(error, name)
                else f"{name} does not load ({error})"
            )
    raise InputError(f"TensorRT: {'; '.join(reasons)}")


def _import(name: str) -> ModuleType:
    error: ImportError | None = None
    for module in _MODULES[name]:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                return import_module(module)
        except ModuleNotFoundError as missing:
            if missing.name != module:
                raise
            error = missing
    raise error


def _is_absent(error: ImportError, name: str) -> bool:
    return isinstance(error, ModuleNotFoundError) and error.name in _MODULES[name]


def make_logger(trt: ModuleType, keep: list[str]):
    """A silent logger that keeps errors for the message of an exception."""

    class Logger(trt.ILogger):
        def __init__(self):
            trt.ILogger.__init__(self)

        def log(self, severity, message):
            if severity in (trt.ILogger.Severity.ERROR, trt.ILogger.Severity.INTERNAL_ERROR):
                keep.append(" ".join(str(message).split()))

    return Logger()


def capabilities(trt: ModuleType) -> dict[str, object]:
    """ "8.9" -> the module's name for it; empty if it only builds for the present GPU."""
    members = getattr(trt, "ComputeCapability", None)
    if members is None:
        return {}
    numbers = {name: re.fullmatch(r"SM(\d+)(\d)", name) for name in dir(members)}
    return {f"{found[1]}.{found[2]}": getattr(members, name) for name, found in numbers.items() if found}


def first_error(messages: list[str], otherwise: str) -> WorkFailed:
    return WorkFailed(messages[0][:400] if messages else otherwise)
