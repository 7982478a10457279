"""Makes the cache's rows an input of the action step, instead of keys and values, just before it is compiled.

On a CPU they are rearranged once for all steps of the action head (`runtime/host.py`). On a device the rows have to be
read as they are in the cache, and are rearranged in every step; what that costs on a GPU was never measured. Needs
onnx; driving does not.
"""

import numpy as np
import onnx
from onnx import helper, numpy_helper

from specdrive_ros.runtime.bindings import keys_names, past_names, values_names

_OF_A_ROW = ("keys_of_a_row", "values_of_a_row")


def add_past_rows(graph: onnx.ModelProto) -> onnx.ModelProto:
    """Replaces the inputs `keys_…` and `values_…` of an action step by the inputs `past_…` of the binding table."""
    body = graph.graph
    inputs = {value.name: value for value in body.input}
    layers = sum(name.startswith("keys_") for name in inputs)
    nodes, rows = [], []
    for past, *parts in zip(past_names(layers), keys_names(layers), values_names(layers), strict=True):
        heads, cached, size = inputs[parts[0]].type.tensor_type.shape.dim
        shape = [cached.dim_param or cached.dim_value, 2, heads.dim_value, size.dim_value]
        rows.append(helper.make_tensor_value_info(past, inputs[parts[0]].type.tensor_type.elem_type, shape))
        nodes.append(helper.make_node("Transpose", [past], [f"{past}.laid_out"], perm=[1, 2, 0, 3]))
        nodes += [helper.make_node("Gather", [f"{past}.laid_out", which], [part], axis=0)
                  for which, part in zip(_OF_A_ROW, parts)]
        for part in parts:
            body.input.remove(inputs[part])
    body.input.extend(rows)
    body.initializer.extend(numpy_helper.from_array(np.array(k, np.int64), name) for k, name in enumerate(_OF_A_ROW))
    nodes += body.node
    del body.node[:]
    body.node.extend(nodes)
    return graph
