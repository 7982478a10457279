"""A mask over the rows that a draft's attention may see, added to its graph just before it is compiled.

The exported graphs of EAGLE-3's newest tokens and of DFlash's block look at every row there is: on a CPU a pass is as
long as it is. On a device a pass is rounded up, so that one CUDA graph serves many lengths, and what was added must not
be seen. The same rows are hidden from every question, so one number a row is enough. Needs onnx; driving does not.
"""

import onnx
from onnx import TensorProto, helper

from specdrive_ros.errors import WorkFailed
from specdrive_ros.runtime.bindings import SEEN


def add_seen_rows(graph: onnx.ModelProto) -> onnx.ModelProto:
    """Adds to a draft's graph the input `seen` of the binding table, to the scores of every attention.

    Raises `WorkFailed` where a graph has none: then it would be compiled without the mask that its runtime relies on.
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
