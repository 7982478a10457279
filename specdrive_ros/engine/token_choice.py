"""The greedy choice of tokens, added to the text graph just before it is compiled: engines choose where the logits
are.

The exported graphs stay as they are: on a CPU, logits are at hand anyway, and only those of the accepted path are
read. On a device, 16 rows of a vocabulary of 150,000 are ten megabytes, their choices 128 bytes. The choice is exactly
the host's: the first of equal logits among the tokens that are not forbidden. Half precision makes equal logits
common, and what an engine's TopK does with them is not specified. If logits are NaN, the choice is the size of the
vocabulary, which is no token. How a reasoning ends is not decided in an engine (`decoding/rules.py`). Needs onnx;
driving does not.
"""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from specdrive_ros.runtime.bindings import CHOICE_OUTPUTS, FORBIDDEN


def add_choice(graph: onnx.ModelProto) -> onnx.ModelProto:
    """Adds to a text graph the input `forbidden` and the outputs `choices` and `best` of the binding table."""
    body = graph.graph
    (logits,) = [value for value in body.output if value.name == "logits"]
    rows, vocabulary = logits.type.tensor_type.shape.dim
    choices, best = CHOICE_OUTPUTS
    body.input.append(helper.make_tensor_value_info(FORBIDDEN, TensorProto.FLOAT, [vocabulary.dim_value]))
    body.initializer.extend(_constants(vocabulary.dim_value))
    body.node.extend(_nodes(choices, best))
    for name, kind in ((choices, TensorProto.INT32), (best, TensorProto.FLOAT)):
        body.output.append(helper.make_tensor_value_info(name, kind, [rows.dim_param or rows.dim_value]))
    return graph


def _constants(vocabulary: int) -> list[onnx.TensorProto]:
    values = {
        "token_numbers": np.arange(vocabulary, dtype=np.int32),
        "no_token": np.array(vocabulary, np.int32),
        "over_tokens": np.array([1], np.int64),
    }
    return [numpy_helper.from_array(value, name) for name, value in values.items()]


def _nodes(choices: str, best: str) -> list[onnx.NodeProto]:
    """The largest allowed logit of a row, and the first token that has it."""
    return [
        helper.make_node("Add", ["logits", FORBIDDEN], ["allowed"]),
        helper.make_node("ReduceMax", ["allowed", "over_tokens"], ["largest"], keepdims=1),
        helper.make_node("Equal", ["allowed", "largest"], ["is_largest"]),
        helper.make_node("Where", ["is_largest", "token_numbers", "no_token"], ["candidates"]),
        helper.make_node("ReduceMin", ["candidates", "over_tokens"], [choices], keepdims=0),
        helper.make_node("Squeeze", ["largest", "over_tokens"], [best]),
    ]
