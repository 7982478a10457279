"""FP8 weights: what is rounded, how far, and that nothing else is."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="needs the train extra")
ml_dtypes = pytest.importorskip("ml_dtypes", reason="needs the train extra")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnxruntime import InferenceSession  # noqa: E402

from specdrive_ros.runtime.weight_only import FP8, LARGEST_FP8 as LARGEST, quantise_weights, to_fp8  # noqa: E402


@pytest.mark.parametrize("axis", [0, 1])
def test_every_channel_uses_the_whole_range(axis):
    random = np.random.default_rng(0)
    weight = random.standard_normal((32, 24)).astype(np.float32) * np.exp(random.standard_normal((32, 24)) * 2)
    weight = weight.astype(np.float32)
    index = (slice(None), 5) if axis else (5, slice(None))
    weight[index] = 0
    stored, scale = to_fp8(weight, axis)
    values, scales = stored.astype(np.float32), np.expand_dims(scale, 1 - axis)
    largest = np.abs(values).max(axis=1 - axis)
    assert sorted(set(largest.tolist())) == [0.0, LARGEST] and np.isfinite(scale).all()
    error = np.abs(values * scales - weight)
    steps = np.maximum(np.abs(weight) * 2**-4, scales * 2**-10)  # half a step: 3 bits of mantissa, 2**-9 the smallest
    assert (error <= steps * (1 + 1e-6)).all()


def model(nodes, initializers):
    given, result = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", size])
        for name, size in (("given", 16), ("result", 8))
    )
    graph = helper.make_graph(nodes, "products", [given], [result], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def test_products_of_either_kind_are_rounded_and_the_rest_is_not():
    """MatMul, Gemm with a transposed weight and a bias, one weight read twice, a weight that is only added."""
    random = np.random.default_rng(0)
    first, second, bias, added = (
        random.standard_normal(shape).astype(np.float32) for shape in ((16, 16), (8, 16), (8,), (1, 8))
    )
    nodes = [
        helper.make_node("MatMul", ["given", "first"], ["one"]),
        helper.make_node("MatMul", ["one", "first"], ["two"]),
        helper.make_node("Gemm", ["two", "second", "bias"], ["three"], transB=1),
        helper.make_node("Add", ["three", "added"], ["result"]),
    ]
    names = ("first", "second", "bias", "added")
    tensors = [numpy_helper.from_array(value, name) for name, value in zip(names, (first, second, bias, added))]
    graph = quantise_weights(model(nodes, tensors), FP8)
    onnx.checker.check_model(graph, full_check=True)
    stored = {each.name: each.data_type for each in graph.graph.initializer}
    assert stored == {
        "first.fp8_1.stored": TensorProto.FLOAT8E4M3FN, "first.fp8_1.scale": TensorProto.FLOAT,
        "second.fp8_0.stored": TensorProto.FLOAT8E4M3FN, "second.fp8_0.scale": TensorProto.FLOAT,
        "bias": TensorProto.FLOAT, "added": TensorProto.FLOAT,
    }  # fmt: skip
    given = random.standard_normal((5, 16)).astype(np.float32)
    found = InferenceSession(graph.SerializeToString()).run(None, {"given": given})[0]
    rounded = [back(first, 1), back(second, 0)]
    expected = given @ rounded[0] @ rounded[0] @ rounded[1].T + bias + added
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    plain = given @ first @ first @ second.T + bias + added
    assert 1e-3 < np.abs(found - plain).max() / plain.std() < 0.3


def back(weight, axis):
    stored, scale = to_fp8(weight, axis)
    return stored.astype(np.float32) * np.expand_dims(scale, 1 - axis)
