"""Engines of a model for a profile: what is wanted, what exists, what has to be built.

Reads the exported graphs beside the checkpoint. A half precision is written into a graph just before it is compiled,
so that one export serves every precision; the choice of tokens and the mask of a draft's rows are added likewise.
Knows no device beyond what `targets` names.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from specdrive_ros.engine.axes import DRAFT_ENGINE_GRAPHS
from specdrive_ros.engine.builder import Progress, build_engine
from specdrive_ros.engine.cuda_driver import device_at_hand
from specdrive_ros.engine.faults import EngineFault, EngineMissing
from specdrive_ros.engine.graph_file import graph_identity_parts
from specdrive_ros.engine.identity import EngineIdentity
from specdrive_ros.engine.manifest import Entry
from specdrive_ros.engine.profile import CURRENT, BuildProfile, find_profile
from specdrive_ros.engine.store import EngineStore
from specdrive_ros.engine.tensorrt import TensorRT, find_tensorrt
from specdrive_ros.errors import InputError, WorkFailed
from specdrive_ros.model_settings import find_model
from specdrive_ros.runtime.bindings import ADDED, GRAPHS

TIMING_CACHE = "timing.cache"
COMPILED = ("fp32", "fp8", "int8w", "int4w")  # variants engines are built from; a precision comes on top

Marks = tuple[tuple[str, int, int, int], ...]


@dataclass(frozen=True)
class GraphOutcome:
    """The result for one graph: built or found up to date, and why it had to be built."""

    entry: Entry
    built: bool
    why: str = ""


@dataclass(frozen=True)
class Listener:
    """Called for each graph before it is compiled, and with the compiler's progress."""

    on_graph: Callable[[str, str], None] = lambda graph, why: None
    on_progress: Progress = lambda phase, done, total: None


def build_model(
    folder: Path, profile: BuildProfile, store: EngineStore, tensorrt: TensorRT, listener: Listener = Listener()
) -> list[GraphOutcome]:
    """Makes sure that `store` has an engine for every graph of the profile that the model has.

    An engine made from something else, or a damaged one, is built again, or refused if the profile says so
    (`EngineFault`). Raises `InputError` for a model that is not exported, `WorkFailed` for a graph that does not
    compile.
    """
    outcomes = []
    for graph in graphs_of(folder, profile):
        before = _marks(folder, graph)
        identity = wanted_identity(folder, graph, profile, tensorrt)
        outcomes.append(_obtain(folder, identity, before, profile, store, tensorrt, listener))
    return outcomes


def build_for_model(model: str, profile: str, say: Callable[[str], None]) -> list[GraphOutcome]:
    """`engine build` for a model and a profile by name or path, into the default folder; `say` gets a line per
    build."""
    from specdrive_ros.engine.serving import default_engines

    chosen, folder = find_profile(profile), find_model(model).checkpoint
    listener = Listener(lambda graph, why: say(f"building {graph}: {why}"))
    store = EngineStore(default_engines(folder))
    return build_model(folder, chosen, store, find_tensorrt(chosen.builder), listener)


def graphs_of(folder: Path, profile: BuildProfile) -> list[str]:
    """Graphs of the profile that this folder has: a target's, or those of the draft in it."""
    target = (folder / "text.onnx").is_file()
    if target or not any((folder / f"{name}.onnx").is_file() for name in DRAFT_ENGINE_GRAPHS):
        return [name for name in GRAPHS if name in profile.graphs]
    names = [name for name in DRAFT_ENGINE_GRAPHS if (folder / f"{name}.onnx").is_file()]
    missing = [name for name in names if name not in profile.graphs]
    if missing:
        raise InputError(f"profile {profile.name}: says nothing of {missing[0]}, which {folder} has")
    return names


def wanted_identity(folder: Path, graph: str, profile: BuildProfile, tensorrt: TensorRT) -> EngineIdentity:
    """The identity that an engine of `graph` built today would have."""
    record, onnx, weights = graph_identity_parts(folder / f"{graph}.onnx", export_remedy(folder, graph))
    if record.variant not in COMPILED:
        raise InputError(
            f"{folder / graph}.onnx: is in {record.variant}; engines are built from the fp32 export, or from one in "
            f"{', '.join(COMPILED[1:])}"
        )
    return EngineIdentity(
        graph=graph,
        onnx=onnx,
        weights=weights,
        precision=profile.precision,
        profile=profile.identity_of(graph),
        builder=tensorrt.name,
        builder_version=tensorrt.version,
        target=target_name(profile.targets),
        added=ADDED.get(graph, ""),
    )


def target_name(targets: tuple[str, ...]) -> str:
    """sm_86+sm_89, or name and capability of the present GPU. Raises `InputError` if there is none."""
    if targets == (CURRENT,):
        device = device_at_hand()
        return f"{device.name} sm_{device.capability.replace('.', '')}"
    numbers = sorted(int(target.replace(".", "")) for target in targets)
    return "+".join(f"sm_{number}" for number in numbers)


def export_remedy(folder: Path, graph: str) -> str:
    target = "" if graph in GRAPHS else " --target MODEL"
    return f"export it with: ./specdrive export {folder} {folder}{target}"


def _obtain(folder, identity, before: Marks, profile, store, tensorrt, listener) -> GraphOutcome:
    try:
        return GraphOutcome(store.load(identity).entry, built=False)
    except EngineMissing as fault:
        why = str(fault)
    except EngineFault as fault:
        if profile.on_mismatch == "refuse":
            raise
        why = str(fault)
    store.prove_writable()
    listener.on_graph(identity.graph, why)
    path = folder / f"{identity.graph}.onnx"
    onnx = graph_to_compile(path, identity.graph, profile.precision)
    cache = store.folder / TIMING_CACHE
    built = build_engine(
        tensorrt, identity.graph, onnx, path, profile, timing_cache=cache, on_progress=listener.on_progress
    )
    if _marks(folder, identity.graph) != before:
        raise WorkFailed(f"{path}: graph or weights were changed while it was compiled; nothing is kept, build again")
    entry = store.put(
        identity, built.content, model=str(folder.resolve()), build_s=built.seconds, bindings=built.bindings
    )
    return GraphOutcome(entry, built=True, why=why)


def _marks(folder: Path, graph: str) -> Marks:
    """Inode, size and modification time of the graph and of every file that may hold its weights. An identity says
    what they were when hashed; these show whether they are still the same after compiling."""
    paths = [folder / f"{graph}.onnx", *folder.glob("*.onnx.data"), *folder.glob("*.safetensors")]
    found = [(path.name, path.stat()) for path in sorted(paths) if path.is_file()]
    return tuple((name, one.st_ino, one.st_size, one.st_mtime_ns) for name, one in found)


def graph_to_compile(path: Path, graph: str, precision: str) -> bytes:
    """The serialized graph in a precision, with the additions that engines have; data files are referred to as before.

    Raises `InputError` if onnx is needed and not installed.
    """
    if precision == "fp32" and graph not in ADDED:
        return path.read_bytes()
    try:
        import onnx

        from specdrive_ros.engine.past_rows import add_past_rows
        from specdrive_ros.engine.precision import to_precision
        from specdrive_ros.engine.seen_rows import add_seen_rows
        from specdrive_ros.engine.token_choice import add_choice
    except ImportError:
        raise InputError(f"{graph} in {precision}: onnx is not installed; pip install onnx") from None
    rewritten = to_precision(onnx.load(str(path), load_external_data=False), precision)
    if graph in ADDED:
        rewritten = {"text": add_choice, "action_step": add_past_rows}.get(graph, add_seen_rows)(rewritten)
    return rewritten.SerializeToString()
