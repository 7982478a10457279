"""Exports a checkpoint's networks as ONNX graphs without weights of their own.

Networks are traced without their weights (`stored_weights.py`): every initializer is a reference into the checkpoint's
safetensors files (ONNX external data: file, offset, length). So a graph has some hundred kilobytes, weights are stored
once and never read, and casts and concatenations of weights are folded when a session or an engine is made. Only the
comparison with PyTorch afterwards needs memory for weights, for one of the two at a time. Needs torch; driving does
not.
"""

import contextlib
import gc
import logging
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import torch
from onnxscript import optimizer
from torch.export import Dim

from specdrive_ros.draft.taps import eagle3_taps
from specdrive_ros.errors import InputError, WorkFailed
from specdrive_ros.runtime.bindings import (
    ACTION_OUTPUTS,
    VISION_INPUTS,
    VISION_OUTPUTS,
    GraphRecord,
    action_step_inputs,
    text_inputs,
    text_outputs,
)
from specdrive_ros.runtime.checkpoint_copy import copy_checkpoint
from specdrive_ros.runtime.graphs import ActionStep, TextGraph, VisionGraph
from specdrive_ros.runtime.networks import TargetNetworks
from specdrive_ros.runtime.onnx_networks import OnnxNetworks
from specdrive_ros.runtime.stored_weights import KEPT_INSIDE, StoredWeights, keeps
from specdrive_ros.runtime.torch_networks import TorchNetworks
from specdrive_ros.runtime.weights_file import sha256, tensor_places, weights_files
from specdrive_ros.shapes import FLOW_STEPS
from specdrive_ros.target.checkpoint import load_target, outline_target
from specdrive_ros.target.config import TargetConfig
from specdrive_ros.target.network import AlpamayoTarget
from specdrive_ros.target.rope import text_positions

OPSET = 20  # the first with Gelu; every engine's parser supports it
DYNAMIC = Dim.DYNAMIC
_FOLDED = 256  # values; constants up to this size are folded now, weights when a session is made


_Networks = TargetNetworks | Callable[[], TargetNetworks]


@dataclass(frozen=True)
class Comparison:
    """Largest absolute difference between the exported graph and PyTorch, and its tolerance."""

    output: str
    error: float
    tolerance: float

    @property
    def passed(self) -> bool:
        return self.error <= self.tolerance


def export_checkpoint(
    model: str | Path,
    folder: str | Path,
    *,
    tap_layers: tuple[int, ...] | None = None,
    flow_steps: int = FLOW_STEPS,
    comparing: bool = True,
    on_graph: Callable[[str], None] = lambda name: None,
) -> list[Comparison]:
    """Writes the graphs of a checkpoint folder into `folder` and, if `comparing`, compares them with PyTorch.

    Another folder than `model` gets a copy of the checkpoint first. `on_graph` is called with the name of each graph
    before it is made. Raises `WorkFailed` if a graph differs from PyTorch by more than the tolerance.
    """
    model, folder = Path(model), Path(folder)
    config = TargetConfig.load(model)
    tap_layers = _checked_taps(tap_layers, config.text.num_hidden_layers)
    if folder.resolve() != model.resolve():
        copy_checkpoint(config, folder)
    places = tensor_places(folder)
    outline = outline_target(folder, {name: place.shape for name, place in places.items()})
    hashes = {path.name: sha256(path) for path in weights_files(folder)}
    for name, trace in _tracers(outline, StoredWeights(outline, places), tap_layers, flow_steps).items():
        on_graph(name)
        graph = trace()
        record = GraphRecord(name, tap_layers, flow_steps, hashes)
        onnx.helper.set_model_props(graph, record.to_metadata())
        save_graph(graph, folder, name)
    if not comparing:
        return []
    comparisons = compare(
        lambda: TorchNetworks(load_target(folder), tap_layers, flow_steps), lambda: OnnxNetworks(folder, threads=1)
    )
    if failed := [c for c in comparisons if not c.passed]:
        raise WorkFailed(
            f"export of {folder}: {failed[0].output} differs from PyTorch by {failed[0].error:.1e}, "
            f"allowed is {failed[0].tolerance:.0e}"
        )
    return comparisons


def compare(reference: _Networks, networks: _Networks) -> list[Comparison]:
    """Runs prefill, one token, a block and the action head of both on the same random input.

    Each may be a function that makes the networks; these are then freed before the others are made.
    """
    expected, found = (_exercise_made(each, np.random.default_rng(0)) for each in (reference, networks))
    return [
        Comparison(
            name, float(np.abs(expected[name] - found[name]).max()), 1e-3 if name == "action" else 1e-4
        )
        for name in expected
    ]


def _exercise_made(networks: _Networks, random: np.random.Generator) -> dict[str, np.ndarray]:
    outputs = _exercise(networks() if callable(networks) else networks, random)
    gc.collect()  # modules have reference cycles
    return outputs


def _exercise(networks: TargetNetworks, random: np.random.Generator) -> dict[str, np.ndarray]:
    config, outputs = networks.config, {}
    merge = config.vision.spatial_merge_size
    grid = np.array([[1, 3 * merge, 4 * merge], [1, 3 * merge, 4 * merge], [1, 2 * merge, merge]])
    patches = random.uniform(-1, 1, (int(grid.prod(1).sum()), config.vision.patch_values)).astype(np.float32)
    features = networks.encode_images(patches, grid)
    outputs["image embeddings"], outputs["deepstack"] = features.embeddings, features.deepstack
    cache, start = networks.new_cache(128), 0
    for name, tokens, deepstack in (
        ("prefill", len(features.embeddings), features.deepstack),
        ("token", 1, None),
        ("block", 16, None),
    ):
        ids = random.integers(0, config.vocabulary.traj_token_start_idx, tokens)
        embeddings = networks.embed(ids) + (features.embeddings if deepstack is not None else 0)
        output = networks.extend(embeddings, text_positions(start, tokens, 0), cache, deepstack=deepstack)
        outputs[f"{name} logits"], outputs[f"{name} taps"] = output.logits, output.taps
        start += tokens
    outputs["keys and values"] = cache.rows[:, :start]
    waypoints = config.action_space.n_waypoints
    noise = random.standard_normal((waypoints, 2), np.float32)
    outputs["action"] = networks.act(noise, text_positions(start, waypoints, 0), cache, visible=start - 3)
    return outputs


def _checked_taps(tap_layers: tuple[int, ...] | None, layers: int) -> tuple[int, ...]:
    if tap_layers is None:
        return eagle3_taps(layers)
    if not tap_layers or not all(0 <= tap <= layers for tap in tap_layers):
        raise InputError(
            f"tap layers {list(tap_layers)}: each must be 0 … {layers}, the layer a hidden state enters"
        )
    return tuple(tap_layers)


def _tracers(
    target: AlpamayoTarget, stored: StoredWeights, tap_layers: tuple[int, ...], flow_steps: int
) -> dict[str, Callable[[], onnx.ModelProto]]:
    layers = target.config.text.num_hidden_layers
    each_past, each_laid_out = [{0: DYNAMIC}] * layers, [{1: DYNAMIC}] * layers
    of = partial(trace_graph, stored)
    return {
        "vision": lambda: of(
            VisionGraph(target), lambda: _vision_example(target.config), VISION_INPUTS, VISION_OUTPUTS,
            ({0: DYNAMIC, 1: DYNAMIC}, *[{0: DYNAMIC}] * 4),
        ),
        "text": lambda: of(
            TextGraph(target, tap_layers), lambda: _text_example(target.config), text_inputs(layers),
            text_outputs(layers),
            (*[{0: DYNAMIC}] * 3, {0: DYNAMIC, 1: DYNAMIC}, {1: DYNAMIC}, {0: DYNAMIC}, each_past),
        ),
        "action_step": lambda: of(
            ActionStep(target, flow_steps), lambda: _action_example(target.config), action_step_inputs(layers),
            ACTION_OUTPUTS, ({}, {}, {}, {}, each_laid_out, each_laid_out),
        ),
    }  # fmt: skip


def trace_graph(
    stored: StoredWeights, module: torch.nn.Module, example: Callable[[], tuple], inputs, outputs, dynamic: tuple
) -> onnx.ModelProto:
    """The graph of a module, traced on the meta device, with its initializers referring to `stored`."""
    with torch.device("meta"):
        inputs_without_numbers = example()
    with _quiet_exporter(), torch.no_grad():
        program = torch.onnx.export(
            module.eval(),
            inputs_without_numbers,
            dynamo=True,
            dynamic_shapes=dynamic,
            opset_version=OPSET,
            input_names=list(inputs),
            output_names=list(outputs),
            optimize=False,
            verbose=False,
        )
    stored.refer(program.model, module)
    optimizer.optimize_ir(program.model, input_size_limit=_FOLDED, should_fold=lambda node: keeps(node, _FOLDED))
    graph = ir.to_proto(program.model)
    for node in graph.graph.node:
        del node.metadata_props[:]  # stack traces, larger than the graph
    del graph.graph.value_info[:]
    return graph


@contextlib.contextmanager
def _quiet_exporter() -> Iterator[None]:
    """Silences the exporter's warnings of packages that are not installed and of its own deprecations."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            yield
    finally:
        logger.setLevel(level)


def _vision_example(config: TargetConfig) -> tuple:
    images, patches, vision = 2, 24, config.vision
    return (
        torch.randn(images, patches, vision.patch_values),
        torch.zeros(patches, 4, dtype=torch.int64),
        torch.randn(patches, 4),
        torch.randn(patches, vision.head_dim),
        torch.randn(patches, vision.head_dim),
    )


def _text_example(config: TargetConfig) -> tuple:
    text, tokens, cached = config.text, 7, 9
    levels = len(config.vision.deepstack_visual_indexes)
    return (
        torch.randn(tokens, text.hidden_size),
        torch.randn(tokens, text.head_dim),
        torch.randn(tokens, text.head_dim),
        torch.zeros(tokens, cached + tokens),
        torch.zeros(levels, tokens, text.hidden_size),
        torch.tensor([0, 3, 5]),
        _past_example(config, cached),
    )


def _action_example(config: TargetConfig) -> tuple:
    waypoints, head = config.action_space.n_waypoints, config.text.head_dim
    past = [torch.randn(config.text.num_key_value_heads, 9, head) for _ in range(2 * config.text.num_hidden_layers)]
    return (
        torch.randn(waypoints, 2),
        torch.zeros(1, 1, 1),
        torch.randn(waypoints, head),
        torch.randn(waypoints, head),
        past[::2],
        past[1::2],
    )


def _past_example(config: TargetConfig, cached: int) -> list[torch.Tensor]:
    text = config.text
    return [
        torch.randn(cached, 2, text.num_key_value_heads, text.head_dim) for _ in range(text.num_hidden_layers)
    ]


def save_graph(graph: onnx.ModelProto, folder: Path, name: str) -> None:
    """Saves a graph; constants not from the checkpoint stay inside if small, else they get a file of their own."""
    own = sum(len(tensor.raw_data) for tensor in graph.graph.initializer)
    data = folder / f"{name}.onnx.data"
    data.unlink(missing_ok=True)
    onnx.save_model(
        graph,
        str(folder / f"{name}.onnx"),
        save_as_external_data=own > 2**20,
        location=data.name,
        size_threshold=KEPT_INSIDE,
    )
