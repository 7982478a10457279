"""The PyTorch runtime: the same graphs, run eagerly. The reference that other runtimes are compared with.

Needs no exported graphs. If a folder has them, their settings hold here, too: the hidden states that `export
--tap-layers` chose for drafts, and the steps of the action head.
"""

from pathlib import Path

import numpy as np
import torch

from specdrive_ros.draft.taps import eagle3_taps
from specdrive_ros.engine.graph_file import exported_flow_steps, exported_record
from specdrive_ros.runtime.graphs import ActionStep, DecoderLayer, TextGraph, VisionGraph
from specdrive_ros.runtime.host import GraphNetworks
from specdrive_ros.shapes import FLOW_STEPS
from specdrive_ros.target.checkpoint import load_target
from specdrive_ros.target.network import AlpamayoTarget


class TorchNetworks(GraphNetworks):
    """`TargetNetworks` in float32 on the CPU."""

    runtime = "torch"

    def __init__(
        self, target: AlpamayoTarget, tap_layers: tuple[int, ...] | None = None, flow_steps: int = FLOW_STEPS
    ):
        tap_layers = tap_layers or eagle3_taps(target.config.text.num_hidden_layers)
        super().__init__(target.config, tap_layers, flow_steps)
        self._embedding = target.language_model.embed_tokens.weight.detach().numpy()
        self.vision, self.text, self.action_step = (
            VisionGraph(target),
            TextGraph(target, tap_layers),
            ActionStep(target, flow_steps),
        )
        for module in (*self.text.modules(), *self.action_step.modules()):
            if isinstance(module, DecoderLayer):
                module.fuse()

    @classmethod
    def load(cls, folder: str | Path, *, threads: int) -> "TorchNetworks":
        """Loads a checkpoint folder. `threads` applies to the whole process. Raises `InputError` if a graph in the
        folder does not say what it is."""
        torch.set_num_threads(threads)
        text = exported_record(Path(folder), "text")
        return cls(load_target(folder), text and text.tap_layers, exported_flow_steps(Path(folder)))

    def embed(self, token_ids: np.ndarray) -> np.ndarray:
        return self._embedding[token_ids]

    @torch.inference_mode()
    def run_vision(self, *inputs):
        embeddings, deepstack = self.vision(*map(torch.from_numpy, inputs))
        return embeddings.numpy(), deepstack.numpy()

    @torch.inference_mode()
    def run_text(self, hidden, cos, sin, mask, deepstack, logit_rows, past, new):
        inputs = map(torch.from_numpy, (hidden, cos, sin, mask, deepstack, logit_rows))
        logits, taps, *rows = self.text(*inputs, list(torch.from_numpy(past)))
        for layer, row in enumerate(rows):
            new[layer] = row.numpy()
        return logits.numpy(), taps.numpy()

    @torch.inference_mode()
    def run_action_step(self, noise, time, cos, sin, past):
        inputs = map(torch.from_numpy, (noise, time, cos, sin))
        keys, values = map(torch.from_numpy, past)
        return self.action_step(*inputs, list(keys), list(values)).numpy()
