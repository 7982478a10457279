"""Half precision written into a graph: its types, and that what is emulated is what the real graph computes."""

import json

import numpy as np
import pytest

from specdrive_ros.engine.graph_file import graph_identity_parts, read_record
from specdrive_ros.errors import InputError
from specdrive_ros.installation import data_roots
from specdrive_ros.runtime.bindings import GRAPHS

onnx = pytest.importorskip("onnx", reason="needs the train extra")
from specdrive_ros.engine.precision import to_precision  # noqa: E402

MINI = data_roots()[0] / "models" / "mini"


def load(name):
    return onnx.load(str(MINI / f"{name}.onnx"), load_external_data=False)


def with_weights(graph):
    """The graph with its weights inside, for a session that has no folder."""
    onnx.external_data_helper.load_external_data_for_model(graph, str(MINI))
    return graph.SerializeToString()


def inputs_of(session, sizes, kinds):
    random = np.random.default_rng(0)
    values = {}
    for value in session.get_inputs():
        shape = [size if isinstance(size, int) else sizes[value.name][axis] for axis, size in enumerate(value.shape)]
        kind = kinds[value.type]
        values[value.name] = (
            np.zeros(shape, kind) if kind == np.int64 else (random.standard_normal(shape) / 2).astype(kind)
        )
    return values


KINDS = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(int64)": np.int64}
TEXT = {"hidden": (7,), "cos": (7,), "sin": (7,), "mask": (7, 16), "deepstack": (2, 7), "logit_rows": (3,)}
TEXT |= {f"past_{layer}": (9,) for layer in range(8)}


def test_types_of_the_text_graph():
    graph = to_precision(load("text"), "bf16").graph
    types = {v.name: v.type.tensor_type.elem_type for v in (*graph.input, *graph.output)}
    half, full = onnx.TensorProto.BFLOAT16, onnx.TensorProto.FLOAT
    for name, found in types.items():
        wanted = (
            half if name.startswith(("past_", "new_")) else onnx.TensorProto.INT64 if name == "logit_rows" else full
        )
        assert found == wanted, name
    inferred = onnx.shape_inference.infer_shapes(to_precision(load("text"), "bf16"), strict_mode=True).graph
    kinds = {value.name: value.type.tensor_type.elem_type for value in (*inferred.value_info, *inferred.output)}
    for node in inferred.node:
        if node.op_type == "MatMul":
            assert all(kinds.get(name, half) == half for name in (*node.input, *node.output)), node.name
        if node.op_type == "Softmax":
            assert kinds[node.output[0]] == full


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
@pytest.mark.parametrize("name", GRAPHS)
def test_types_agree_throughout(name, precision):
    """Strict inference refuses a node whose inputs are of two types."""
    onnx.shape_inference.infer_shapes(to_precision(load(name), precision), check_type=True, strict_mode=True)


def test_fp32_is_left_as_it_is():
    assert to_precision(load("text"), "fp32").SerializeToString() == load("text").SerializeToString()
    with pytest.raises(InputError, match="'int3': must be one of fp32, fp16, bf16"):
        to_precision(load("text"), "int3")


def test_emulated_is_what_half_precision_computes():
    """fp16 runs on a CPU too: rounded at the same places, the two differ by less than half precision itself costs."""
    import onnxruntime

    def run(graph):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = 1, 3
        session = onnxruntime.InferenceSession(with_weights(graph), options)
        return session, session.get_outputs()

    plain, _ = run(load("text"))
    values = inputs_of(plain, TEXT, KINDS)
    values = {name: value.astype(np.float16).astype(value.dtype) for name, value in values.items()}
    expected = plain.run(None, values)
    emulated, _ = run(to_precision(load("text"), "fp16", emulate=True))
    found = emulated.run(None, values)
    real, _ = run(to_precision(load("text"), "fp16"))
    halves = {value.name for value in real.get_inputs() if value.type == "tensor(float16)"}
    assert halves == {f"past_{layer}" for layer in range(8)}
    truth = real.run(None, {name: v.astype(np.float16) if name in halves else v for name, v in values.items()})
    cost = np.abs(expected[0] - truth[0]).max()
    assert 0 < np.abs(found[0] - expected[0]).max() < 5 * cost  # it does round
    assert np.abs(found[0] - truth[0]).max() < 2 * cost < 0.1
    for ours, theirs in zip(found[2:], truth[2:], strict=True):
        np.testing.assert_allclose(ours, theirs.astype(np.float32), atol=0.02)


# --- what a graph's file says of itself


def test_record_is_what_onnx_reads():
    for name in GRAPHS:
        (prop,) = load(name).metadata_props
        record = read_record(MINI / f"{name}.onnx", "")
        assert record.graph == name == json.loads(prop.value)["graph"] and record.flow_steps == 4


@pytest.mark.parametrize("content", [b"", b"\x00", b"\xff" * 40, b"no graph at all", b"\x72\x03\x0a\x7f"])
def test_no_graph(tmp_path, content):
    (tmp_path / "text.onnx").write_bytes(content)
    with pytest.raises(InputError, match="text.onnx: .*export it"):
        read_record(tmp_path / "text.onnx", "export it")


def test_graph_cut_short_anywhere(tmp_path):
    whole = (MINI / "vision.onnx").read_bytes()
    for length in range(0, len(whole), len(whole) // 40):
        (tmp_path / "vision.onnx").write_bytes(whole[:length])
        with pytest.raises(InputError):
            read_record(tmp_path / "vision.onnx", "")


def test_files_beside_a_graph_count(tmp_path):
    import shutil

    for name in ("text.onnx", "model.safetensors"):
        shutil.copy(MINI / name, tmp_path)
    _, _, without = graph_identity_parts(tmp_path / "text.onnx", "")
    (tmp_path / "text.onnx.data").write_bytes(b"weights")
    _, _, found = graph_identity_parts(tmp_path / "text.onnx", "")
    assert without.keys() == {"model.safetensors"} and found.keys() == {"model.safetensors", "text.onnx.data"}
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(InputError, match="model.safetensors: cannot be read .*; export it"):
        graph_identity_parts(tmp_path / "text.onnx", "export it")
