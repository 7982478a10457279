"""The TensorRT runtime: engines on an NVIDIA GPU, cache and scratch memory on the device for good. Needs no torch.

A pass fills one pinned block with everything the host makes (words, rotary tables, mask), queues its upload, the
engine, the copy of the new cache rows behind the old ones and the download of what was asked for on one stream, and
waits once. Image features stay on the device, from a frame's encoding to the last prompt that has it; of greedy
choices only token numbers come back. The action head's steps follow each other on the device. Engines come from the
store, checked.

**Never run on a GPU so far.** What is tested: the same code against ONNX Runtime, with the host's memory for a device.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from specdrive_ros.engine.axes import ENGINE_GRAPHS, Ranges
from specdrive_ros.engine.cuda_driver import CudaDevice
from specdrive_ros.engine.manifest import Binding
from specdrive_ros.engine.memory import ALIGNMENT, Device, DeviceCache, PinnedPool, Rows, array_at, byte_size
from specdrive_ros.engine.runner import EngineRunner, Tensor
from specdrive_ros.engine.serving import ServedEngine, default_engines, open_contexts, serve
from specdrive_ros.engine.sizes import fit, ranges_of
from specdrive_ros.engine.store import EngineStore
from specdrive_ros.errors import InputError, WorkFailed
from specdrive_ros.runtime.bindings import CHOICE_OUTPUTS, FORBIDDEN, HIDDEN, VISION_INPUTS, new_names, past_names
from specdrive_ros.runtime.device_arena import Arena, Shapes
from specdrive_ros.runtime.device_features import DeviceFeatures, FeatureStore
from specdrive_ros.runtime.host import GraphNetworks
from specdrive_ros.runtime.networks import ImageRows
from specdrive_ros.runtime.onnx_networks import EMBEDDING
from specdrive_ros.runtime.weights_file import tensor_places
from specdrive_ros.target.config import TargetConfig

_ROWS_STEP = 128  # a cache's capacity is a multiple, so that a bucket of rows never reaches behind it
_SPOKEN = {"best": "logits"}
_WORDS = "words"  # embeddings of a prompt without its images; `hidden` is put together on the device


class TensorRtNetworks(GraphNetworks):
    """`TargetNetworks` over the engines of vision, text and action_step."""

    runtime = "tensorrt"
    chooses = True

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
        vision, text = config.vision, config.text
        self._features = FeatureStore(device, self._pool, len(vision.deepstack_visual_indexes), text.hidden_size)
        self._forbidden = _Forbidden(device, text.vocab_size)
        self._times = self._upload_times()

    @classmethod
    def load(cls, folder: str | Path, *, threads: int = 1) -> "TensorRtNetworks":
        """Raises `InputError` where a GPU, the module or a fitting engine is missing; `threads` mean nothing here."""
        folder, device = Path(folder), CudaDevice()
        store = EngineStore(default_engines(folder))
        engines = {name: open_contexts(serve(store, folder, name, device.info)) for name in ENGINE_GRAPHS}
        return cls(folder, engines, device)

    def _arena(self, graph: str, bindings: Sequence[Binding]) -> Arena:
        largest = [{letter: range.largest for letter, range in one.items()} for one in self._profiles[graph]]
        outputs = [self._output_shapes(graph, sizes) for sizes in largest]
        if graph != "text":
            return Arena(self._device, bindings, outputs)
        return Arena(self._device, bindings, outputs, elsewhere=(FORBIDDEN,), beside={_WORDS: "hidden"})

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

    def encode_images(self, patches, grid_thw) -> DeviceFeatures:
        """Waits once for each batch: images of one size, as many at a time as the engine was built for."""
        parts = []
        for batch, *tables in self.vision_inputs(patches, grid_thw):
            most = self._most_images(*batch.shape[:2])
            batches = [batch[start : start + most] for start in range(0, len(batch), most)]
            parts += [self.run_vision(each, *tables) for each in batches]
        return parts[0].followed_by(parts[1:])

    def _most_images(self, images: int, patches: int) -> int:
        """Of so many patches at a time; all where the engine takes no such image, which its run then says."""
        return max([one["I"].largest for one in self._profiles["vision"] if patches in one["P"]], default=images)

    def run_vision(self, *inputs) -> DeviceFeatures:
        """What is no number in them turns up in the logits of the prompt, which are checked."""
        sizes = {"I": inputs[0].shape[0], "P": inputs[0].shape[1]}
        profile = _exactly("vision", self._profiles["vision"], sizes)
        self._device.use()
        arena = self._arenas["vision"]
        placed = arena.upload(dict(zip(VISION_INPUTS, inputs, strict=True)))
        given = arena.place_outputs(self._output_shapes("vision", sizes))
        self._runners["vision"].run(profile, [placed | given])
        kept = self._features.keep(given["embeddings"], given["deepstack"])
        self._device.synchronize()
        return kept

    def with_images(self, embeddings, deepstack, images):
        """Image rows come together with the words on the device; without images a pass uploads no deepstack."""
        if images is None or isinstance(images.features, DeviceFeatures):
            return embeddings, deepstack if images is None else images
        return super().with_images(embeddings, deepstack, images)

    def run_text(self, *inputs):
        return self._pass(*inputs, wanted=("logits", "taps"))

    def run_choice(self, *inputs, forbidden, taps):
        """Raises `WorkFailed` as for logits: the best of those that are no numbers is none."""
        self._device.use()
        self._forbidden.set(forbidden)
        choices, _, *read = self._pass(*inputs, wanted=(*CHOICE_OUTPUTS, "taps") if taps else CHOICE_OUTPUTS)
        if choices.size and choices.max() >= self.config.text.vocab_size:
            raise WorkFailed("an engine's logits are not finite; build it in fp32 or bf16")
        return choices, read[0] if read else np.empty((len(inputs[1]), 0), np.float32)

    def _pass(self, hidden, cos, sin, mask, deepstack, logit_rows, past: Rows, new: Rows, *, wanted: tuple[str, ...]):
        """Upload, engine, cache rows and download on one stream; waits once."""
        sizes = {"T": len(cos), "S": past.count, "R": len(logit_rows)}
        profile, padded = fit("text", self._profiles["text"], sizes)
        outputs, exact = (self._output_shapes("text", each) for each in (padded, sizes))
        self._device.use()
        arena = self._arenas["text"]
        values, to_fill = self._text_values(hidden, deepstack, padded["T"])
        values |= {
            "cos": _padded(cos, 0, padded["T"]),
            "sin": _padded(sin, 0, padded["T"]),
            "mask": padded_mask(mask, past.count, padded["T"], padded["S"]),
            "logit_rows": _padded(np.asarray(logit_rows, np.int64), 0, padded["R"]),
        }
        placed, given = arena.upload(values, to_fill), arena.place_outputs(outputs)
        self._fill(placed, deepstack)
        bound = self._bind(past, padded["S"]) | {FORBIDDEN: self._forbidden.tensor}
        self._runners["text"].run(profile, [placed | bound | given])
        self._keep_rows(given, new)
        return self._fetch("text", {name: exact[name] for name in wanted}, given)

    def _text_values(self, hidden, deepstack, width: int) -> tuple[dict[str, np.ndarray], Shapes]:
        """What the host gives of `hidden` and `deepstack`, and the shapes of what `_fill` makes on the device."""
        levels = (len(self.config.vision.deepstack_visual_indexes), width, hidden.shape[1])
        if isinstance(deepstack, ImageRows):
            return {_WORDS: hidden}, {"hidden": levels[1:], "deepstack": levels}
        values = {"hidden": _padded(hidden, 0, width)}
        if deepstack is None:
            return values, {"deepstack": levels}
        return values | {"deepstack": _padded(deepstack, 1, width)}, {}

    def _fill(self, placed: dict[str, Tensor], deepstack: np.ndarray | ImageRows | None) -> None:
        if isinstance(deepstack, ImageRows):
            words = placed.pop(_WORDS)  # no input of the engine
            self._features.place(deepstack, words, placed["hidden"], placed["deepstack"])
        elif deepstack is None:
            self._device.clear(placed["deepstack"].address, byte_size("float32", placed["deepstack"].shape))

    def _keep_rows(self, given: dict[str, Tensor], new: Rows) -> None:
        """The outputs of the layers lie equally far apart, so one copy takes the rows of all."""
        last = given.get("new_1", given["new_0"])
        new.cache.write(new.start, new.count, given["new_0"].address, last.address - given["new_0"].address)

    def run_action_step(self, noise, time, cos, sin, past: Rows):
        """One step a round: fewer steps are not on the way of a cycle in time, so the host may wait for each."""
        profile = _exactly("action_step", self._profiles["action_step"], {"S": past.count})
        self._device.use()
        arena, outputs = self._arenas["action_step"], {"action": noise.shape}
        placed = arena.upload({"noise": noise, "time": time, "cos": cos, "sin": sin}) | self._bind(past, past.count)
        given = arena.place_outputs(outputs)
        self._runners["action_step"].run(profile, [placed | given])
        return self._fetch("action_step", outputs, given)[0]

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
        return self._fetch("action_step", {"action": noise.shape}, {"action": pair[0]})[0]

    def _fetch(self, graph: str, wanted: Shapes, given: dict[str, Tensor]) -> tuple[np.ndarray, ...]:
        """Raises `WorkFailed` where an output is no number: better no plan than one made of it.

        Not looked at are the taps, which are many: what is no number there is none in the logits behind it either.
        """
        arena = self._arenas[graph]
        arrays = [self._pool.take(shape, np.dtype(arena.dtype(name))) for name, shape in wanted.items()]
        for name, array in zip(wanted, arrays, strict=True):
            self._device.download(array.ctypes.data, given[name].address, array.nbytes)
        self._device.synchronize()
        for name, array in zip(wanted, arrays, strict=True):
            if name != "taps" and array.size and not np.isfinite(array.max()):
                raise WorkFailed(f"an engine's {_SPOKEN.get(name, name)} are not finite; build it in fp32 or bf16")
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
        choice = dict.fromkeys(CHOICE_OUTPUTS, (sizes["R"],))
        return {"logits": (sizes["R"], text.vocab_size), **choice, "taps": taps} | rows

    def _upload_times(self) -> list[int]:
        """Addresses of the flow times of the steps, which never change."""
        times = np.linspace(0, 1, self.flow_steps + 1, dtype=np.float32)[:-1]
        address, block = self._device.allocate(ALIGNMENT * len(times)), self._pool.take((len(times), ALIGNMENT // 4))
        block[:] = times[:, None]
        self._device.upload(address, block.ctypes.data, block.nbytes)
        self._device.synchronize()
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
