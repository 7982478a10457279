"""The ONNX Runtime runtime: exported graphs on the CPU, the embedded default. Needs no torch.

Weights, keys and values are never copied per step: the graphs' initializers point into the checkpoint's own weights
file, the cache's rows are bound where they lie, and a pass writes its new rows directly into the cache.
"""

from pathlib import Path

import numpy as np
import onnxruntime

from specdrive_ros.engine.graph_file import read_record
from specdrive_ros.errors import InputError
from specdrive_ros.runtime.bindings import (
    ACTION_OUTPUTS,
    GRAPHS,
    VISION_INPUTS,
    VISION_OUTPUTS,
    GraphRecord,
    action_step_inputs,
    text_inputs,
    text_outputs,
)
from specdrive_ros.runtime.host import GraphNetworks
from specdrive_ros.runtime.weights_file import sha256, tensor_places
from specdrive_ros.target.config import TargetConfig

EMBEDDING = "vlm.model.language_model.embed_tokens.weight"
POSITIONS = "vlm.model.visual.pos_embed.weight"


class OnnxNetworks(GraphNetworks):
    """`TargetNetworks` over `vision.onnx`, `text.onnx` and `action_step.onnx` of a checkpoint folder."""

    runtime = "onnxruntime"

    def __init__(self, folder: str | Path, *, threads: int):
        """Raises `InputError` if a graph is missing or does not belong to this checkpoint."""
        folder = Path(folder)
        config = TargetConfig.load(folder)
        places = tensor_places(folder)
        for name in (EMBEDDING, POSITIONS):
            if name not in places:
                raise InputError(f"{folder}: has no tensor {name}; fetch the checkpoint again")
        _check_variant(folder)
        self._sessions = {name: open_graph(folder, name, threads, export_command(folder)) for name in GRAPHS}
        records = {name: graph_record(folder, name, session, export_command(folder))
                   for name, session in self._sessions.items()}
        check_weights(folder, records, export_command(folder))
        _check_bindings(folder, self._sessions)
        _check_sizes(folder, config, self._sessions["text"])
        _check_vision(folder, config, self._sessions["vision"], places[POSITIONS].shape[0])
        super().__init__(config, records["text"].tap_layers, records["action_step"].flow_steps)
        self._embedding = places[EMBEDDING].map()
        self._bfloat16 = places[EMBEDDING].dtype == "BF16"
        layers = config.text.num_hidden_layers
        self._text_inputs, self._text_outputs = text_inputs(layers), text_outputs(layers)
        self._action_step_inputs = action_step_inputs(layers)
        self._text_binding = self._sessions["text"].io_binding()

    @classmethod
    def load(cls, folder: str | Path, *, threads: int) -> "OnnxNetworks":
        return cls(folder, threads=threads)

    def embed(self, token_ids: np.ndarray) -> np.ndarray:
        rows = np.asarray(self._embedding[token_ids])
        return (
            (rows.astype(np.uint32) << 16).view(np.float32)
            if self._bfloat16
            else rows.astype(np.float32, copy=False)
        )

    def run_vision(self, *inputs):
        return self._sessions["vision"].run(VISION_OUTPUTS, dict(zip(VISION_INPUTS, inputs, strict=True)))

    def run_text(self, hidden, cos, sin, mask, deepstack, logit_rows, past, new):
        text = self.config.text
        logits = np.empty((len(logit_rows), text.vocab_size), np.float32)
        taps = np.empty((len(hidden), len(self.tap_layers) * text.hidden_size), np.float32)
        binding = self._text_binding
        for name, value in zip(
            self._text_inputs, (hidden, cos, sin, mask, deepstack, logit_rows, *past), strict=True
        ):
            binding.bind_cpu_input(name, value)
        for name, value in zip(self._text_outputs, (logits, taps, *new), strict=True):
            binding.bind_output(name, "cpu", 0, np.float32, value.shape, value.ctypes.data)
        self._sessions["text"].run_with_iobinding(binding)
        return logits, taps

    def run_action_step(self, noise, time, cos, sin, past):
        inputs = dict(zip(self._action_step_inputs, (noise, time, cos, sin, *past[0], *past[1]), strict=True))
        return self._sessions["action_step"].run(ACTION_OUTPUTS, inputs)[0]


def export_command(folder: Path) -> str:
    return f"export them with: ./specdrive export {folder} {folder}"


def open_graph(folder: Path, name: str, threads: int, remedy: str) -> onnxruntime.InferenceSession:
    """The session of a graph; `remedy` tells in errors how to make it."""
    path = folder / f"{name}.onnx"
    if not path.is_file():
        raise InputError(f"{path}: no such graph; {remedy}")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    options.enable_mem_pattern = False  # it would keep a plan for every cache length ever seen
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except (
        Exception
    ) as error:  # ONNX Runtime has an exception class for every status code, without a common base
        reason = str(error).splitlines()[0][:200]
        raise InputError(f"{path}: does not load ({reason}); {remedy}") from None


def graph_record(folder: Path, name: str, session: onnxruntime.InferenceSession, remedy: str) -> GraphRecord:
    """A graph's metadata. Raises `InputError` if it is not the graph that its file name says."""
    path, metadata = folder / f"{name}.onnx", session.get_modelmeta().custom_metadata_map
    record = GraphRecord.from_metadata(metadata, str(path), remedy)
    if record.graph != name:
        raise InputError(f"{path}: is the graph {record.graph}; {remedy}")
    return record


def _check_variant(folder: Path) -> None:
    """Refuses graphs in half precision, which are for engines: this runtime's cache has another type."""
    for path in (folder / f"{name}.onnx" for name in GRAPHS):
        try:
            variant = read_record(path, "").variant
        except InputError:
            continue  # reported better when the graph is opened
        if variant in ("fp16", "bf16"):
            raise InputError(f"{path}: is in {variant}, which is for GPUs; take the fp32 export, or int8")


def _check_bindings(folder: Path, sessions: dict[str, onnxruntime.InferenceSession]) -> None:
    """Inputs and outputs (one layer's as an example) must have the names of the binding table."""
    named = {
        "vision": (VISION_INPUTS, VISION_OUTPUTS),
        "text": (text_inputs(1), text_outputs(1)),
        "action_step": (action_step_inputs(1), ACTION_OUTPUTS),
    }
    for name, (inputs, outputs) in named.items():
        found = {value.name for value in (*sessions[name].get_inputs(), *sessions[name].get_outputs())}
        if missing := sorted({*inputs, *outputs} - found):
            raise InputError(f"{folder / name}.onnx: has no {', '.join(missing)}; {export_command(folder)}")


def _check_vision(folder: Path, config: TargetConfig, session: onnxruntime.InferenceSession, positions: int) -> None:
    """The same as `_check_sizes` for vision. positions: number in the weights."""
    vision = config.vision
    shapes = {value.name: value.shape for value in (*session.get_inputs(), *session.get_outputs())}
    found = (shapes["patches"][-1], shapes["deepstack"][0], positions)
    patch = vision.in_channels * vision.temporal_patch_size * vision.patch_size**2
    sizes = (patch, len(vision.deepstack_visual_indexes), vision.num_position_embeddings)
    if found != sizes:
        raise InputError(
            f"{folder / 'vision.onnx'}: values of a patch, deepstack levels, positions {found}, in the config {sizes}; "
            f"{export_command(folder)}"
        )


def _check_sizes(folder: Path, config: TargetConfig, session: onnxruntime.InferenceSession) -> None:
    """Makes sure that an edited config.json does not cause an error in the middle of a drive."""
    text = config.text
    shapes = {value.name: value.shape for value in (*session.get_inputs(), *session.get_outputs())}
    found = (
        shapes["hidden"][-1],
        *shapes["past_0"][-2:],
        shapes["logits"][-1],
        len(session.get_outputs()) - 2,
    )
    sizes = (
        text.hidden_size,
        text.num_key_value_heads,
        text.head_dim,
        text.vocab_size,
        text.num_hidden_layers,
    )
    if found != sizes:
        raise InputError(
            f"{folder / 'text.onnx'}: hidden size, key-value heads, head size, vocabulary, layers {found}, "
            f"in the config {sizes}; {export_command(folder)}"
        )


def check_weights(folder: Path, records: dict[str, GraphRecord], remedy: str) -> None:
    """Raises InputError unless the graphs were exported from exactly these weights."""
    hashes: dict[str, str] = {}
    for name, record in records.items():
        for file, expected in record.weights.items():
            if file not in hashes:
                hashes[file] = sha256(folder / file) if (folder / file).is_file() else "missing"
            if hashes[file] != expected:
                raise InputError(
                    f"{folder / file}: is not the file {name}.onnx was exported from (damaged or "
                    f"another model); fetch it again, or if it is right {remedy}"
                )
