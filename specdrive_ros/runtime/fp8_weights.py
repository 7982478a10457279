"""Weights of matrix products in FP8 (E4M3): a byte each and a scale for every output channel.

A DequantizeLinear node stands between the weight and its product, as ONNX defines it since opset 19, so any runtime
that knows it computes the same: weights are rounded, activations are not, and nothing needs calibration. Needs onnx
and ml_dtypes; driving does not.
"""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

LARGEST = 448.0  # of E4M3
_PRODUCTS = ("MatMul", "Gemm")


def quantise_fp8(graph: onnx.ModelProto) -> onnx.ModelProto:
    """Rewrites the fp32 weights [K, N] of every product in place; its data must be loaded."""
    body = graph.graph
    weights = {tensor.name: tensor for tensor in body.initializer if tensor.data_type == TensorProto.FLOAT}
    nodes, made = [], {}
    for node in body.node:
        if node.op_type in _PRODUCTS and len(getattr(weights.get(node.input[1]), "dims", ())) == 2:
            name, axis = node.input[1], _channel_axis(node)
            if (name, axis) not in made:
                made[name, axis] = f"{name}.fp8_{axis}"
                nodes.append(_dequantised(body, weights[name], made[name, axis], axis))
            node.input[1] = made[name, axis]
        nodes.append(node)
    del body.node[:]
    body.node.extend(nodes)
    _drop_unused(body)
    return graph


def _channel_axis(product: onnx.NodeProto) -> int:
    """Where the output channels of its second input are."""
    transposed = any(attribute.name == "transB" and attribute.i for attribute in product.attribute)
    return 0 if transposed else 1


def _dequantised(body: onnx.GraphProto, weight: onnx.TensorProto, name: str, axis: int) -> onnx.NodeProto:
    """The node that gives the weight back; its bytes and scales are added to the graph."""
    stored, scale = to_fp8(numpy_helper.to_array(weight), axis)
    body.initializer.append(
        helper.make_tensor(f"{name}.stored", TensorProto.FLOAT8E4M3FN, weight.dims, stored.tobytes(), raw=True)
    )
    body.initializer.append(numpy_helper.from_array(scale, f"{name}.scale"))
    return helper.make_node("DequantizeLinear", [f"{name}.stored", f"{name}.scale"], [name], name=name, axis=axis)


def to_fp8(weight: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """Values float8_e4m3fn of the same shape and scales [channels]: the largest value of a channel becomes 448."""
    from ml_dtypes import float8_e4m3fn

    largest = np.abs(weight).max(axis=1 - axis)
    scale = np.where(largest > 0, largest / LARGEST, 1).astype(np.float32)
    return (weight / np.expand_dims(scale, 1 - axis)).astype(float8_e4m3fn), scale


def _drop_unused(body: onnx.GraphProto) -> None:
    """Weights that no node reads any more."""
    read = {name for node in body.node for name in node.input} | {value.name for value in body.output}
    kept = [tensor for tensor in body.initializer if tensor.name in read]
    del body.initializer[:]
    body.initializer.extend(kept)
