"""The TensorRT runtime: engines on an NVIDIA GPU, cache and scratch memory on the device for good. Needs no torch.

A pass fills one pinned block with everything the host makes (embeddings, rotary tables, mask), queues its upload, the
engine, the copy of the new cache rows behind the old ones and the download of what was asked for on one stream, and
waits once. The action head's steps follow each other on the device. Engines come from the store, checked.

**Never run on a GPU so far.** What is tested: the same code against ONNX Runtime, with the host's memory for a device.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from specdrive_ros.engine.axes import ENGINE_GRAPHS, PAST, Ranges
from specdrive_ros.engine.cuda_driver import CudaDevice
from specdrive_ros.engine.manifest import Binding
from specdrive_ros.engine.memory import (
    ALIGNMENT,
    Device,
    DeviceCache,
    Layout,
    PinnedPool,
    Rows,
    array_at,
    byte_size,
    lay_out,
)
from specdrive_ros.engine.runner import EngineRunner, Tensor
from specdrive_ros.engine.serving import ServedEngine, default_engines, open_contexts, serve
from specdrive_ros.engine.sizes import fit, ranges_of
from specdrive_ros.engine.store import EngineStore
from specdrive_ros.errors import InputError, WorkFailed
from specdrive_ros.runtime.bindings import HIDDEN, VISION_INPUTS, new_names, past_names
from specdrive_ros.runtime.host import GraphNetworks
from specdrive_ros.runtime.onnx_networks import EMBEDDING
from specdrive_ros.runtime.weights_file import tensor_places
from specdrive_ros.target.config import TargetConfig

_ROWS_STEP = 128  # a cache's capacity is a multiple, so that a bucket of rows never reaches behind it
Shapes = dict[str, tuple[int, ...]]


class TensorRtNetworks(GraphNetworks):
    """`TargetNetworks` over the engines of vision, text and action_step."""

    runtime = "tensorrt"

    def __init__(self, folder: Path, engines: dict[str, ServedEngine], device: Device, use_graphs: bool = True):
        config, record = TargetConfig.load(folder), engines["text"].record
        super().__init__(config, record.tap_layers, engines["action_step"].record.flow_steps)
        self._device, self._pool = device, PinnedPool(device)
        self._profiles = {name: ranges_of(engine.entry.identity.profile) for name, engine in engines.items()}
        self._runners = {
            name: EngineRunner(name, engine.contexts, engine.entry.bindings, device, use_graphs)
            for name, engine in engines.items()
        }
        place = tensor_places(folder)[EMBEDDING]
        self._embedding, self._bfloat16 = place.map(), place.dtype == "BF16"
        past = self._runners["text"].bindings["past_0"]
        self._row_shape = past.shape[1:]
        self._row_bytes = byte_size(past.dtype, self._row_shape)
        self._arenas = {name: self._arena(name, engine.entry.bindings) for name, engine in engines.items()}
        self._times = self._upload_times()

    @classmethod
    def load(cls, folder: str | Path, *, threads: int = 1) -> "TensorRtNetworks":
        """Raises `InputError` where a GPU, the module or a fitting engine is missing; `threads` mean nothing here."""
        folder, device = Path(folder), CudaDevice()
        store = EngineStore(default_engines(folder))
        engines = {name: open_contexts(serve(store, folder, name, device.info)) for name in ENGINE_GRAPHS}
        return cls(folder, engines, device)

    def _arena(self, graph: str, bindings: Sequence[Binding]) -> "_Arena":
        largest = [{letter: range.largest for letter, range in one.items()} for one in self._profiles[graph]]
        return _Arena(self._device, bindings, [self._output_shapes(graph, sizes) for sizes in largest])

    def embed(self, token_ids: np.ndarray) -> np.ndarray:
        rows = np.asarray(self._embedding[token_ids])
        return (rows.astype(np.uint32) << 16).view(np.float32) if self._bfloat16 else rows.astype(np.float32)

    def new_cache(self, capacity: int) -> DeviceCache:
        """On the device; a bucket's rows beyond `capacity` are there too, hidden by the mask."""
        self._device.use()
        for runner in self._runners.values():
            runner.forget()
        rounded = -(-capacity // _ROWS_STEP) * _ROWS_STEP
        return DeviceCache(self._device, self.config.text.num_hidden_layers, self._row_bytes, rounded)

    def run_vision(self, *inputs):
        sizes = {"I": inputs[0].shape[0], "P": inputs[0].shape[1]}
        profile = _exactly("vision", self._profiles["vision"], sizes)
        outputs = self._output_shapes("vision", sizes)
        return self._round("vision", profile, dict(zip(VISION_INPUTS, inputs, strict=True)), {}, outputs, outputs)

    def run_text(self, hidden, cos, sin, mask, deepstack, logit_rows, past: Rows, new: Rows):
        sizes = {"T": len(hidden), "S": past.count, "R": len(logit_rows)}
        profile, padded = fit("text", self._profiles["text"], sizes)
        width = padded["T"]
        values = {
            "hidden": _padded(hidden, 0, width),
            "cos": _padded(cos, 0, width),
            "sin": _padded(sin, 0, width),
            "mask": padded_mask(mask, past.count, width, padded["S"]),
            "deepstack": _padded(deepstack, 1, width),
            "logit_rows": _padded(np.asarray(logit_rows, np.int64), 0, padded["R"]),
        }
        outputs, exact = (self._output_shapes("text", each) for each in (padded, sizes))
        wanted = {name: exact[name] for name in ("logits", "taps")}

        def keep_rows(given: dict[str, Tensor]) -> None:
            last = given.get("new_1", given["new_0"])
            new.cache.write(new.start, new.count, given["new_0"].address, last.address - given["new_0"].address)

        return self._round("text", profile, values, self._bind(past, padded["S"]), outputs, wanted, keep_rows)

    def run_action_step(self, noise, time, cos, sin, past: Rows):
        """One step a round: fewer steps are not on the way of a cycle in time, so the host may wait for each."""
        profile = _exactly("action_step", self._profiles["action_step"], {"S": past.count})
        values, outputs = {"noise": noise, "time": time, "cos": cos, "sin": sin}, {"action": noise.shape}
        return self._round("action_step", profile, values, self._bind(past, past.count), outputs, outputs)[0]

    def run_action(self, noise, cos, sin, past: Rows):
        profile = _exactly("action_step", self._profiles["action_step"], {"S": past.count})
        self._device.use()
        arena, bound = self._arenas["action_step"], self._bind(past, past.count)
        placed = arena.upload({"noise": noise, "cos": cos, "sin": sin}) | bound
        pair = [placed["noise"], arena.place_outputs({"action": noise.shape})["action"]]
        calls = []
        for time in self._times:  # each step reads what the one before wrote
            calls.append(placed | {"noise": pair[0], "time": Tensor(time, (1, 1, 1)), "action": pair[1]})
            pair.reverse()
        self._runners["action_step"].run(profile, calls)
        return self._fetch({"action": noise.shape}, {"action": pair[0]})[0]

    def _round(
        self,
        graph: str,
        profile: int,
        values: dict[str, np.ndarray],
        bound: dict[str, Tensor],
        outputs: Shapes,
        wanted: Shapes,
        after: Callable[[dict[str, Tensor]], None] = lambda given: None,
    ) -> tuple[np.ndarray, ...]:
        """Upload, engine, `after` and download on one stream; waits once. Of each output the first rows are wanted."""
        self._device.use()
        arena = self._arenas[graph]
        placed, given = arena.upload(values), arena.place_outputs(outputs)
        self._runners[graph].run(profile, [placed | bound | given])
        after(given)
        return self._fetch(wanted, given)

    def _fetch(self, wanted: Shapes, given: dict[str, Tensor]) -> tuple[np.ndarray, ...]:
        """Raises `WorkFailed` where an output is no number: better no plan than one made of it."""
        arrays = [self._pool.take(shape) for shape in wanted.values()]
        for name, array in zip(wanted, arrays, strict=True):
            self._device.download(array.ctypes.data, given[name].address, array.nbytes)
        self._device.synchronize()
        for name, array in zip(wanted, arrays, strict=True):
            if array.size and not np.isfinite(array.max()):
                raise WorkFailed(f"an engine's {name} are not finite; build it in fp32 or bf16")
        return tuple(arrays)

    def _bind(self, past: Rows, rows: int) -> dict[str, Tensor]:
        """The first `rows` rows of every layer, those behind `past` among them: the mask hides them."""
        names = past_names(self.config.text.num_hidden_layers)
        return {name: Tensor(past.layer(layer), (rows, *self._row_shape)) for layer, name in enumerate(names)}

    def _output_shapes(self, graph: str, sizes: dict[str, int]) -> Shapes:
        vision, text = self.config.vision, self.config.text
        if graph == "action_step":
            return {"action": (self.config.action_space.n_waypoints, 2)}
        if graph == "vision":
            tokens = sizes["P"] // vision.spatial_merge_size**2
            levels = len(vision.deepstack_visual_indexes)
            embeddings = (sizes["I"], tokens, text.hidden_size)
            return {"embeddings": embeddings, "deepstack": (levels, *embeddings)}
        rows = {name: (sizes["T"], *self._row_shape) for name in new_names(text.num_hidden_layers)}
        taps = (sizes["T"], len(self.tap_layers) * text.hidden_size)
        return {"logits": (sizes["R"], text.vocab_size), "taps": taps} | rows

    def _upload_times(self) -> list[int]:
        """Addresses of the flow times of the steps, which never change."""
        times = np.linspace(0, 1, self.flow_steps + 1, dtype=np.float32)[:-1]
        address, block = self._device.allocate(ALIGNMENT * len(times)), self._pool.take((len(times), ALIGNMENT // 4))
        block[:] = times[:, None]
        self._device.upload(address, block.ctypes.data, block.nbytes)
        self._device.synchronize()
        return [address + ALIGNMENT * step for step in range(len(times))]


class _Arena:
    """One engine's inputs and outputs on the device, allocated once for the largest shapes it was built for."""

    def __init__(self, device: Device, bindings: Sequence[Binding], largest_outputs: Sequence[Shapes]):
        self._device = device
        self._dtypes = {binding.name: binding.dtype for binding in bindings}
        from_host = [b for b in bindings if b.mode == "input" and not b.name.startswith(PAST)]
        self._input_size = lay_out({b.name: (b.dtype, _largest(b)) for b in from_host}).size
        self._output_size = max(self._lay_out(shapes).size for shapes in largest_outputs)
        self._pinned = device.allocate_pinned(self._input_size)
        self._inputs, self._outputs = device.allocate(self._input_size), device.allocate(self._output_size)

    def upload(self, values: dict[str, np.ndarray]) -> dict[str, Tensor]:
        """Fills the pinned block and queues one copy of it."""
        values = {name: np.asarray(value, self._dtypes[name]) for name, value in values.items()}
        layout = self._lay_out({name: value.shape for name, value in values.items()})
        if layout.size > self._input_size:
            raise WorkFailed(f"inputs of {layout.size} bytes, the engine was built for {self._input_size}")
        for name, value in values.items():
            array_at(self._pinned + layout.offsets[name], value.shape, value.dtype)[...] = value
        self._device.upload(self._inputs, self._pinned, layout.size)
        return {name: Tensor(self._inputs + layout.offsets[name], value.shape) for name, value in values.items()}

    def place_outputs(self, shapes: Shapes) -> dict[str, Tensor]:
        layout = self._lay_out(shapes)
        if layout.size > self._output_size:
            raise WorkFailed(f"outputs of {layout.size} bytes, the engine was built for {self._output_size}")
        return {name: Tensor(self._outputs + layout.offsets[name], shape) for name, shape in shapes.items()}

    def _lay_out(self, shapes: Shapes) -> Layout:
        return lay_out({name: (self._dtypes[name], shape) for name, shape in shapes.items()})


def padded_mask(mask: np.ndarray, cached: int, width: int, rows: int) -> np.ndarray:
    """[T, S + T] -> [width, rows + width]: what was added is hidden, and an added token sees itself alone."""
    tokens = len(mask)
    padded = np.full((width, rows + width), HIDDEN, np.float32)
    padded[:tokens, :cached] = mask[:, :cached]
    padded[:tokens, rows : rows + tokens] = mask[:, cached:]
    added = np.arange(tokens, width)
    padded[added, rows + added] = 0
    return padded


def _padded(values: np.ndarray, axis: int, size: int) -> np.ndarray:
    """With zeros behind."""
    missing = [(0, size - length if number == axis else 0) for number, length in enumerate(values.shape)]
    return np.pad(values, missing)


def _exactly(graph: str, profiles: tuple[Ranges, ...], sizes: dict[str, int]) -> int:
    """The first profile that takes these very sizes: nothing hides what padding would add."""
    for index, ranges in enumerate(profiles):
        if all(size in ranges[letter] for letter, size in sizes.items()):
            return index
    built = "; ".join(
        ", ".join(f"{letter} {ranges[letter].least} … {ranges[letter].largest}" for letter in sizes)
        for ranges in profiles
    )
    asked = ", ".join(f"{letter} = {size}" for letter, size in sizes.items())
    raise InputError(f"the {graph} engine was built for {built}, this pass has {asked}; build it for that")


def _largest(binding: Binding) -> tuple[int, ...]:
    """The largest shape of an input over the profiles."""
    if not binding.profiles:
        return binding.shape
    return tuple(max(sizes) for sizes in zip(*(ranges[-1] for ranges in binding.profiles), strict=True))
