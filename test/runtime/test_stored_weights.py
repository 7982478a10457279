"""Export without weights in memory: references by name, casts of what is stored narrower, a bound on the memory."""

import json
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="needs the train extra")
ir = pytest.importorskip("onnx_ir", reason="needs the train extra")
pytest.importorskip("onnxscript", reason="needs the train extra")
torch = pytest.importorskip("torch", reason="needs the train extra")

from specdrive_ros.errors import InputError  # noqa: E402
from specdrive_ros.runtime.stored_weights import StoredWeights, keeps  # noqa: E402
from specdrive_ros.runtime.weights_file import tensor_places  # noqa: E402

GOLDEN = Path(__file__).parents[1] / "golden" / "alpamayo_A"
ITEM_BYTES = {"F32": 4, "BF16": 2, "I32": 4}


def write_weights(path: Path, shapes: dict[str, tuple[int, ...]], dtype: str) -> int:
    """A safetensors file of these shapes, sparse: it takes no space on the disk and reads as zeros."""
    header, position = {}, 0
    for name, shape in shapes.items():
        end = position + ITEM_BYTES[dtype] * int(np.prod(shape, dtype=np.int64))
        header[name], position = {"dtype": dtype, "shape": list(shape), "data_offsets": [position, end]}, end
    content = json.dumps(header).encode()
    content += b" " * (-len(content) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(content)) + content)
        file.truncate(8 + len(content) + position)
    return position


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
    write_weights(tmp_path / "model.safetensors", shapes, "I32")
    with pytest.raises(InputError, match="model.safetensors: wide.weight is I32; weights must be F32, F16, BF16"):
        StoredWeights(network, tensor_places(tmp_path)).refer(ir.from_proto(proto), network)


def test_large_constants_are_not_folded():
    large, small = (ir.Value(name=str(size), const_value=ir.tensor(np.zeros(size, np.float32))) for size in (300, 200))
    assert keeps(ir.node("Transpose", [large]), 256) is False
    assert keeps(ir.node("Transpose", [small]), 256) is None


BIG = {"hidden_size": 2048, "intermediate_size": 16384, "num_hidden_layers": 2}


@pytest.fixture
def big_checkpoint(tmp_path):
    """Folder and bytes of a checkpoint of half a gigabyte in bf16, two layers of the released model's kind."""
    from specdrive_ros.target.config import TargetConfig
    from specdrive_ros.target.network import AlpamayoTarget

    folder = tmp_path / "big"
    shutil.copytree(GOLDEN / "backbone", folder / "backbone")
    for path in (GOLDEN / "checkpoint").glob("*.json"):
        shutil.copy(path, folder)
    change(folder / "config.json", lambda content: content.update(vlm_name_or_path="backbone"))
    change(folder / "backbone" / "config.json", lambda content: content["text_config"].update(BIG))
    change(folder / "backbone" / "config.json", lambda content: content["vision_config"].update(out_hidden_size=2048))
    with torch.device("meta"):
        target = AlpamayoTarget(TargetConfig.load(folder))
    shapes = {name: tuple(value.shape) for name, value in target.state_dict().items()}
    return folder, write_weights(folder / "model.safetensors", shapes, "BF16")


def change(path: Path, how) -> None:
    content = json.loads(path.read_text())
    how(content)
    path.write_text(json.dumps(content))


PEAK = """
import resource, sys
import onnxruntime, onnxscript, torch, transformers
from specdrive_ros.runtime import export
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
before = peak()
export.export_checkpoint(sys.argv[1], sys.argv[1], comparing=False)
print(peak() - before)
"""


def test_memory_does_not_grow_with_the_weights(big_checkpoint):
    """What exporting adds to the imports' memory is a fraction of the weights; they are stored once, as they were."""
    folder, size = big_checkpoint
    assert size > 400e6
    done = subprocess.run([sys.executable, "-c", PEAK, folder], capture_output=True, text=True, check=True)
    assert int(done.stdout.split()[-1]) < 0.5 * size
    graphs = {path.name: path.stat().st_size for path in folder.glob("*.onnx*")}
    assert set(graphs) == {"vision.onnx", "text.onnx", "action_step.onnx"}
    assert sum(graphs.values()) < 2e6
    text = onnx.load(folder / "text.onnx", load_external_data=False)
    kinds = {one.data_type for one in text.graph.initializer if one.data_location == onnx.TensorProto.EXTERNAL}
    assert kinds == {onnx.TensorProto.BFLOAT16}
