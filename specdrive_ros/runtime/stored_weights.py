"""Weights of a traced graph as references into the checkpoint's own files. Only the smallest are read.

A network is traced on PyTorch's meta device, where it has names and shapes but no numbers, so a graph of any size is
made in the memory that its structure takes. Each initializer, known by its parameter's name, then becomes ONNX
external data: file, offset, length. One that is not float32 in the file is cast in the graph; engines and sessions
fold that. Needs torch and onnx; driving does not.
"""

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir
from torch import nn

from specdrive_ros.errors import InputError
from specdrive_ros.runtime.weights_file import TensorPlace

KEPT_INSIDE = 1024  # bytes; smaller tensors stay in the graph
_TYPES = {"F32": ir.DataType.FLOAT, "F16": ir.DataType.FLOAT16, "BF16": ir.DataType.BFLOAT16}


class StoredWeights:
    """Where the tensors of a network are stored. places: by the names of its `state_dict`."""

    def __init__(self, network: nn.Module, places: Mapping[str, TensorPlace]):
        self.network = network
        self._names = {id(value): name for name, value in network.state_dict(keep_vars=True).items()}
        self._places = places

    def refer(self, model: ir.Model, module: nn.Module) -> None:
        """Gives every initializer of a graph its place; `module` was traced and holds the network's weights.

        Raises `InputError` for a tensor whose type no weight can have.
        """
        values = [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]
        names = {name: self._names[id(value)] for name, value in values if id(value) in self._names}
        for name, value in list(model.graph.initializers.items()):
            if name in names:
                _place(model.graph, value, names[name], self._places[names[name]])


def _place(graph: ir.Graph, value: ir.Value, stored_name: str, place: TensorPlace) -> None:
    if place.dtype not in _TYPES:
        raise InputError(f"{place.path}: {stored_name} is {place.dtype}; weights must be {', '.join(_TYPES)}")
    if place.length < KEPT_INSIDE:
        value.const_value = ir.tensor(np.array(place.read()), name=value.name)
    elif place.dtype == "F32":
        value.const_value = _external(value.name, place)
    else:
        _cast(graph, value, place)


def _external(name: str, place: TensorPlace) -> ir.ExternalTensor:
    return ir.ExternalTensor(
        place.path.name, place.offset, place.length, _TYPES[place.dtype], shape=ir.Shape(place.shape), name=name,
        base_dir=place.path.parent,
    )  # fmt: skip


def _cast(graph: ir.Graph, value: ir.Value, place: TensorPlace) -> None:
    """Adds the tensor as stored, and a cast whose output replaces the initializer."""
    name = value.name
    tensor = _external(f"{name}.stored", place)
    stored = ir.Value(name=tensor.name, shape=tensor.shape, type=ir.TensorType(tensor.dtype), const_value=tensor)
    node = ir.node("Cast", [stored], {"to": ir.DataType.FLOAT}, name=f"{name}.cast")
    output = node.outputs[0]
    output.shape, output.type = tensor.shape, ir.TensorType(ir.DataType.FLOAT)
    del graph.initializers[name]
    ir.convenience.replace_all_uses_with(value, output)
    output.name = name
    graph.insert_before(graph[0], node)
    graph.initializers[stored.name] = stored


def keeps(node: ir.Node, largest: int) -> bool | None:
    """For the optimiser: False if a node reads a constant of more than `largest` values, which folding would copy into
    the graph; else None, which means its own rules."""
    constants = (value.const_value for value in node.inputs if value is not None)
    return False if any(one is not None and one.size > largest for one in constants) else None
