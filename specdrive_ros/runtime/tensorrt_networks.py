"""The TensorRT runtime: engines on an NVIDIA GPU, with cache and scratch memory permanently on the device. Needs no
torch.

A pass fills one pinned block with everything that the host makes (embeddings, rotary tables, mask); queues on one
stream its upload, the engine, the copy of the new cache rows after the old ones, and the download of what was
requested; and waits once. Image features stay on the device, from a frame's encoding to the last prompt that has it,
and so do the hidden states that drafts read; of greedy choices only token ids come back. The action head's steps
follow each other on the device. Engines come from the store, checked.

**Never run on a GPU so far.** What is tested: the same code against ONNX Runtime, with host memory as the device.
"""

from functools import partial
from pathlib import Path

import numpy as np

from specdrive_ros.engine.cuda_driver import CudaDevice
from specdrive_ros.engine.memory import ALIGNMENT, Device, DeviceCache, PinnedPool, Rows, array_at, byte_size
from specdrive_ros.engine.runner import Tensor
from specdrive_ros.engine.serving import ServedEngine, default_engines, open_contexts, serve
from specdrive_ros.engine.store import EngineStore
from specdrive_ros.errors import WorkFailed
from specdrive_ros.runtime.bindings import (
    CHOICE_OUTPUTS,
    FORBIDDEN,
    GRAPHS,
    HIDDEN,
    VISION_INPUTS,
    new_names,
    past_names,
)
from specdrive_ros.runtime.device_arena import Shapes
from specdrive_ros.runtime.device_features import DeviceFeatures, FeatureStore
from specdrive_ros.runtime.device_graph import DeviceGraph
from specdrive_ros.runtime.device_states import DeviceStates, StateStore
from specdrive_ros.runtime.host import GraphNetworks
from specdrive_ros.runtime.networks import ImageRows
from specdrive_ros.runtime.onnx_networks import EMBEDDING
from specdrive_ros.runtime.padding import padded, padded_mask
from specdrive_ros.runtime.weights_file import tensor_places
from specdrive_ros.target.config import TargetConfig

_ROWS_STEP = 128  # a cache's capacity is a multiple of this, so that a bucket of rows never exceeds it
_WORDS = "words"  # embeddings of a prompt without its images; `hidden` is assembled on the device


class TensorRtNetworks(GraphNetworks):
    """`TargetNetworks` over the engines of vision, text and action_step."""

    runtime = "tensorrt"
    chooses = True

    def __init__(self, folder: Path, engines: dict[str, ServedEngine], device: Device, use_graphs: bool = True):
        config, record = TargetConfig.load(folder), engines["text"].record
        super().__init__(config, record.tap_layers, engines["action_step"].record.flow_steps)
        self.device, self.pinned, self.use_graphs = device, PinnedPool(device), use_graphs
        self.states = StateStore(device, self.pinned)
        place = tensor_places(folder)[EMBEDDING]
        self._embedding, self._bfloat16 = place.map(), place.dtype == "BF16"
        past = next(each for each in engines["text"].entry.bindings if each.name == "past_0")
        self._row_shape = past.shape[1:]
        self._row_bytes = byte_size(past.dtype, self._row_shape)
        self._graphs = {name: self._graph(name, engine) for name, engine in engines.items()}
        vision, text = config.vision, config.text
        self._features = FeatureStore(device, self.pinned, len(vision.deepstack_visual_indexes), text.hidden_size)
        self._forbidden = _Forbidden(device, text.vocab_size)
        self._times = self._upload_times()

    @classmethod
    def load(cls, folder: str | Path, *, threads: int = 1) -> "TensorRtNetworks":
        """Raises `InputError` if a GPU, the module or a fitting engine is missing; `threads` has no effect here."""
        folder, device = Path(folder), CudaDevice()
        store = EngineStore(default_engines(folder))
        engines = {name: open_contexts(serve(store, folder, name, device.info)) for name in GRAPHS}
        return cls(folder, engines, device)

    def _graph(self, name: str, engine: ServedEngine) -> DeviceGraph:
        more = {"elsewhere": (FORBIDDEN,), "beside": {_WORDS: "hidden"}} if name == "text" else {}
        shapes = partial(self._output_shapes, name)
        return DeviceGraph(name, engine, self.device, self.pinned, shapes, use_graphs=self.use_graphs, **more)

    def embed(self, token_ids: np.ndarray) -> np.ndarray:
        rows = np.asarray(self._embedding[token_ids])
        return (rows.astype(np.uint32) << 16).view(np.float32) if self._bfloat16 else rows.astype(np.float32)

    def new_cache(self, capacity: int) -> DeviceCache:
        """A cache on the device; a bucket's rows beyond `capacity` exist too, hidden by the mask."""
        self.device.use()
        for graph in self._graphs.values():
            graph.runner.forget()
        rounded = -(-capacity // _ROWS_STEP) * _ROWS_STEP
        return DeviceCache(self.device, self.config.text.num_hidden_layers, self._row_bytes, rounded)

    def encode_images(self, patches, grid_thw) -> DeviceFeatures:
        """Waits once per batch: images of one size, as many at a time as the engine was built for."""
        parts = []
        for batch, *tables in self.vision_inputs(patches, grid_thw):
            most = self._most_images(*batch.shape[:2])
            batches = [batch[start : start + most] for start in range(0, len(batch), most)]
            parts += [self.run_vision(each, *tables) for each in batches]
        return parts[0].followed_by(parts[1:])

    def _most_images(self, images: int, patches: int) -> int:
        """Images of this many patches per batch; all if the engine takes no such image, which its run then reports."""
        return max([one["I"].largest for one in self._graphs["vision"].profiles if patches in one["P"]], default=images)

    def run_vision(self, *inputs) -> DeviceFeatures:
        """Values that are not finite show up in the logits of the prompt, which are checked."""
        sizes = {"I": inputs[0].shape[0], "P": inputs[0].shape[1]}
        graph = self._graphs["vision"]
        profile = graph.profile_of(sizes)
        self.device.use()
        placed = graph.arena.upload(dict(zip(VISION_INPUTS, inputs, strict=True)))
        given = graph.arena.place_outputs(graph.output_shapes(sizes))
        graph.run(profile, placed | given)
        kept = self._features.keep(given["embeddings"], given["deepstack"])
        self.device.synchronize()
        return kept

    def takes(self, tokens: int, cached: int, logit_rows: int) -> bool:
        return self._graphs["text"].takes({"T": tokens, "S": cached, "R": logit_rows})

    def with_images(self, embeddings, deepstack, images):
        """Image rows are merged with the text on the device; without images a pass uploads no deepstack."""
        if images is None or isinstance(images.features, DeviceFeatures):
            return embeddings, deepstack if images is None else images
        return super().with_images(embeddings, deepstack, images)

    def run_text(self, *inputs):
        (logits,), states = self._pass(*inputs, wanted=("logits",), taps=True)
        return logits, states

    def run_choice(self, *inputs, forbidden, taps):
        """Raises `WorkFailed` as for logits: if they are not finite, no choice is valid."""
        self.device.use()
        self._forbidden.set(forbidden)
        (choices, _), states = self._pass(*inputs, wanted=CHOICE_OUTPUTS, taps=taps)
        if choices.size and choices.max() >= self.config.text.vocab_size:
            inputs[-1].cache.wipe()
            raise WorkFailed("an engine's logits are not finite; build it in fp32 or bf16")
        return choices, np.empty((len(inputs[1]), 0), np.float32) if states is None else states

    def _pass(
        self, hidden, cos, sin, mask, deepstack, logit_rows, past: Rows, new: Rows, *,
        wanted: tuple[str, ...], taps: bool,
    ) -> tuple[tuple[np.ndarray, ...], DeviceStates | None]:  # fmt: skip
        """Upload, engine, cache rows and download on one stream; waits once. Tapped states stay on the device."""
        graph = self._graphs["text"]
        sizes = {"T": len(cos), "S": past.count, "R": len(logit_rows)}
        profile, room = graph.fit(sizes)
        outputs, exact = graph.output_shapes(room), graph.output_shapes(sizes)
        self.device.use()
        values, to_fill = self._text_values(hidden, deepstack, room["T"])
        values |= {
            "cos": padded(cos, 0, room["T"]),
            "sin": padded(sin, 0, room["T"]),
            "mask": padded_mask(mask, past.count, room["T"], room["S"]),
            "logit_rows": padded(np.asarray(logit_rows, np.int64), 0, room["R"]),
        }
        placed, given = graph.arena.upload(values, to_fill), graph.arena.place_outputs(outputs)
        self._fill(placed, deepstack)
        bound = self._bind(past, room["S"]) | {FORBIDDEN: self._forbidden.tensor}
        graph.run(profile, placed | bound | given)
        new.take(given)
        states = self.states.keep(given["taps"], sizes["T"]) if taps else None
        return self._numbers(graph, {name: exact[name] for name in wanted}, given, new), states

    def _numbers(
        self, graph: DeviceGraph, wanted: Shapes, given: dict[str, Tensor], new: Rows
    ) -> tuple[np.ndarray, ...]:
        """The results of a pass. If they are not finite, wipes the cache: the NaN in it would show through every later
        mask."""
        try:
            return graph.fetch(wanted, given)
        except WorkFailed:
            new.cache.wipe()
            raise

    def _text_values(self, hidden, deepstack, width: int) -> tuple[dict[str, np.ndarray], Shapes]:
        """The host's values for `hidden` and `deepstack`, and the shapes of what `_fill` makes on the device."""
        levels = (len(self.config.vision.deepstack_visual_indexes), width, hidden.shape[1])
        if isinstance(deepstack, ImageRows):
            return {_WORDS: hidden}, {"hidden": levels[1:], "deepstack": levels}
        values = {"hidden": padded(hidden, 0, width)}
        if deepstack is None:
            return values, {"deepstack": levels}
        return values | {"deepstack": padded(deepstack, 1, width)}, {}

    def _fill(self, placed: dict[str, Tensor], deepstack: np.ndarray | ImageRows | None) -> None:
        if isinstance(deepstack, ImageRows):
            words = placed.pop(_WORDS)  # not an input of the engine
            self._features.place(deepstack, words, placed["hidden"], placed["deepstack"])
        elif deepstack is None:
            self.device.clear(placed["deepstack"].address, byte_size("float32", placed["deepstack"].shape))

    def laid_out(self, past: Rows) -> Rows:
        """Engines read the rows as they are."""
        return past

    def run_action_step(self, noise, time, cos, sin, past: Rows):
        """One step, waiting for it: fewer steps than usual only occur in cycles that are late, so waiting is
        allowed."""
        graph, outputs = self._graphs["action_step"], {"action": noise.shape}
        profile = graph.profile_of({"S": past.count})
        self.device.use()
        values = {"noise": noise, "time": time, "cos": cos, "sin": sin}
        placed = graph.arena.upload(values) | self._bind(past, past.count)
        given = graph.arena.place_outputs(outputs)
        graph.run(profile, placed | given)
        return graph.fetch(outputs, given)[0]

    def run_action(self, noise, cos, sin, past: Rows):
        graph = self._graphs["action_step"]
        profile = graph.profile_of({"S": past.count})
        self.device.use()
        placed = graph.arena.upload({"noise": noise, "cos": cos, "sin": sin}) | self._bind(past, past.count)
        pair = [placed["noise"], graph.arena.place_outputs({"action": noise.shape})["action"]]
        calls = []
        for time in self._times:  # each step reads what the previous one wrote
            calls.append(placed | {"noise": pair[0], "time": Tensor(time, (1, 1, 1)), "action": pair[1]})
            pair.reverse()
        graph.run(profile, *calls)
        return graph.fetch({"action": noise.shape}, {"action": pair[0]})[0]

    def _bind(self, past: Rows, rows: int) -> dict[str, Tensor]:
        """The first `rows` rows of every layer, including those after `past`, which the mask hides."""
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
        choice = dict.fromkeys(CHOICE_OUTPUTS, (sizes["R"],))
        return {"logits": (sizes["R"], text.vocab_size), **choice, "taps": taps} | rows

    def _upload_times(self) -> list[int]:
        """Addresses of the flow times of the steps, which never change."""
        times = np.linspace(0, 1, self.flow_steps + 1, dtype=np.float32)[:-1]
        address, block = self.device.allocate(ALIGNMENT * len(times)), self.pinned.take((len(times), ALIGNMENT // 4))
        block[:] = times[:, None]
        self.device.upload(address, block.ctypes.data, block.nbytes)
        self.device.synchronize()
        return [address + ALIGNMENT * step for step in range(len(times))]


class _Forbidden:
    """The input `forbidden` [vocabulary], uploaded when it changes, which it does not within a drive."""

    def __init__(self, device: Device, vocabulary: int):
        self._device, self._now = device, np.zeros(vocabulary, bool)
        size = byte_size("float32", (vocabulary,))
        self._pinned = array_at(device.allocate_pinned(size), (vocabulary,), np.float32)
        self.tensor = Tensor(device.allocate(size), (vocabulary,))

    def set(self, forbidden: np.ndarray) -> None:
        """[vocabulary] bool. Queues the upload; the pass that follows waits for it."""
        if np.array_equal(forbidden, self._now):
            return
        self._pinned[:] = np.where(forbidden, np.float32(HIDDEN), 0)
        self._device.upload(self.tensor.address, self._pinned.ctypes.data, self._pinned.nbytes)
        self._now = np.array(forbidden)
