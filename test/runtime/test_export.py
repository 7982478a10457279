import json
import shutil
from pathlib import Path

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="needs the train extra")
pytest.importorskip("onnxscript", reason="needs the train extra")

from specdrive_ros.cli.export import steps_before  # noqa: E402
from specdrive_ros.errors import InputError, WorkFailed  # noqa: E402
from specdrive_ros.model_settings import find_model  # noqa: E402
from specdrive_ros.runtime import export  # noqa: E402
from specdrive_ros.runtime.bindings import GRAPHS  # noqa: E402
from specdrive_ros.runtime.weights_file import tensor_places  # noqa: E402
from specdrive_ros.target.config import TargetConfig  # noqa: E402

GOLDEN = Path(__file__).parents[1] / "golden" / "alpamayo_A"


@pytest.mark.parametrize("name", GRAPHS)
def test_graphs_point_into_the_checkpoint(exported, name):
    """No weight is stored twice: what a graph keeps for itself is small."""
    graph = onnx.load(exported / f"{name}.onnx", load_external_data=False).graph
    places = {(place.offset, place.length) for place in tensor_places(exported).values()}
    own = 0
    for tensor in graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            entry = {item.key: item.value for item in tensor.external_data}
            assert entry["location"] == "model.safetensors"
            assert (int(entry["offset"]), int(entry["length"])) in places
        else:
            own += len(tensor.raw_data)
    assert own < 20_000
    assert not (exported / f"{name}.onnx.data").exists()


def test_record_in_the_graph(exported):
    graph = onnx.load(exported / "text.onnx", load_external_data=False)
    (entry,) = graph.metadata_props
    record = json.loads(entry.value)
    assert record["tap_layers"] == [2, 2, 1] and record["flow_steps"] == 10
    assert list(record["weights"]) == ["model.safetensors"]


def test_copy_is_a_whole_checkpoint(exported):
    assert (exported / "config.json").is_file() and (exported / "tokenizer.json").is_file()
    assert (exported / "backbone" / "config.json").is_file()


def test_backbone_named_like_a_repository_is_found_in_the_copy(exported, tmp_path):
    source = shutil.copytree(exported, tmp_path / "source")
    config = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps(config | {"vlm_name_or_path": "someone/backbone"}))
    shutil.move(source / "backbone", tmp_path / "backbone")
    export.copy_checkpoint(TargetConfig.load(source), tmp_path / "a" / "copy")
    shutil.rmtree(tmp_path / "backbone")
    assert TargetConfig.load(tmp_path / "a" / "copy").text.hidden_size == 64
    assert not list((tmp_path / "a" / "copy").glob("*.onnx"))


def test_differences_fail(exported, torch_networks, onnx_networks):
    class Wrong:
        def __getattr__(self, name):
            return getattr(onnx_networks, name)

        def act(self, *args, **options):
            return onnx_networks.act(*args, **options) + np.float32(0.01)

    failed = [one.output for one in export.compare(torch_networks, Wrong()) if not one.passed]
    assert failed == ["action"]


def test_work_fails_over_the_tolerance(tmp_path, monkeypatch, exported):
    monkeypatch.setattr(export, "_tracers", lambda *_: {})
    monkeypatch.setattr(export, "compare", lambda *_: [export.Comparison("token logits", 0.5, 1e-4)])
    shutil.copytree(exported, tmp_path, dirs_exist_ok=True)
    with pytest.raises(WorkFailed, match="token logits differs from PyTorch by 5.0e-01"):
        export.export_checkpoint(tmp_path, tmp_path)


@pytest.mark.parametrize("taps", [(), (5,), (-1, 2)])
def test_tap_layers_out_of_range(tmp_path, taps):
    with pytest.raises(InputError, match="each must be 0 … 4"):
        export.export_checkpoint(GOLDEN / "checkpoint", tmp_path / "out", tap_layers=taps)


def test_a_model_without_settings_is_exported_with_the_steps_it_had(exported, tmp_path):
    """Ten as published where it had none, or where what it had is broken and about to be replaced."""
    for name, content, expected in (("none", None, 10), ("broken", b"no graph", 10)):
        (tmp_path / name).mkdir()
        if content:
            (tmp_path / name / "action_step.onnx").write_bytes(content)
        assert steps_before(tmp_path / name) == expected
    assert steps_before(exported) == 10 and steps_before(find_model("mini").checkpoint) == 4
