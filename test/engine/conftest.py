"""A device that is the host's own memory, and execution contexts that ONNX Runtime runs: the TensorRT runtime's
bindings, shapes, buffers and order of work are tested with them where there is no GPU.

The device does nothing until it is waited for, as a stream may: whoever reads too early, or overwrites what was not
copied yet, gets wrong numbers.
"""

import ctypes
import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from specdrive_ros.engine.axes import profile_shapes
from specdrive_ros.engine.building import graph_to_compile
from specdrive_ros.engine.cuda_driver import DeviceInfo
from specdrive_ros.engine.graph_file import read_record
from specdrive_ros.engine.identity import EngineIdentity
from specdrive_ros.engine.manifest import Binding, Entry
from specdrive_ros.engine.memory import ALIGNMENT, array_at
from specdrive_ros.engine.profile import BuildProfile, find_profile
from specdrive_ros.engine.serving import ServedEngine
from specdrive_ros.engine.sizes import ranges_of
from specdrive_ros.engine.tensorrt import RTX, find_tensorrt
from specdrive_ros.errors import InputError
from specdrive_ros.runtime.bindings import DRAFT_GRAPHS, GRAPHS

MINI = Path(__file__).parents[2] / "models" / "mini"
DRAFT_KINDS = ("eagle3", "dflash")
DRAFT_WORDS = 500
KINDS = {
    "tensor(float)": "float32", "tensor(int64)": "int64", "tensor(int32)": "int32", "tensor(float16)": "float16"
}  # fmt: skip


class HostDevice:
    """`CudaDevice` over host memory. Work is queued and done by `synchronize`."""

    stream, info = 7, DeviceInfo("host", "0.0")

    def __init__(self):
        self.blocks: dict[int, ctypes.Array] = {}  # aligned address -> what keeps it alive
        self.sizes: dict[int, int] = {}
        self.queue: list[Callable[[], None]] = []
        self.graphs: list[list[Callable[[], None]]] = []
        self.pinned: set[int] = set()
        self.launches = self.synchronisations = self.uploads = 0
        self.uploaded = self.downloaded = 0  # bytes

    def use(self) -> None:
        pass

    def allocate(self, size: int) -> int:
        return self._allocate(size, 0)

    def allocate_pinned(self, size: int) -> int:
        address = self._allocate(size, 0xFF)  # no numbers until they are written
        self.pinned.add(address)
        return address

    def _allocate(self, size: int, fill: int) -> int:
        block = (ctypes.c_char * (size + ALIGNMENT))()
        address = -(-ctypes.addressof(block) // ALIGNMENT) * ALIGNMENT
        ctypes.memset(address, fill, size)
        self.blocks[address], self.sizes[address] = block, size
        return address

    def free(self, address: int) -> None:
        del self.blocks[address], self.sizes[address]

    def free_pinned(self, address: int) -> None:
        self.free(address)
        self.pinned.remove(address)

    def clear(self, address: int, size: int) -> None:
        self.check(address, size)
        self.queue.append(lambda: ctypes.memset(address, 0, size))

    def check(self, address: int, size: int) -> None:
        """Every access lies in one block."""
        assert any(start <= address and address + size <= start + self.sizes[start] for start in self.blocks)

    def upload(self, target: int, source: int, size: int) -> None:
        """A copy of what the source holds when the device comes to it, as with pinned memory."""
        self.uploads += 1
        self.uploaded += size
        self._cross(source, target)
        self._copy(target, source, size)

    def download(self, target: int, source: int, size: int) -> None:
        self.downloaded += size
        self._cross(target, source)
        self._copy(target, source, size)

    def _cross(self, host: int, device: int) -> None:
        """Between host and device only through pinned memory."""
        holds = [any(start <= each < start + self.sizes[start] for start in self.pinned) for each in (host, device)]
        assert holds == [True, False]

    def _copy(self, target: int, source: int, size: int) -> None:
        self.check(target, size)
        self.check(source, size)
        self.queue.append(lambda: ctypes.memmove(target, source, size))

    def copy_blocks(self, target, target_pitch, source, source_pitch, width, count) -> None:
        for index in range(count):
            to, come = target + index * target_pitch, source + index * source_pitch
            assert to + width <= come or come + width <= to, "copies overlap"
            self._copy(to, come, width)

    def synchronize(self) -> None:
        self.synchronisations += 1
        work, self.queue = self.queue, []
        for each in work:
            each()

    def capture(self, enqueue) -> int:
        kept, self.queue = self.queue, []
        enqueue()
        self.graphs.append(self.queue)
        self.queue = kept
        return len(self.graphs) - 1

    def launch(self, captured: int) -> None:
        self.launches += 1
        self.queue += self.graphs[captured]

    def drop(self, captured: int) -> None:
        self.graphs[captured] = []


class HostContext:
    """An execution context: takes only shapes of its profile and addresses that are aligned and ours."""

    def __init__(self, session, bindings, profile: int, device: HostDevice):
        self.session, self.device, self.profile = session, device, profile
        self.bindings = {binding.name: binding for binding in bindings}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.addresses: dict[str, int] = {}

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        binding = self.bindings[name]
        least, _, largest = binding.profiles[self.profile] if binding.profiles else (binding.shape,) * 3
        self.shapes[name] = tuple(shape)
        return len(shape) == len(least) and all(a <= b <= c for a, b, c in zip(least, shape, largest, strict=True))

    def set_tensor_address(self, name: str, address: int) -> bool:
        self.addresses[name] = address
        return name in self.bindings and address % ALIGNMENT == 0

    def execute_async_v3(self, stream: int) -> bool:
        if stream != self.device.stream or self.addresses.keys() != self.bindings.keys():
            return False
        shapes, addresses = dict(self.shapes), dict(self.addresses)
        self.device.queue.append(lambda: self._run(shapes, addresses))
        return True

    def _run(self, shapes, addresses) -> None:
        if self.session is None:
            return
        inputs = {name: self._array(name, addresses[name], shape).copy() for name, shape in shapes.items()}
        names = [name for name, binding in self.bindings.items() if binding.mode == "output"]
        for name, value in zip(names, self.session.run(names, inputs), strict=True):
            self._array(name, addresses[name], value.shape)[...] = value

    def _array(self, name, address, shape):
        array = array_at(address, shape, self.bindings[name].dtype)
        if array.size:
            self.device.check(address, array.nbytes)
        return array


def describe(session, graph: str, profile: BuildProfile) -> tuple[Binding, ...]:
    """Inputs and outputs as the builder describes them."""
    bindings = []
    for mode, values in (("input", session.get_inputs()), ("output", session.get_outputs())):
        for value in values:
            shape = tuple(size if isinstance(size, int) else -1 for size in value.shape)
            ranges = profile.graphs[graph] if mode == "input" and -1 in shape else ()
            profiles = tuple(profile_shapes(graph, value.name, shape, one) for one in ranges)
            bindings.append(Binding(value.name, mode, KINDS[value.type], shape, profiles))
    return tuple(bindings)


def open_session(graph: bytes | str, folder: Path = MINI) -> onnxruntime.InferenceSession:
    """A graph's file, or its content with weights in a folder, mini's where none is named."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(folder))
    return onnxruntime.InferenceSession(graph, options)


def host_engines(device: HostDevice, profile: BuildProfile, sessions: dict) -> dict[str, ServedEngine]:
    """Engines of mini as the store would serve them."""
    return engines_of(MINI, device, profile, sessions)


def engines_of(folder: Path, device: HostDevice, profile: BuildProfile, sessions: dict) -> dict[str, ServedEngine]:
    """One for each session of a folder's graphs."""
    engines = {}
    for graph, session in sessions.items():
        bindings = describe(session, graph, profile)
        identity = EngineIdentity(graph, "", {}, "fp32", profile.identity_of(graph), "host", "1", "host")
        contexts = [HostContext(session, bindings, i, device) for i in range(len(profile.graphs[graph]))]
        entry = Entry(identity, f"{graph}-{'0' * 16}.engine", 1, "", "", "", 0.0, bindings)
        assert len(ranges_of(identity.profile)) == len(contexts)
        engines[graph] = ServedEngine(entry, read_record(folder / f"{graph}.onnx", ""), contexts=contexts)
    return engines


def compiled_sessions(folder: Path, graphs) -> dict[str, onnxruntime.InferenceSession]:
    """Of a folder's graphs as they are compiled, with what engines have more."""
    return {
        graph: open_session(graph_to_compile(folder / f"{graph}.onnx", graph, "fp32"), folder) for graph in graphs
    }


@pytest.fixture(scope="session")
def sessions():
    """Of the graphs as they are compiled: that of text chooses tokens."""
    pytest.importorskip("onnx", reason="needs the train or the tensorrt-rtx extra")
    return compiled_sessions(MINI, GRAPHS)


@pytest.fixture
def device():
    return HostDevice()


@pytest.fixture
def make_networks(sessions, device):
    """`make_networks()` -> mini on engines that ONNX Runtime runs in "device" memory."""

    def make(profile: BuildProfile | None = None, **options):
        from specdrive_ros.runtime.tensorrt_networks import TensorRtNetworks

        profile = profile or find_profile("rtx-ada")
        return TensorRtNetworks(MINI, host_engines(device, profile, sessions), device, **options)

    return make


@pytest.fixture
def host_context(device):
    """`host_context(bindings, profile)`: takes what it is given or refuses it, computes nothing."""
    return lambda bindings, profile: HostContext(None, bindings, profile, device)


@pytest.fixture(scope="session")
def host_device():
    """One for tests that make many caches."""
    return HostDevice()


@pytest.fixture(scope="session")
def rtx():
    """TensorRT for RTX; absent only where there is no wheel of it, never where tests must not be missed."""
    try:
        return find_tensorrt(RTX)
    except InputError as error:
        if os.environ.get("CI") and (sys.platform, platform.machine()) == ("linux", "x86_64"):
            pytest.fail(f"the tests' environment must have it: {error}")
        pytest.skip(str(error))


@pytest.fixture(scope="session", params=DRAFT_KINDS)
def draft(request, tmp_path_factory):
    """Kind and folder of a draft for mini with chance weights and its graphs."""
    pytest.importorskip("onnxscript", reason="needs the train extra")
    import torch

    from specdrive_ros.draft.checkpoint import new_draft, save_draft
    from specdrive_ros.draft.target_identity import fingerprint_of
    from specdrive_ros.runtime.draft_export import export_draft
    from specdrive_ros.target.config import TargetConfig
    from specdrive_ros.training.draft_training import DraftTraining, draft_config

    folder, config = tmp_path_factory.mktemp("drafts") / f"{request.param}-flat", TargetConfig.load(MINI)
    folder.mkdir()
    torch.manual_seed(0)
    training = DraftTraining(request.param, "flat", block_size=8)
    made = new_draft(draft_config(config, training, (2, 4, 5), DRAFT_WORDS, 3, fingerprint_of(MINI)))
    if request.param == "eagle3":
        made.set_vocabulary(np.arange(DRAFT_WORDS))
    save_draft(made, folder)
    export_draft(folder, folder, config.text)
    return request.param, folder


@pytest.fixture(scope="session")
def draft_sessions(draft):
    """Of the draft's graphs as they are compiled: those that attend have a mask over rows."""
    kind, folder = draft
    return compiled_sessions(folder, DRAFT_GRAPHS[kind])


@pytest.fixture
def draft_engines(draft, draft_sessions, device):
    """`draft_engines(profile)` -> the draft's engines, run by ONNX Runtime in "device" memory."""
    return lambda profile=None: engines_of(draft[1], device, profile or find_profile("rtx-ada"), draft_sessions)
