"""Export without weights in memory: references by name, casts of what is stored narrower, a bound on the memory."""

import json
import subprocess
import sys

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="needs the train extra")
ir = pytest.importorskip("onnx_ir", reason="needs the train extra")
pytest.importorskip("onnxscript", reason="needs the train extra")
torch = pytest.importorskip("torch", reason="needs the train extra")

from specdrive_ros.errors import InputError  # noqa: E402
from specdrive_ros.evaluation import export_cost  # noqa: E402
from specdrive_ros.runtime.stored_weights import StoredWeights, keeps  # noqa: E402
from specdrive_ros.runtime.weights_file import tensor_places  # noqa: E402


class Small(torch.nn.Module):
    def __init__(self):
        super().__init__()
        with torch.device("meta"):
            self.wide, self.narrow = torch.nn.Linear(32, 64), torch.nn.Linear(64, 2, bias=False)

    def forward(self, x):
        return self.narrow(self.wide(x))


@pytest.fixture(scope="module")
def traced():
    """A graph of a network without numbers, before anything is referred to."""
    network = Small().eval()
    with torch.device("meta"):
        program = torch.onnx.export(
            network, (torch.randn(3, 32),), dynamo=True, opset_version=20, optimize=False, verbose=False
        )
    return network, ir.to_proto(_without_numbers(program.model))


def _without_numbers(model):
    for value in model.graph.initializers.values():
        shape = tuple(value.const_value.shape)
        value.const_value = ir.tensor(np.full(shape, np.nan, np.float32), name=value.name)
    return model


@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16"])
def test_what_is_computed_is_what_is_stored(traced, tmp_path, dtype):
    import onnxruntime
    from safetensors.torch import save_file

    network, proto = traced
    kinds = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
    generator = torch.Generator().manual_seed(0)
    weights = {name: torch.randn(value.shape, generator=generator).to(kinds[dtype])
               for name, value in network.state_dict().items()}  # fmt: skip
    save_file(weights, tmp_path / "model.safetensors")
    model = ir.from_proto(proto)
    StoredWeights(network, tensor_places(tmp_path)).refer(model, network)
    ir.save(model, tmp_path / "small.onnx")
    stored = onnx.load(tmp_path / "small.onnx", load_external_data=False)
    outside = [one for one in stored.graph.initializer if one.data_location == onnx.TensorProto.EXTERNAL]
    assert len(outside) == 1 and not (tmp_path / "small.onnx.data").exists()  # the bias and `narrow` are small
    session = onnxruntime.InferenceSession(str(tmp_path / "small.onnx"))
    x = np.random.default_rng(0).standard_normal((3, 32)).astype(np.float32)
    (found,) = session.run(None, {session.get_inputs()[0].name: x})
    wide, bias, narrow = (weights[name].float().numpy() for name in ("wide.weight", "wide.bias", "narrow.weight"))
    np.testing.assert_allclose(found, (x @ wide.T + bias) @ narrow.T, rtol=1e-4, atol=1e-4)


def test_a_type_that_is_no_weight_s(traced, tmp_path):
    network, proto = traced
    shapes = {name: tuple(value.shape) for name, value in network.state_dict().items()}
    export_cost.write_weights(tmp_path / "model.safetensors", shapes, "I32")
    with pytest.raises(InputError, match="model.safetensors: wide.weight is I32; weights must be F32, F16, BF16"):
        StoredWeights(network, tensor_places(tmp_path)).refer(ir.from_proto(proto), network)


def test_large_constants_are_not_folded():
    large, small = (ir.Value(name=str(size), const_value=ir.tensor(np.zeros(size, np.float32))) for size in (300, 200))
    assert keeps(ir.node("Transpose", [large]), 256) is False
    assert keeps(ir.node("Transpose", [small]), 256) is None


BIG = """
title: half a gigabyte in bf16, two layers of the released model's kind
source: none
text: {layers: 2, hidden: 2048, inner: 16384, heads: 8, kv_heads: 2, head: 16, vocabulary: 4454}
vision: {layers: 4, hidden: 32, inner: 64, heads: 4, mergers: 3, positions: 64}
expert: {hidden: 48, inner: 96, heads: 4, waypoints: 64, steps: 10}
cycle: {cameras: 2, frames: 4, patches: 48, prompt: 200, reasoning: 20, capacity: 256}
"""


def test_memory_does_not_grow_with_the_weights(tmp_path):
    """What exporting adds to the imports' memory is a fraction of the weights; they are stored once, as they were."""
    (tmp_path / "big.yaml").write_text(BIG)
    folder = tmp_path / "big"
    command = [sys.executable, "-m", export_cost.__name__, "--model", tmp_path / "big.yaml", "--out", folder, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    cost = json.loads(done.stdout)
    assert cost["weights_bytes"] > 400e6
    assert 0 < cost["added_peak_bytes"] < 0.5 * cost["weights_bytes"]
    graphs = {path.name: path.stat().st_size for path in folder.glob("*.onnx*")}
    assert set(graphs) == {"vision.onnx", "text.onnx", "action_step.onnx"}
    assert sum(graphs.values()) == cost["graphs_bytes"] < 2e6
    text = onnx.load(folder / "text.onnx", load_external_data=False)
    kinds = {one.data_type for one in text.graph.initializer if one.data_location == onnx.TensorProto.EXTERNAL}
    assert kinds == {onnx.TensorProto.BFLOAT16}


def test_weights_are_in_shards_of_a_published_size(monkeypatch):
    monkeypatch.setattr(export_cost, "SHARD_BYTES", 100)
    shapes = {"a": (20,), "b": (30,), "c": (1,), "d": (2, 100), "e": (3,)}  # 40, 60, 2, 400 and 6 bytes
    assert list(map(list, export_cost.in_shards(shapes))) == [["a", "b"], ["c"], ["d"], ["e"]]


def test_a_shape_that_drives_nothing(capsys, tmp_path):
    assert export_cost.main(["--model", "qwen3-8b", "--out", str(tmp_path / "new")]) == 2
    assert "has no vision, action expert and cycle; it must be a driving model" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_nothing_is_overwritten(capsys, tmp_path):
    assert export_cost.main(["--out", str(tmp_path)]) == 2
    assert "exists; it must be a new folder" in capsys.readouterr().err
