"""Exports a draft's networks as ONNX graphs that hold no weights of their own, and compares them with PyTorch.

Two graphs a kind (`bindings.py`): what takes up true tokens and what proposes. Needs torch; driving does not.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import torch

from specdrive_ros.draft.checkpoint import load_draft_network
from specdrive_ros.draft.config import DFlashConfig, Eagle3Config
from specdrive_ros.draft.dflash_network import DFlash
from specdrive_ros.draft.eagle3_network import Eagle3
from specdrive_ros.errors import WorkFailed
from specdrive_ros.runtime.bindings import (
    DFLASH_BLOCK_OUTPUTS,
    DFLASH_CONTEXT_INPUTS,
    EAGLE3_NEWEST_INPUTS,
    EAGLE3_OUTPUTS,
    EAGLE3_STEP_INPUTS,
    GraphRecord,
    dflash_block_inputs,
    new_names,
)
from specdrive_ros.runtime.draft_graphs import DFlashBlock, DFlashContext, Eagle3Newest, Eagle3Step
from specdrive_ros.runtime.export import DYNAMIC, Comparison, point_into_checkpoint, save_graph, trace_graph
from specdrive_ros.runtime.onnx_drafts import OnnxDFlash, OnnxEagle3
from specdrive_ros.runtime.torch_drafts import TorchDFlash, TorchEagle3
from specdrive_ros.runtime.weights_file import sha256, tensor_places, weights_files
from specdrive_ros.target.config import TextConfig

TOLERANCE = 1e-4
_ROWS, _MORE, _PAST = 5, 7, 9  # of the examples that graphs are traced with: three different numbers


def export_draft(
    draft: str | Path, folder: str | Path, text: TextConfig, *, on_graph: Callable[[str], None] = lambda name: None
) -> list[Comparison]:
    """Write the graphs of a draft folder into `folder`, compare them. Another folder gets a copy of the draft first.

    text: the target's language model. Raises `WorkFailed` where a graph differs from PyTorch over the tolerance.
    """
    draft, folder = Path(draft), Path(folder)
    if folder.resolve() != draft.resolve():
        folder.mkdir(parents=True, exist_ok=True)
        for path in (draft / "config.json", *weights_files(draft)):
            shutil.copyfile(path, folder / path.name)
    network = load_draft_network(folder, text)
    places, hashes = tensor_places(folder), {path.name: sha256(path) for path in weights_files(folder)}
    for name, trace in _tracers(network).items():
        on_graph(name)
        graph = trace()
        point_into_checkpoint(graph, places)
        onnx.helper.set_model_props(graph, GraphRecord(name, network.config.tap_layers, 0, hashes).to_metadata())
        save_graph(graph, folder, name)
    comparisons = compare_draft(network, folder)
    if failed := [one for one in comparisons if not one.passed]:
        raise WorkFailed(
            f"export of {folder}: {failed[0].output} differs from PyTorch by {failed[0].error:.1e}, "
            f"allowed is {failed[0].tolerance:.0e}"
        )
    return comparisons


def compare_draft(network: Eagle3 | DFlash, folder: Path) -> list[Comparison]:
    """Take up a prompt and a few tokens, propose behind each: PyTorch and ONNX Runtime on the same random input."""
    config = network.config
    if isinstance(config, Eagle3Config):
        pair, exercise = (TorchEagle3(network), OnnxEagle3(folder, config)), _exercise_eagle3
    else:
        head = np.random.default_rng(1).standard_normal((config.vocab_size, config.hidden_size), np.float32)
        head /= np.sqrt(config.hidden_size)
        pair, exercise = (TorchDFlash(network, head), OnnxDFlash(folder, config, head)), _exercise_dflash
    expected, found = (exercise(each, config, np.random.default_rng(0)) for each in pair)
    return [Comparison(name, float(np.abs(expected[name] - found[name]).max()), TOLERANCE) for name in expected]


def _exercise_eagle3(networks, config: Eagle3Config, random: np.random.Generator) -> dict[str, np.ndarray]:
    outputs, rows, start = {}, np.zeros((64, 2, config.num_key_value_heads, config.head_dim), np.float32), 0
    for name, tokens in (("prompt", 20), ("token", 1), ("accepted", 5)):
        embeddings, taps = _normal(random, tokens, config), _normal(random, tokens, config, len(config.tap_layers))
        tables = config.make_rope().tables(np.stack([start + np.arange(tokens)] * 3))
        hidden, logits = networks.newest(embeddings, taps, *tables, rows[:start], rows[start : start + tokens])
        start += tokens
        outputs[f"{name} hidden"], outputs[f"{name} logits"] = hidden, logits
        beams = 4
        mask = np.where(random.random((beams, start + beams)) < 0.3, np.float32(-1e9), np.float32(0))
        tables = config.make_rope().tables(np.full((3, beams), start))
        hidden, logits = networks.step(
            _normal(random, beams, config), np.repeat(hidden, beams, 0), *tables, mask, rows[:start],
            rows[start : start + beams],
        )  # fmt: skip
        outputs[f"{name} + step hidden"], outputs[f"{name} + step logits"] = hidden, logits
    return outputs | {"keys and values": rows}


def _exercise_dflash(networks, config: DFlashConfig, random: np.random.Generator) -> dict[str, np.ndarray]:
    layers, outputs, start = config.num_hidden_layers, {}, 0
    rows = np.zeros((layers, 64, 2, config.num_key_value_heads, config.head_dim), np.float32)
    for name, tokens, slots in (("prompt", 20, config.block_size), ("token", 1, 2), ("accepted", 5, 8)):
        taps = _normal(random, tokens, config, len(config.tap_layers))
        tables = config.make_rope().tables(np.stack([start + np.arange(tokens)] * 3))
        networks.inject(taps, *tables, rows[:, start : start + tokens])
        start += tokens
        tables = config.make_rope().tables(np.stack([start + np.arange(slots)] * 3))
        outputs[f"{name} + block logits"] = networks.fill(_normal(random, slots, config), *tables, rows[:, :start])
    return outputs | {"keys and values": rows}


def _normal(random: np.random.Generator, rows: int, config, times: int = 1) -> np.ndarray:
    return random.standard_normal((rows, times * config.hidden_size), np.float32)


def _tracers(network: Eagle3 | DFlash) -> dict[str, Callable[[], onnx.ModelProto]]:
    config = network.config
    size, head, taps = config.hidden_size, config.head_dim, len(config.tap_layers) * config.hidden_size
    first = {0: DYNAMIC}
    past = torch.randn(_PAST, 2, config.num_key_value_heads, head)
    turned = (torch.randn(_ROWS, head), torch.randn(_ROWS, head))
    if isinstance(network, Eagle3):
        newest = (torch.randn(_ROWS, size), torch.randn(_ROWS, taps), *turned, past)
        step = (torch.randn(_ROWS, size), torch.randn(_ROWS, size), *turned, torch.zeros(_ROWS, _PAST + _ROWS), past)
        return {
            "eagle3_newest": lambda: trace_graph(
                Eagle3Newest(network), newest, EAGLE3_NEWEST_INPUTS, EAGLE3_OUTPUTS, (first,) * 5
            ),
            "eagle3_step": lambda: trace_graph(
                Eagle3Step(network), step, EAGLE3_STEP_INPUTS, EAGLE3_OUTPUTS,
                (first, first, first, first, {0: DYNAMIC, 1: DYNAMIC}, first),
            ),
        }  # fmt: skip
    layers = config.num_hidden_layers  # each with a tensor of its own: the exporter takes one twice for one input
    context = (torch.randn(_ROWS, taps), *turned)
    block = (torch.randn(_ROWS, size), *turned, torch.randn(size, _MORE), [past.clone() for _ in range(layers)])
    return {
        "dflash_context": lambda: trace_graph(
            DFlashContext(network), context, DFLASH_CONTEXT_INPUTS, new_names(layers), (first,) * 3
        ),
        "dflash_block": lambda: trace_graph(
            DFlashBlock(network), block, dflash_block_inputs(layers), DFLASH_BLOCK_OUTPUTS,
            (first, first, first, {1: DYNAMIC}, [first] * layers),
        ),
    }  # fmt: skip
