"""Exports a draft's networks as ONNX graphs without weights of their own, and compares them with PyTorch.

Two graphs per kind (`bindings.py`): one takes in true tokens, one proposes. Needs torch; driving does not.
"""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import torch

from specdrive_ros.draft.checkpoint import load_draft_network, outline_draft, published_names
from specdrive_ros.draft.config import DFlashConfig, Eagle3Config
from specdrive_ros.draft.dflash_network import DFlash
from specdrive_ros.draft.eagle3_network import Eagle3
from specdrive_ros.draft.layout import read_draft_config
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
from specdrive_ros.runtime.export import DYNAMIC, Comparison, save_graph, trace_graph
from specdrive_ros.runtime.onnx_drafts import OnnxDFlash, OnnxEagle3
from specdrive_ros.runtime.stored_weights import StoredWeights
from specdrive_ros.runtime.torch_drafts import TorchDFlash, TorchEagle3
from specdrive_ros.runtime.weights_file import sha256, tensor_places, weights_files
from specdrive_ros.target.config import TextConfig

TOLERANCE = 1e-4
_ROWS, _MORE, _PAST = 5, 7, 9  # sizes of the examples that graphs are traced with: three different numbers


def export_draft(
    draft: str | Path, folder: str | Path, text: TextConfig, *, on_graph: Callable[[str], None] = lambda name: None
) -> list[Comparison]:
    """Writes the graphs of a draft folder into `folder` and compares them. Another folder gets a copy of the draft
    first.

    text: the target's language model. Raises `WorkFailed` if a graph differs from PyTorch by more than the tolerance.
    """
    draft, folder = Path(draft), Path(folder)
    if folder.resolve() != draft.resolve():
        folder.mkdir(parents=True, exist_ok=True)
        for path in (draft / "config.json", *weights_files(draft)):
            shutil.copyfile(path, folder / path.name)
    outline = outline_draft(read_draft_config(folder, text))
    stored = StoredWeights(outline, published_names(tensor_places(folder), outline.config))
    hashes = {path.name: sha256(path) for path in weights_files(folder)}
    network = load_draft_network(folder, text)  # before the export, because it reports what is wrong with a file
    for name, trace in _tracers(stored).items():
        on_graph(name)
        graph = trace()
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
    """Takes in a prompt and a few tokens, and proposes after each: PyTorch and ONNX Runtime on the same random
    input."""
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
    outputs, rows, start = {}, np.zeros((1, 64, 2, config.num_key_value_heads, config.head_dim), np.float32), 0
    for name, tokens in (("prompt", 20), ("token", 1), ("accepted", 5)):
        embeddings, taps = _normal(random, tokens, config), _normal(random, tokens, config, len(config.tap_layers))
        tables = config.make_rope().tables(np.stack([start + np.arange(tokens)] * 3))
        hidden, logits = networks.newest(embeddings, taps, *tables, rows[:, :start], rows[:, start : start + tokens])
        start += tokens
        outputs[f"{name} hidden"], outputs[f"{name} logits"] = hidden, logits
        beams = 4
        mask = np.where(random.random((beams, start + beams)) < 0.3, np.float32(-1e9), np.float32(0))
        tables = config.make_rope().tables(np.full((3, beams), start))
        hidden, logits = networks.step(
            _normal(random, beams, config), np.repeat(hidden, beams, 0), *tables, mask, rows[:, :start],
            rows[:, start : start + beams],
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


def _tracers(stored: StoredWeights) -> dict[str, Callable[[], onnx.ModelProto]]:
    return (_eagle3_tracers if isinstance(stored.network, Eagle3) else _dflash_tracers)(stored)


def _eagle3_tracers(stored: StoredWeights) -> dict[str, Callable[[], onnx.ModelProto]]:
    network = stored.network
    config, first, of = network.config, {0: DYNAMIC}, partial(trace_graph, stored)
    size, taps, rows = config.hidden_size, _tap_values(config), partial(torch.randn, _ROWS)
    return {
        "eagle3_newest": lambda: of(
            Eagle3Newest(network), lambda: (rows(size), rows(taps), *_turned(config), _past(config)),
            EAGLE3_NEWEST_INPUTS, EAGLE3_OUTPUTS, (first,) * 5,
        ),
        "eagle3_step": lambda: of(
            Eagle3Step(network),
            lambda: (rows(size), rows(size), *_turned(config), rows(_PAST + _ROWS), _past(config)),
            EAGLE3_STEP_INPUTS, EAGLE3_OUTPUTS, (first, first, first, first, {0: DYNAMIC, 1: DYNAMIC}, first),
        ),
    }  # fmt: skip


def _dflash_tracers(stored: StoredWeights) -> dict[str, Callable[[], onnx.ModelProto]]:
    network = stored.network
    config, first, of = network.config, {0: DYNAMIC}, partial(trace_graph, stored)
    size, layers = config.hidden_size, config.num_hidden_layers

    def block():  # a tensor per layer: the exporter would merge one tensor used twice into one input
        past = [_past(config) for _ in range(layers)]
        return torch.randn(_ROWS, size), *_turned(config), torch.randn(size, _MORE), past

    return {
        "dflash_context": lambda: of(
            DFlashContext(network), lambda: (torch.randn(_ROWS, _tap_values(config)), *_turned(config)),
            DFLASH_CONTEXT_INPUTS, new_names(layers), (first,) * 3,
        ),
        "dflash_block": lambda: of(
            DFlashBlock(network), block, dflash_block_inputs(layers), DFLASH_BLOCK_OUTPUTS,
            (first, first, first, {1: DYNAMIC}, [first] * layers),
        ),
    }  # fmt: skip


def _tap_values(config) -> int:
    return len(config.tap_layers) * config.hidden_size


def _turned(config) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(_ROWS, config.head_dim), torch.randn(_ROWS, config.head_dim)


def _past(config) -> torch.Tensor:
    return torch.randn(_PAST, 2, config.num_key_value_heads, config.head_dim)
