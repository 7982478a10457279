"""Compiles one graph to one engine, with tensorrt or tensorrt_rtx; strongly typed, so that precision is the graph's.

tensorrt_rtx can build for compute capabilities that are not present, without any GPU. Knows no store and no model.
"""

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from specdrive_ros.engine.axes import Ranges, profile_shapes
from specdrive_ros.engine.manifest import Binding, replace_file
from specdrive_ros.engine.profile import CURRENT, BuildProfile
from specdrive_ros.engine.tensorrt import TensorRT, capabilities, first_error, make_logger
from specdrive_ros.errors import InputError

log = logging.getLogger(__name__)
Progress = Callable[[str, int, int], None]  # phase, steps done, steps in total
_DTYPES = {"FLOAT": "float32", "HALF": "float16", "BF16": "bfloat16", "INT64": "int64", "INT32": "int32"}


@dataclass(frozen=True)
class BuiltEngine:
    """A serialized engine, its inputs and outputs, and the seconds it took to build."""

    content: bytes
    bindings: tuple[Binding, ...]
    seconds: float


def build_engine(
    tensorrt: TensorRT,
    graph: str,
    onnx: bytes,
    path: Path,
    profile: BuildProfile,
    *,
    timing_cache: Path | None = None,
    on_progress: Progress = lambda phase, done, total: None,
) -> BuiltEngine:
    """Compiles a serialized graph. Raises `WorkFailed` with TensorRT's own reason if it refuses.

    path:         where the graph comes from; files that it refers to are beside it
    timing_cache: file of measured kernels, read and rewritten; tensorrt_rtx measures none and ignores it.
    """
    begun, trt, errors = time.monotonic(), tensorrt.module, []
    logger = make_logger(trt, errors)
    builder = _builder(trt, logger, errors)
    network = _parse(trt, logger, builder, onnx, path, errors)
    config = builder.create_builder_config()
    _set_options(trt, config, profile)
    _set_targets(tensorrt, config, profile.targets)
    for ranges in profile.graphs[graph]:
        config.add_optimization_profile(_optimisation_profile(builder, network, graph, ranges))
    cache = None if tensorrt.ahead_of_time else _open_timing_cache(config, timing_cache)
    with _cancelled_by_signals() as cancelled:
        config.progress_monitor = _monitor(trt, on_progress, cancelled)
        serialized = builder.build_serialized_network(network, config)
    if serialized is None:
        raise first_error(errors, f"{graph}: {tensorrt.name} built nothing and gave no reason")
    if cache is not None:
        _keep_timing_cache(config, timing_cache)
    return BuiltEngine(bytes(serialized), _describe(network, graph, profile), time.monotonic() - begun)


def _builder(trt, logger, errors: list[str]):
    builder = trt.Builder(logger)
    if not builder:
        raise first_error(errors, "TensorRT made no builder; it needs an NVIDIA driver here")
    return builder


def _parse(trt, logger, builder, onnx: bytes, path: Path, errors: list[str]):
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = trt.OnnxParser(network, logger)
    if not parser.parse(onnx, str(path)):
        reasons = [parser.get_error(index).desc() for index in range(parser.num_errors)]
        raise first_error(reasons + errors, f"{path}: not understood")
    return network


def _set_options(trt, config, profile: BuildProfile) -> None:
    config.builder_optimization_level = profile.optimisation_level
    if profile.workspace_mb:
        config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, profile.workspace_mb * 2**20)


def _set_targets(tensorrt: TensorRT, config, targets: tuple[str, ...]) -> None:
    if not tensorrt.ahead_of_time:
        if targets != (CURRENT,):
            raise InputError(f'targets {list(targets)}: tensorrt builds for the GPU at hand; it must be ["current"]')
        return
    known = capabilities(tensorrt.module)
    unknown = [target for target in targets if target != CURRENT and target not in known]
    if unknown:
        raise InputError(
            f"targets: {unknown[0]} is not known to {tensorrt.name} {tensorrt.version}; "
            f"it knows {', '.join(sorted(known))}"
        )
    members = tensorrt.module.ComputeCapability
    config.num_compute_capabilities = len(targets)
    for index, target in enumerate(targets):
        config.set_compute_capability(members.CURRENT if target == CURRENT else known[target], index)


def _optimisation_profile(builder, network, graph: str, ranges: Ranges):
    profile = builder.create_optimization_profile()
    for tensor in _tensors(network, "input"):
        shapes = profile_shapes(graph, tensor.name, tuple(tensor.shape), ranges)
        if shapes:
            profile.set_shape(tensor.name, *shapes)
    return profile


def _tensors(network, mode: str) -> list:
    count, get = (
        (network.num_inputs, network.get_input) if mode == "input" else (network.num_outputs, network.get_output)
    )
    return [get(index) for index in range(count)]


def _describe(network, graph: str, profile: BuildProfile) -> tuple[Binding, ...]:
    """The network's own inputs and outputs, with the shapes given to each optimisation profile."""
    bindings = []
    for mode in ("input", "output"):
        for tensor in _tensors(network, mode):
            shape = tuple(tensor.shape)
            varies = mode == "input" and -1 in shape
            ranges = profile.graphs[graph] if varies else ()
            profiles = tuple(profile_shapes(graph, tensor.name, shape, one) for one in ranges)
            bindings.append(Binding(tensor.name, mode, dtype_name(tensor.dtype), shape, profiles))
    return tuple(bindings)


def dtype_name(dtype: object) -> str:
    """Our name for a TensorRT type."""
    return _DTYPES.get(dtype.name, dtype.name.lower())


def _open_timing_cache(config, path: Path | None):
    try:
        content = path.read_bytes() if path is not None and path.is_file() else b""
    except OSError:
        content = b""
    cache = config.create_timing_cache(content)
    if cache is None or not config.set_timing_cache(cache, False):
        cache = config.create_timing_cache(b"")  # of another version or damaged: measure again
        config.set_timing_cache(cache, False)
    return cache


def _keep_timing_cache(config, path: Path | None) -> None:
    """Saves the timing cache; it only helps the next build, so a failure is logged and that build measures again."""
    if path is None:
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, bytes(config.get_timing_cache().serialize()))
    except OSError as error:
        log.warning("%s: cannot be kept (%s)", path, error.strerror or error)


@contextmanager
def _cancelled_by_signals() -> Iterator[Callable[[], bool]]:
    """Gives a function that tells whether Ctrl-C came; the interrupt takes effect at the end, because TensorRT
    swallows what is raised in its callbacks and goes on building. Outside the main thread Python runs no handler, so
    it is never true there."""
    handler, noted = signal.getsignal(signal.SIGINT), []
    if not callable(handler) or threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    signal.signal(signal.SIGINT, lambda number, frame: noted.append(number))
    try:
        yield lambda: bool(noted)
    finally:
        signal.signal(signal.SIGINT, handler)
        if noted:
            handler(noted[0], None)


def _monitor(trt, on_progress: Progress, cancelled: Callable[[], bool]):
    """TensorRT reports phases within phases; only outer ones are reported. It stops building once told to."""

    class Monitor(trt.IProgressMonitor):
        def __init__(self):
            trt.IProgressMonitor.__init__(self)
            self.steps = {}

        def phase_start(self, phase_name, parent_phase, num_steps):
            self.steps[phase_name] = (num_steps, parent_phase)

        def step_complete(self, phase_name, step):
            total, parent = self.steps.get(phase_name, (0, None))
            if not parent:
                on_progress(phase_name, step + 1, total)
            return not cancelled()

        def phase_finish(self, phase_name):
            self.steps.pop(phase_name, None)

    return Monitor()
