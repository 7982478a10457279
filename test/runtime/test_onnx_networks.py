"""What the ONNX runtime refuses, and that it needs no torch."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from specdrive_ros.errors import InputError
from specdrive_ros.runtime.onnx_networks import OnnxNetworks
from specdrive_ros.target.config import TargetConfig


@pytest.fixture
def copy(exported, tmp_path):
    """A copy of the exported checkpoint to damage."""
    return shutil.copytree(exported, tmp_path / "model")


def refusal(folder) -> str:
    with pytest.raises(InputError) as caught:
        OnnxNetworks(folder, threads=1)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("graph", ["vision", "text", "action_step"])
def test_missing_graph(copy, graph):
    (copy / f"{graph}.onnx").unlink()
    assert f"{graph}.onnx: no such graph; export them with: ./specdrive export" in refusal(copy)


def test_changed_weights(copy):
    weights = copy / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-5] ^= 1
    weights.write_bytes(content)
    assert "is not the file vision.onnx was exported from" in refusal(copy)


def test_weights_cut_short(copy):
    weights = copy / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    assert "damaged or no safetensors file" in refusal(copy)


def test_missing_weights(copy):
    (copy / "model.safetensors").unlink()
    assert "no model.safetensors" in refusal(copy)


@pytest.mark.parametrize("content", [b"", b"no graph at all"])
def test_garbage_for_a_graph(copy, content):
    (copy / "text.onnx").write_bytes(content)
    assert "text.onnx: " in refusal(copy)


def test_graphs_of_another_size_of_model(copy):
    """The weights' names and places differ: refused whatever ONNX Runtime makes of the bytes it finds."""
    header_size = int.from_bytes((copy / "model.safetensors").read_bytes()[:8], "little")
    content = (copy / "model.safetensors").read_bytes()
    header = json.loads(content[8 : 8 + header_size])
    padded = json.dumps(header | {"__metadata__": {"note": "x" * 800}}).encode()
    (copy / "model.safetensors").write_bytes(
        len(padded).to_bytes(8, "little") + padded + content[8 + header_size :]
    )
    assert ".onnx" in refusal(copy)


def test_graph_of_another_version(copy):
    onnx = pytest.importorskip("onnx", reason="needs the train extra")
    graph = onnx.load(copy / "text.onnx", load_external_data=False)
    record = json.loads(graph.metadata_props[0].value) | {"version": 99}
    graph.metadata_props[0].value = json.dumps(record)
    onnx.save(graph, copy / "text.onnx")
    assert "export version 99" in refusal(copy)


def test_graph_from_elsewhere(copy):
    onnx = pytest.importorskip("onnx", reason="needs the train extra")
    graph = onnx.load(copy / "action_step.onnx", load_external_data=False)
    del graph.metadata_props[:]
    onnx.save(graph, copy / "action_step.onnx")
    assert "was not exported by this package" in refusal(copy)


@pytest.mark.parametrize("graph, other", [("vision", "text"), ("text", "action_step"), ("action_step", "vision")])
def test_a_graph_under_the_name_of_another(copy, graph, other):
    shutil.copy(copy / f"{graph}.onnx", copy / f"{other}.onnx")
    assert f"{other}.onnx: is the graph {graph}" in refusal(copy)


@pytest.mark.parametrize("graph", ["vision", "text", "action_step"])
def test_an_output_of_another_name(copy, graph):
    onnx = pytest.importorskip("onnx", reason="needs the train extra")
    changed = onnx.load(copy / f"{graph}.onnx", load_external_data=False)
    name = changed.graph.output[0].name
    changed.graph.node.append(onnx.helper.make_node("Identity", [name], ["renamed"]))
    changed.graph.output[0].name = "renamed"
    onnx.save(changed, copy / f"{graph}.onnx")
    assert f"{graph}.onnx: has no {name}; export them" in refusal(copy)


@pytest.mark.parametrize("change", [{"patch_size": 8}, {"num_position_embeddings": 4}])
def test_config_of_another_vision(copy, change):
    path = TargetConfig.load(copy).backbone_folder / "config.json"
    config = json.loads(path.read_text())
    changed = copy / "backbone" / "config.json"
    changed.parent.mkdir(exist_ok=True)
    changed.write_text(json.dumps(config | {"vision_config": config["vision_config"] | change}))
    assert "vision.onnx: values of a patch, deepstack levels, positions" in refusal(copy)


def test_a_pipe_for_a_config_is_not_waited_for(copy):
    (copy / "config.json").unlink()
    os.mkfifo(copy / "config.json")
    assert "config.json is a pipe" in refusal(copy)


def test_config_of_another_size(copy):
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {"vocab_size": 4460}))
    assert "layers (64, 2, 16, 4454, 4), in the config (64, 2, 16, 4460, 4)" in refusal(copy)


def test_planning_imports_no_torch(exported):
    program = (
        "import sys; from specdrive_ros.cycle import Planner; "
        f"Planner.load({str(exported)!r}, threads=1); "
        "print([name for name in ('torch', 'transformers', 'onnx', 'onnxscript') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
