"""What is PyTorch's own; the numbers of both runtimes: test_golden_networks.py."""

import shutil
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the train extra")
onnx = pytest.importorskip("onnx", reason="needs the train extra")

from specdrive_ros.engine.graph_file import read_record  # noqa: E402
from specdrive_ros.errors import InputError  # noqa: E402
from specdrive_ros.runtime.registry import load_networks  # noqa: E402
from specdrive_ros.target.rope import text_positions  # noqa: E402


def exported_with(exported, folder, taps):
    """The exported checkpoint, its text graph saying that it was exported with other taps."""
    shutil.copytree(exported, folder)
    path = folder / "text.onnx"
    graph = onnx.load(path, load_external_data=False)
    onnx.helper.set_model_props(graph, replace(read_record(path, ""), tap_layers=taps).to_metadata())
    onnx.save(graph, path)
    return folder


def hidden_states(networks):
    cache, ids = networks.new_cache(3), np.array([5, 6, 7])
    return networks.extend(networks.embed(ids), text_positions(0, 3, 0), cache).taps


def test_the_exported_taps_hold_here_too(exported, torch_networks, tmp_path):
    networks = load_networks(exported_with(exported, tmp_path / "model", (1, 3, 4, 2)), "torch")
    assert networks.tap_layers == (1, 3, 4, 2) and torch_networks.tap_layers == (2, 2, 1)
    found, usual = hidden_states(networks), hidden_states(torch_networks)
    size = networks.config.text.hidden_size
    assert found.shape == (3, 4 * size)
    np.testing.assert_array_equal(found[:, 3 * size :], usual[:, :size])  # both the state that enters layer 2
    np.testing.assert_array_equal(found[:, :size], usual[:, 2 * size :])


def test_a_graph_that_does_not_say_its_taps_is_refused(exported, tmp_path):
    folder = shutil.copytree(exported, tmp_path / "model")
    (folder / "text.onnx").write_bytes(b"no graph")
    with pytest.raises(InputError, match="text.onnx: damaged .*export it again"):
        load_networks(folder, "torch")
