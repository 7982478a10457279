"""Which of the built engines a machine uses, checked against the model, the module and the present GPU.

Precision and shapes are up to the engine; everything else in its identity must match today's. Nothing is built here: a
car that starts does not compile.
"""

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from specdrive_ros.engine.building import export_remedy
from specdrive_ros.engine.cuda_driver import DeviceInfo
from specdrive_ros.engine.faults import EngineFault, EngineMismatch, EngineMissing
from specdrive_ros.engine.graph_file import graph_identity_parts
from specdrive_ros.engine.identity import EngineIdentity
from specdrive_ros.engine.manifest import Entry
from specdrive_ros.engine.store import EngineStore
from specdrive_ros.engine.tensorrt import find_tensorrt, first_error, make_logger
from specdrive_ros.errors import InputError
from specdrive_ros.runtime.bindings import ADDED, EXPORT_VERSION, GraphRecord

log = logging.getLogger(__name__)
ENGINES_VARIABLE = "SPECDRIVE_ENGINES"
CHECKOUT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class ServedEngine:
    """An engine that may run here; `contexts` has one execution context per optimisation profile."""

    entry: Entry
    record: GraphRecord
    content: bytes = b""
    contexts: Sequence = ()


def default_engines(folder: Path) -> Path:
    """Where engines of a model are built and looked for: the folder named by SPECDRIVE_ENGINES, else a folder per
    model in the checkout or, without a checkout, in the user's cache."""
    if chosen := os.environ.get(ENGINES_VARIABLE):
        return Path(chosen)
    name = folder.resolve().name
    if (CHECKOUT / "pyproject.toml").is_file():
        return CHECKOUT / "engines" / "built" / name
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "specdrive_ros" / "engines" / name


def serve(store: EngineStore, folder: Path, graph: str, device: DeviceInfo) -> ServedEngine:
    """The newest engine of `graph` that fits model, module and GPU and is intact, with its bytes checked.

    If one is damaged, an older one that fits is used, with a warning. Raises `EngineFault` saying what differs in the
    nearest one, or what is wrong with the newest.
    """
    record, onnx, weights = graph_identity_parts(folder / f"{graph}.onnx", export_remedy(folder, graph))
    remedy = f"build it with: ./specdrive engine build --model {folder} --profile NAME"
    entries = [entry for entry in store.entries() if entry.identity.graph == graph]
    if not entries:
        raise EngineMissing(f"{store.folder}: no engine of {graph}; {remedy}")
    judged = [(entry.identity.differences(todays(entry.identity, onnx, weights, device)), entry) for entry in entries]
    fitting = [entry for differences, entry in judged if not differences]
    if not fitting:
        differences, nearest = min(judged, key=lambda pair: len(pair[0]))
        raise EngineMismatch(
            f"{store.folder / nearest.file}: does not fit here: {'; '.join(differences)}; {remedy}", differences
        )
    return _newest_whole(store, fitting, record)


def _newest_whole(store: EngineStore, fitting: list[Entry], record: GraphRecord) -> ServedEngine:
    faults: list[EngineFault] = []
    for entry in sorted(fitting, key=lambda entry: entry.built_at, reverse=True):
        try:
            stored = store.load(entry.identity)
        except EngineFault as fault:
            log.warning("%s; another engine of %s is looked for", fault, entry.identity.graph)
            faults.append(fault)
        else:
            return ServedEngine(stored.entry, record, stored.content)
    raise faults[0]


def todays(identity: EngineIdentity, onnx: str, weights: dict[str, str], device: DeviceInfo | None) -> EngineIdentity:
    """The identity as if built today for the present GPU; without a GPU the target stays as it is."""
    return replace(
        identity,
        onnx=onnx,
        weights=weights,
        builder_version=installed_version(identity.builder) or identity.builder_version,
        target=identity.target if device is None else _target_here(identity.target, device),
        export_version=EXPORT_VERSION,
        added=ADDED.get(identity.graph, ""),
    )


def installed_version(builder: str) -> str | None:
    """The module's version, None if it is not installed."""
    try:
        return find_tensorrt(builder).version
    except InputError:
        return None


def _target_here(target: str, device: DeviceInfo) -> str:
    """`target` itself if it includes the device, else a description of the device."""
    number = f"sm_{device.capability.replace('.', '')}"
    ours = f"{device.name} {number}"
    return target if target == ours or number in target.split("+") else ours


def open_contexts(engine: ServedEngine) -> ServedEngine:
    """Deserialises checked bytes. Raises `EngineMismatch` with TensorRT's own reason if it refuses."""
    tensorrt, errors = find_tensorrt(engine.entry.identity.builder), []
    trt = tensorrt.module
    logger = make_logger(trt, errors)
    runtime = trt.Runtime(logger)
    made = runtime.deserialize_cuda_engine(engine.content) if runtime else None
    if made is None:
        reason = first_error(errors, "it gave no reason")
        raise EngineMismatch(f"{engine.entry.file}: {tensorrt.name} does not load it ({reason}); build it again", ())
    check_bindings(trt, made, engine.entry)
    contexts = [made.create_execution_context() for _ in range(made.num_optimization_profiles)]
    for index, context in enumerate(contexts):
        context.set_optimization_profile_async(index, 0)
    return replace(engine, content=b"", contexts=_Contexts(contexts, made, runtime, logger))


def check_bindings(trt, made, entry: Entry) -> None:
    """Raises `EngineMismatch` unless the engine's own inputs and outputs are those of the entry."""
    from specdrive_ros.engine.builder import dtype_name

    names = [made.get_tensor_name(index) for index in range(made.num_io_tensors)]
    modes = {trt.TensorIOMode.INPUT: "input", trt.TensorIOMode.OUTPUT: "output"}
    found = {
        name: (
            modes[made.get_tensor_mode(name)],
            dtype_name(made.get_tensor_dtype(name)),
            tuple(made.get_tensor_shape(name)),
        )
        for name in names
    }
    wanted = {binding.name: (binding.mode, binding.dtype, binding.shape) for binding in entry.bindings}
    differing = tuple(
        f"{name}: {found.get(name)} -> {wanted.get(name)}"
        for name in sorted({*found, *wanted})
        if found.get(name) != wanted.get(name)
    )
    if differing:
        raise EngineMismatch(f"{entry.file}: binds otherwise than its manifest says: {'; '.join(differing)}", differing)


class _Contexts(list):
    """Execution contexts, together with the objects that must stay alive for them."""

    def __init__(self, contexts, *kept):
        super().__init__(contexts)
        self._kept = kept
