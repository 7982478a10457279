"""Weights of matrix products in few bits, everything else unchanged: for engines, and for any runtime that supports
ONNX.

A DequantizeLinear node stands between the weight and its product, as ONNX defines it, so that every runtime computes
the same: weights are rounded, activations are not, and nothing needs calibration. `fp8`: E4M3, one scale per output
channel. `int8w`: 8-bit integers, symmetric, one scale per output channel. `int4w`: 4-bit integers, one scale per
`INT4_BLOCK` weights that are summed. Needs onnx, fp8 also ml_dtypes; driving does not.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

LARGEST_FP8 = 448.0  # of E4M3
INT4_BLOCK = 64
_PRODUCTS = ("MatMul", "Gemm")


@dataclass(frozen=True)
class Stored:
    """A weight as stored: its bytes, its scales, and further attributes of DequantizeLinear."""

    content: bytes
    scale: np.ndarray
    attributes: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Scheme:
    """name: used in tensor names; kind: of TensorProto; opset: the lowest whose DequantizeLinear supports it;
    store: (weight, axis of the output channels) -> how it is stored, or None if it stays as it is."""

    name: str
    kind: int
    opset: int
    store: Callable[[np.ndarray, int], Stored | None]


def quantise_weights(graph: onnx.ModelProto, scheme: Scheme) -> onnx.ModelProto:
    """Rewrites the fp32 weights [K, N] of every product in place; the graph's data must be loaded."""
    body = graph.graph
    weights = {tensor.name: tensor for tensor in body.initializer if tensor.data_type == TensorProto.FLOAT}
    nodes, made = [], {}
    for node in body.node:
        if node.op_type in _PRODUCTS and len(getattr(weights.get(node.input[1]), "dims", ())) == 2:
            name, axis = node.input[1], _channel_axis(node)
            if (name, axis) not in made:
                made[name, axis] = _add_stored(body, weights[name], axis, scheme, nodes)
            node.input[1] = made[name, axis]
        nodes.append(node)
    del body.node[:]
    body.node.extend(nodes)
    _drop_unused(body)
    _raise_opset(graph, scheme.opset)
    return graph


def _channel_axis(product: onnx.NodeProto) -> int:
    """Axis of the output channels of a product's second input."""
    transposed = any(attribute.name == "transB" and attribute.i for attribute in product.attribute)
    return 0 if transposed else 1


def _add_stored(body: onnx.GraphProto, weight: onnx.TensorProto, axis: int, scheme: Scheme, nodes: list) -> str:
    """Adds bytes, scales and the node that restores the weight; returns its new name, or the old one if it stays as it
    is."""
    stored, name = scheme.store(numpy_helper.to_array(weight), axis), f"{weight.name}.{scheme.name}_{axis}"
    if stored is None:
        return weight.name
    body.initializer.append(
        helper.make_tensor(f"{name}.stored", scheme.kind, weight.dims, stored.content, raw=True)
    )
    body.initializer.append(numpy_helper.from_array(stored.scale, f"{name}.scale"))
    attributes = {"axis": axis, **stored.attributes}
    nodes.append(
        helper.make_node("DequantizeLinear", [f"{name}.stored", f"{name}.scale"], [name], name=name, **attributes)
    )
    return name


def _drop_unused(body: onnx.GraphProto) -> None:
    """Removes weights that no node reads any more."""
    read = {name for node in body.node for name in node.input} | {value.name for value in body.output}
    kept = [tensor for tensor in body.initializer if tensor.name in read]
    del body.initializer[:]
    body.initializer.extend(kept)


def _raise_opset(graph: onnx.ModelProto, least: int) -> None:
    """No operator in our graphs means anything else in opset 21 than in 20."""
    for used in graph.opset_import:
        if used.domain in ("", "ai.onnx"):
            used.version = max(used.version, least)


def to_fp8(weight: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """Values float8_e4m3fn of the same shape and scales [channels]: the largest absolute value of a channel becomes
    448."""
    from ml_dtypes import float8_e4m3fn

    scale = _scales(np.abs(weight).max(axis=1 - axis), LARGEST_FP8)
    return (weight / np.expand_dims(scale, 1 - axis)).astype(float8_e4m3fn), scale


def to_int8(weight: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """Values int8 of the same shape and scales [channels]: the largest absolute value of a channel becomes 127."""
    scale = _scales(np.abs(weight).max(axis=1 - axis), 127)
    return np.rint(weight / np.expand_dims(scale, 1 - axis)).astype(np.int8), scale


def to_int4(weight: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """Values -7 … 7 as int8 of the same shape, and scales, whose summed axis is shorter by a factor of `INT4_BLOCK`.

    The largest absolute value of a block becomes 7. Raises ValueError if that axis is not a whole number of blocks.
    """
    summed = 1 - axis
    if weight.shape[summed] % INT4_BLOCK:
        raise ValueError(f"{weight.shape[summed]} weights are no whole number of blocks of {INT4_BLOCK}")
    blocks = np.moveaxis(weight, summed, 0).reshape(-1, INT4_BLOCK, weight.shape[axis])
    scale = _scales(np.abs(blocks).max(axis=1), 7)
    values = np.rint(blocks / scale[:, None]).astype(np.int8).reshape(-1, weight.shape[axis])
    return np.moveaxis(values, 0, summed), np.ascontiguousarray(np.moveaxis(scale, 0, summed))


def packed(values: np.ndarray) -> bytes:
    """int8 values of four bits, two per byte, the earlier one in the lower half."""
    flat = values.ravel().view(np.uint8) & 0xF
    flat = np.append(flat, np.zeros(len(flat) % 2, np.uint8))
    return (flat[::2] | flat[1::2] << 4).tobytes()


def _scales(largest: np.ndarray, steps: float) -> np.ndarray:
    return np.where(largest > 0, largest / steps, 1).astype(np.float32)


def _store_fp8(weight: np.ndarray, axis: int) -> Stored:
    values, scale = to_fp8(weight, axis)
    return Stored(values.tobytes(), scale)


def _store_int8(weight: np.ndarray, axis: int) -> Stored:
    values, scale = to_int8(weight, axis)
    return Stored(values.tobytes(), scale)


def _store_int4(weight: np.ndarray, axis: int) -> Stored | None:
    if weight.shape[1 - axis] % INT4_BLOCK:
        return None
    values, scale = to_int4(weight, axis)
    return Stored(packed(values), scale, {"axis": 1 - axis, "block_size": INT4_BLOCK})


FP8 = Scheme("fp8", TensorProto.FLOAT8E4M3FN, 19, _store_fp8)
INT8 = Scheme("int8", TensorProto.INT8, 13, _store_int8)
INT4 = Scheme("int4", TensorProto.INT4, 21, _store_int4)
SCHEMES = {"fp8": FP8, "int8w": INT8, "int4w": INT4}
