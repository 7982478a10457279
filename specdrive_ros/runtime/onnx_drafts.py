"""Drafts on ONNX Runtime: exported graphs on the CPU, the embedded default. Needs no torch.

As for the target, weights stay in the draft's own file, keys and values are bound where they lie in the draft's cache,
and a pass writes its new rows into it.
"""

from pathlib import Path

import numpy as np
import onnxruntime
from safetensors import SafetensorError, safe_open

from specdrive_ros.draft.config import DFlashConfig, DraftConfig, Eagle3Config
from specdrive_ros.errors import InputError
from specdrive_ros.runtime.bindings import (
    DFLASH_BLOCK_OUTPUTS,
    DFLASH_CONTEXT_INPUTS,
    DRAFT_GRAPHS,
    EAGLE3_NEWEST_INPUTS,
    EAGLE3_OUTPUTS,
    EAGLE3_STEP_INPUTS,
    dflash_block_inputs,
    new_names,
)
from specdrive_ros.runtime.onnx_networks import check_weights, graph_record, open_graph
from specdrive_ros.runtime.weights_file import WEIGHTS


class OnnxEagle3:
    """`Eagle3Networks` over `eagle3_newest.onnx` and `eagle3_step.onnx`."""

    def __init__(self, folder: str | Path, config: Eagle3Config, *, threads: int = 1):
        self.config, self.token_ids = config, draft_words(Path(folder))
        self._newest, self._step = (_Graph(session) for session in _open(Path(folder), config, threads))

    def newest(self, embeddings, taps, cos, sin, past, new):
        return self._run(self._newest, EAGLE3_NEWEST_INPUTS, (embeddings, taps, cos, sin, *past), new, 1)

    def step(self, embeddings, hidden, cos, sin, mask, past, new):
        inputs = (embeddings, hidden, cos, sin, mask, *past)
        return self._run(self._step, EAGLE3_STEP_INPUTS, inputs, new, len(embeddings))

    def _run(self, graph, names, inputs, new, rows):
        hidden = np.empty((rows, self.config.hidden_size), np.float32)
        logits = np.empty((rows, self.config.draft_vocab_size), np.float32)
        graph.run(names, inputs, EAGLE3_OUTPUTS, (hidden, logits, *new))
        return hidden, logits


class OnnxDFlash:
    """`DFlashNetworks` over `dflash_context.onnx` and `dflash_block.onnx`.

    head: [vocabulary, E], the target's; token_ids: the tokens of it to compute, None for all.
    """

    def __init__(
        self, folder: str | Path, config: DFlashConfig, head: np.ndarray, token_ids: np.ndarray | None = None,
        *, threads: int = 1,
    ):  # fmt: skip
        self.config = config
        self.token_ids = np.arange(len(head)) if token_ids is None else np.asarray(token_ids)
        self._head = np.ascontiguousarray(head[self.token_ids].T, np.float32)
        self._context, self._block = (_Graph(session) for session in _open(Path(folder), config, threads))
        self._rows = new_names(config.num_hidden_layers)
        self._block_inputs = dflash_block_inputs(config.num_hidden_layers)

    def inject(self, taps, cos, sin, new):
        self._context.run(DFLASH_CONTEXT_INPUTS, (taps, cos, sin), self._rows, new)

    def fill(self, embeddings, cos, sin, past):
        logits = np.empty((len(embeddings), len(self.token_ids)), np.float32)
        inputs = (embeddings, cos, sin, self._head, *past)
        self._block.run(self._block_inputs, inputs, DFLASH_BLOCK_OUTPUTS, (logits,))
        return logits


class _Graph:
    """A session that binds arrays where they are, without copies."""

    def __init__(self, session: onnxruntime.InferenceSession):
        self._session, self._binding = session, session.io_binding()

    def run(self, input_names, inputs, output_names, outputs) -> None:
        for name, value in zip(input_names, inputs, strict=True):
            self._binding.bind_cpu_input(name, np.ascontiguousarray(value, np.float32))
        for name, value in zip(output_names, outputs, strict=True):
            self._binding.bind_output(name, "cpu", 0, np.float32, value.shape, value.ctypes.data)
        self._session.run_with_iobinding(self._binding)


def draft_export_command(folder: Path) -> str:
    return f"export it with: ./specdrive export {folder} {folder} --target MODEL"


def _open(folder: Path, config: DraftConfig, threads: int) -> list[onnxruntime.InferenceSession]:
    remedy, names = draft_export_command(folder), DRAFT_GRAPHS[config.kind]
    sessions = {name: open_graph(folder, name, threads, remedy) for name in names}
    records = {name: graph_record(folder, name, session, remedy) for name, session in sessions.items()}
    check_weights(folder, records, remedy)
    for name, record in records.items():
        if record.tap_layers != config.tap_layers:
            raise InputError(
                f"{folder / name}.onnx: reads taps {list(record.tap_layers)}, config.json says "
                f"{list(config.tap_layers)}; {remedy}"
            )
    return list(sessions.values())


def draft_words(folder: Path) -> np.ndarray:
    """[words] target ids of the draft's vocabulary, from d2t. Raises InputError if that is unreadable."""
    try:
        with safe_open(str(folder / WEIGHTS), "np") as file:
            offsets = file.get_tensor("d2t")
    except (SafetensorError, OSError) as error:
        raise InputError(
            f"{folder / WEIGHTS}: has no readable d2t ({error}); fetch or save the draft again"
        ) from None
    return np.arange(len(offsets)) + offsets.astype(np.int64)
