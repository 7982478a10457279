"""Drafts on engines beside their target's: the same device, the same stream, the same pools. Needs no torch.

What the target's passes tapped goes from where it is kept into the draft's engine without passing through the host; so
do the draft's own hidden states, its keys and values, and the target's output head, which is uploaded once. Uploaded
per pass are the embeddings of a few tokens, rotary tables and a mask; downloaded are logits, from which the tree is
grown. Every pass except an injection, which returns nothing, waits once.

**Never run on a GPU so far.** What is tested: the same code against ONNX Runtime, with host memory as the device.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np

from specdrive_ros.draft.config import DFlashConfig, DraftConfig, Eagle3Config
from specdrive_ros.engine.memory import Device, DeviceCache, Rows, array_at, byte_size
from specdrive_ros.engine.runner import Tensor
from specdrive_ros.engine.serving import ServedEngine, default_engines, open_contexts, serve
from specdrive_ros.engine.store import EngineStore
from specdrive_ros.errors import InputError, WorkFailed
from specdrive_ros.runtime.bindings import DRAFT_GRAPHS, SEEN, new_names, past_names
from specdrive_ros.runtime.device_arena import Shapes
from specdrive_ros.runtime.device_graph import DeviceGraph
from specdrive_ros.runtime.device_states import DeviceStates
from specdrive_ros.runtime.onnx_drafts import draft_export_command, draft_words
from specdrive_ros.runtime.padding import padded, padded_in_front, padded_mask, seen_rows
from specdrive_ros.runtime.tensorrt_networks import TensorRtNetworks

_PIECE = 2**26  # bytes of pinned memory that a large matrix is uploaded through
States = DeviceStates | np.ndarray


def load_engines(folder: Path, config: DraftConfig, target: TensorRtNetworks) -> dict[str, ServedEngine]:
    """The engines of a draft's folder, checked. Raises `EngineMissing` if none were built, else as `serve` does."""
    store = EngineStore(default_engines(folder))
    served = {name: serve(store, folder, name, target.device.info) for name in DRAFT_GRAPHS[config.kind]}
    for name, engine in served.items():
        if engine.record.tap_layers != config.tap_layers:
            raise InputError(
                f"{folder / name}.onnx: reads taps {list(engine.record.tap_layers)}, config.json says "
                f"{list(config.tap_layers)}; {draft_export_command(folder)}"
            )
    return {name: open_contexts(engine) for name, engine in served.items()}


class DeviceDraftCache(DeviceCache):
    """`DraftCache` on the device. Its size is fixed: a draft's engines read no more rows than they were built for."""

    @property
    def known(self) -> Rows:
        return self.past(self.length)


class _DeviceDraft:
    """What both kinds share: engines, a cache, moving states into an engine and results out of it."""

    def __init__(
        self, config: DraftConfig, engines: Mapping[str, ServedEngine], target: TensorRtNetworks,
        elsewhere: tuple[str, ...] = (),
    ):  # fmt: skip
        self.config, self._device, self._states = config, target.device, target.states
        bindings = [each for engine in engines.values() for each in engine.entry.bindings]
        past = next(each for each in bindings if each.name == "past_0")
        self._row_shape, self._row_bytes = past.shape[1:], byte_size(past.dtype, past.shape[1:])
        self._graphs = {
            name: DeviceGraph(
                name, engine, target.device, target.pinned, partial(self._output_shapes, name),
                elsewhere=elsewhere, use_graphs=target.use_graphs,
            )
            for name, engine in engines.items()
        }  # fmt: skip

    def _output_shapes(self, name: str, sizes: Mapping[str, int]) -> Shapes:
        raise NotImplementedError

    def new_cache(self) -> DeviceDraftCache:
        """A cache for as many rows as any of the engines reads, plus those that it writes after them."""
        ranges = [one for graph in self._graphs.values() for one in graph.profiles if "S" in one]
        rows = max(one["S"].largest for one in ranges) + max(one["T"].largest if "T" in one else 0 for one in ranges)
        return DeviceDraftCache(self._device, self.config.num_hidden_layers, self._row_bytes, rows)

    def _place(
        self, graph: DeviceGraph, values: Mapping[str, np.ndarray], name: str, states: States, rows: int, first: int = 0
    ) -> dict[str, Tensor]:
        """Queues the inputs of a pass: values from the host, and states [T, …] in `rows` rows from row `first` on."""
        if isinstance(states, DeviceStates):
            placed = graph.arena.upload(values, {name: (rows, states.shape[1])})
            self._states.place(states, placed[name], first)
            return placed
        behind = rows - first - len(states)
        return graph.arena.upload({**values, name: np.pad(states, [(first, behind), (0, 0)])})

    def _past(self, past: Rows, rows: int) -> dict[str, Tensor]:
        """The first `rows` rows of every layer, including those after `past`, which a mask hides."""
        names = past_names(self.config.num_hidden_layers)
        return {name: Tensor(past.layer(layer), (rows, *self._row_shape)) for layer, name in enumerate(names)}

    def _logits(self, graph: DeviceGraph, rows: int, given: Mapping[str, Tensor], cache: DeviceCache) -> np.ndarray:
        """Waits. If the logits are not finite, wipes the cache: the NaN in it would show through every later mask."""
        try:
            return graph.fetch({"logits": (rows, given["logits"].shape[1])}, given)[0]
        except WorkFailed:
            cache.wipe()
            raise


class TensorRtEagle3(_DeviceDraft):
    """`Eagle3Networks` over the engines of eagle3_newest and eagle3_step."""

    def __init__(
        self, folder: Path, config: Eagle3Config, engines: Mapping[str, ServedEngine], target: TensorRtNetworks
    ):
        super().__init__(config, engines, target)
        self.token_ids = draft_words(folder)

    def newest(self, embeddings, taps: States, cos, sin, past: Rows, new: Rows):
        """Padded in front, so that the last row, which predicts, stays the last."""
        graph, tokens = self._graphs["eagle3_newest"], len(embeddings)
        profile, room = graph.fit({"T": tokens, "S": past.count})
        added = room["T"] - tokens
        self._device.use()
        values = {"embeddings": embeddings, "cos": cos, "sin": sin}
        values = {name: padded_in_front(value, room["T"]) for name, value in values.items()}
        values[SEEN] = seen_rows(past.count, room["S"], tokens, room["T"])
        placed = self._place(graph, values, "taps", taps, room["T"], added)
        return self._run(graph, profile, placed, past, new, room, 1, added)

    def step(self, embeddings, hidden: States, cos, sin, mask, past: Rows, new: Rows):
        graph, tokens = self._graphs["eagle3_step"], len(embeddings)
        profile, room = graph.fit({"T": tokens, "S": past.count})
        self._device.use()
        values = {"embeddings": embeddings, "cos": cos, "sin": sin}
        values = {name: padded(value, 0, room["T"]) for name, value in values.items()}
        values["mask"] = padded_mask(mask, past.count, room["T"], room["S"])
        placed = self._place(graph, values, "hidden", hidden, room["T"])
        return self._run(graph, profile, placed, past, new, room, tokens, 0)

    def _run(self, graph, profile, placed, past: Rows, new: Rows, room, rows: int, added: int):
        """Runs the engine and puts its new rows from `added` on into the cache; returns `rows` hidden states and
        logits."""
        given = graph.arena.place_outputs(graph.output_shapes(room))
        graph.run(profile, placed | self._past(past, room["S"]) | given)
        new.take(given, added)
        hidden = self._states.keep(given["next_hidden"], rows)
        return hidden, self._logits(graph, rows, given, new.cache)

    def _output_shapes(self, name, sizes):
        rows = 1 if name == "eagle3_newest" else sizes["T"]
        return {
            "next_hidden": (rows, self.config.hidden_size),
            "logits": (rows, self.config.draft_vocab_size),
            "new_0": (sizes["T"], *self._row_shape),
        }


class TensorRtDFlash(_DeviceDraft):
    """`DFlashNetworks` over the engines of dflash_context and dflash_block.

    head: [vocabulary, E], the target's; token_ids: the tokens of it to compute, None for all.
    """

    def __init__(
        self, config: DFlashConfig, engines: Mapping[str, ServedEngine], target: TensorRtNetworks, head: np.ndarray,
        token_ids: np.ndarray | None = None,
    ):  # fmt: skip
        super().__init__(config, engines, target, elsewhere=("head",))
        self.token_ids = np.arange(len(head)) if token_ids is None else np.asarray(token_ids)
        matrix = np.ascontiguousarray(head[self.token_ids].T, np.float32)
        self._head = keep_matrix(self._device, matrix, self._graphs["dflash_block"].bindings["head"].dtype)
        self._injecting = False  # whether a pinned block may still be in use

    def inject(self, taps: States, cos, sin, new: Rows) -> None:
        """Only queued: it returns nothing that the host reads."""
        graph = self._graphs["dflash_context"]
        profile, room = graph.fit({"A": len(taps)})
        self._device.use()
        if self._injecting:
            self._device.synchronize()
        self._injecting = True
        values = {"cos": padded(cos, 0, room["A"]), "sin": padded(sin, 0, room["A"])}
        placed = self._place(graph, values, "taps", taps, room["A"])
        given = graph.arena.place_outputs(graph.output_shapes(room))
        graph.run(profile, placed | given)
        new.take(given)

    def fill(self, embeddings, cos, sin, past: Rows) -> np.ndarray:
        graph = self._graphs["dflash_block"]
        sizes = {"B": len(embeddings), "W": len(self.token_ids), "S": past.count}
        profile, room = graph.fit(sizes, exact=("B", "W"))
        self._device.use()
        seen = seen_rows(past.count, room["S"], room["B"], room["B"])
        placed = graph.arena.upload({"embeddings": embeddings, "cos": cos, "sin": sin, SEEN: seen})
        given = graph.arena.place_outputs(graph.output_shapes(room))
        graph.run(profile, placed | {"head": self._head} | self._past(past, room["S"]) | given)
        logits = self._logits(graph, len(embeddings), given, past.cache)
        self._injecting = False
        return logits

    def _output_shapes(self, name, sizes):
        if name == "dflash_block":
            return {"logits": (sizes["B"], sizes["W"])}
        return {each: (sizes["A"], *self._row_shape) for each in new_names(self.config.num_hidden_layers)}


def keep_matrix(device: Device, matrix: np.ndarray, dtype: str) -> Tensor:
    """Puts a matrix [rows, columns] float32 on the device for good, in an engine's type. Uploads it through a small
    pinned block."""
    device.use()
    row = byte_size(dtype, matrix.shape[1:])
    address, count = device.allocate(len(matrix) * row), max(1, _PIECE // row)
    pinned = device.allocate_pinned(min(count, len(matrix)) * row)
    for start in range(0, len(matrix), count):
        piece = in_type(matrix[start : start + count], dtype)
        array_at(pinned, piece.shape, piece.dtype)[...] = piece
        device.upload(address + start * row, pinned, piece.nbytes)
        device.synchronize()
    device.free_pinned(pinned)
    return Tensor(address, matrix.shape)


def in_type(values: np.ndarray, dtype: str) -> np.ndarray:
    """float32 in another type; bfloat16, which NumPy lacks, as its bits (uint16), rounded to nearest even."""
    if dtype != "bfloat16":
        return values.astype(dtype)
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
