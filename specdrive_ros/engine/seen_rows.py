"""A mask over the rows that a draft's attention may see, added to its graph just before it is compiled.

The exported graphs of EAGLE-3's newest tokens and of DFlash's block attend to all rows: on a CPU a pass has its exact
length. On a device passes are padded, so that one CUDA graph serves many lengths, and the padding must not be seen.
The same rows are hidden from every query, so one number per row is enough. Needs onnx; driving does not.
"""

import onnx
from onnx import TensorProto, helper

from specdrive_ros.errors import WorkFailed
from specdrive_ros.runtime.bindings import SEEN


def add_seen_rows(graph: onnx.ModelProto) -> onnx.ModelProto:
    """Adds the input `seen` of the binding table to a draft's graph, and to the scores of every attention in it.

    Raises `WorkFailed` if the graph has no attention: it would be compiled without the mask that its runtime relies
    on.
    """
    body, nodes = graph.graph, []
    for node in body.node:
        if node.op_type == "Softmax":
            scores = node.input[0]
            nodes.append(helper.make_node("Add", [scores, SEEN], [f"{scores}.seen"], name=f"seen.{scores}"))
            node.input[0] = f"{scores}.seen"
        nodes.append(node)
    if len(nodes) == len(body.node):
        raise WorkFailed(f"{body.name}: has no attention to add {SEEN} to; export the draft again")
    body.input.append(helper.make_tensor_value_info(SEEN, TensorProto.FLOAT, ["all_rows"]))
    del body.node[:]
    body.node.extend(nodes)
    return graph
