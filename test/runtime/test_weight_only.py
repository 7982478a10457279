"""Weights in fp8, int8 and int4: what is rounded, how far, and that nothing else is."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="needs the train extra")
ml_dtypes = pytest.importorskip("ml_dtypes", reason="needs the train extra")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnxruntime import GraphOptimizationLevel, InferenceSession, SessionOptions  # noqa: E402

from specdrive_ros.runtime.weight_only import (  # noqa: E402
    FP8, INT4, INT4_BLOCK, INT8, packed, quantise_weights, to_fp8, to_int4, to_int8,
)  # fmt: skip
from specdrive_ros.runtime.weight_only import LARGEST_FP8 as LARGEST  # noqa: E402


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


def weight_of(rows: int, columns: int) -> np.ndarray:
    random = np.random.default_rng(1)
    spread = np.exp(random.standard_normal((rows, columns)))
    return (random.standard_normal((rows, columns)) * spread).astype(np.float32)


@pytest.mark.parametrize("axis", [0, 1])
def test_int8_uses_the_whole_range_of_every_channel(axis):
    weight = weight_of(32, 24)
    weight[(slice(None), 5) if axis else (5, slice(None))] = 0
    values, scale = to_int8(weight, axis)
    assert values.dtype == np.int8 and values.min() >= -127
    assert sorted(set(np.abs(values.astype(int)).max(axis=1 - axis).tolist())) == [0, 127]
    error = np.abs(values * np.expand_dims(scale, 1 - axis) - weight)
    assert (error <= np.expand_dims(scale, 1 - axis) / 2 * (1 + 1e-5)).all()


@pytest.mark.parametrize("axis", [0, 1])
def test_int4_has_a_scale_for_every_block_of_what_is_summed(axis):
    weight = weight_of(2 * INT4_BLOCK, 24) if axis else weight_of(24, 2 * INT4_BLOCK)
    values, scale = to_int4(weight, axis)
    assert values.shape == weight.shape and scale.shape == ((2, 24) if axis else (24, 2))
    assert np.abs(values).max() == 7
    wide = np.repeat(scale, INT4_BLOCK, axis=1 - axis)
    assert (np.abs(values * wide - weight) <= wide / 2 * (1 + 1e-5)).all()
    with pytest.raises(ValueError, match="are no whole number of blocks of 64"):
        to_int4(weight_of(65, 65), axis)


def test_two_values_a_byte():
    assert packed(np.array([[1, -2], [7, -7], [3, 0]], np.int8)) == bytes([0xE1, 0x97, 0x03])
    assert packed(np.array([5, -1, 2], np.int8)) == bytes([0xF5, 0x02])


@pytest.mark.parametrize(("scheme", "back_of", "kind"), [
    (INT8, lambda w, axis: rounded(*to_int8(w, axis), axis), TensorProto.INT8),
    (INT4, lambda w, axis: blocks(*to_int4(w, axis), axis), TensorProto.INT4),
], ids=["int8w", "int4w"])  # fmt: skip
def test_products_in_whole_numbers(scheme, back_of, kind):
    """MatMul, Gemm with a transposed weight, and one whose sum is no whole number of blocks."""
    first, second, odd = weight_of(128, 64), weight_of(40, 64), weight_of(40, 8)
    nodes = [
        helper.make_node("MatMul", ["given", "first"], ["one"]),
        helper.make_node("Gemm", ["one", "second"], ["two"], transB=1),
        helper.make_node("MatMul", ["two", "odd"], ["result"]),
    ]
    tensors = [numpy_helper.from_array(value, name) for name, value in
               (("first", first), ("second", second), ("odd", odd))]  # fmt: skip
    given, result = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", size])
                     for name, size in (("given", 128), ("result", 8)))  # fmt: skip
    made = helper.make_model(helper.make_graph(nodes, "products", [given], [result], tensors),
                             opset_imports=[helper.make_opsetid("", 20)], ir_version=10)  # fmt: skip
    graph = quantise_weights(made, scheme)
    onnx.checker.check_model(graph, full_check=True)
    kinds = {one.name: one.data_type for one in graph.graph.initializer if not one.name.endswith("scale")}
    whole = {f"first.{scheme.name}_1.stored": kind, f"second.{scheme.name}_0.stored": kind}
    left = {"odd": TensorProto.FLOAT} if scheme is INT4 else {f"odd.{scheme.name}_1.stored": kind}
    assert kinds == whole | left
    rows = np.random.default_rng(0).standard_normal((5, 128)).astype(np.float32)
    options = SessionOptions()
    options.graph_optimization_level = GraphOptimizationLevel.ORT_DISABLE_ALL  # what ONNX says, not a kernel of its own
    found = InferenceSession(graph.SerializeToString(), options).run(None, {"given": rows})[0]
    last = odd if scheme is INT4 else back_of(odd, 1)
    expected = rows @ back_of(first, 1) @ back_of(second, 0).T @ last
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())
    assert np.abs(found - rows @ first @ second.T @ odd).max() > 1e-3


def rounded(values, scale, axis):
    return values.astype(np.float32) * np.expand_dims(scale, 1 - axis)


def blocks(values, scale, axis):
    return values.astype(np.float32) * np.repeat(scale, INT4_BLOCK, axis=1 - axis)
