"""An exported graph in half precision, written into its types: engines are strongly typed and take them literally.

Matrix products and the key-value cache are in fp16 or bf16; norms, softmax, rotary tables and the residual sum stay in
fp32, where half precision loses more than it saves. Operations that only move cache rows stay in half precision.
Weights stay where they are: a cast follows the reference into the checkpoint, and a builder folds it.

`emulate` rounds where the real graph would but computes in fp32: it runs on any CPU, so that a precision's cost in
accuracy can be measured without a GPU. Needs onnx; driving does not.
"""

import onnx
from onnx import TensorProto, helper

from specdrive_ros.errors import InputError

HALF = {"fp16": TensorProto.FLOAT16, "bf16": TensorProto.BFLOAT16}
_PRODUCTS = ("MatMul", "Gemm")
_KEPT_IN_HALF = ("past_", "head")  # inputs that stay on a device, in the type in which they are multiplied
_MOVES = {  # op -> number of leading inputs that are data; the rest are shapes and indices
    "Concat": None,
    "Transpose": 1,
    "Reshape": 1,
    "Split": 1,
    "Slice": 1,
    "Squeeze": 1,
    "Unsqueeze": 1,
    "Gather": 1,
    "Expand": 1,
    "Identity": 1,
}


def to_precision(graph: onnx.ModelProto, precision: str, *, emulate: bool = False) -> onnx.ModelProto:
    """A copy of an fp32 graph in `precision`: fp32, fp16 or bf16. External data is referred to as before.

    Inputs `past_*` and `head` (of a draft: the target's matrix) and outputs `new_*` get the half type, unless
    emulated; all others keep theirs.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(graph)
    if precision == "fp32":
        return copy
    if precision not in HALF:
        raise InputError(f"precision {precision!r}: must be one of fp32, {', '.join(HALF)}")
    _Rewriter(copy.graph, HALF[precision], emulate).rewrite()
    return copy


class _Rewriter:
    """Walks the nodes in order; `_half` holds the values that are in half precision so far."""

    def __init__(self, graph: onnx.GraphProto, half: int, emulate: bool):
        self.graph, self.half, self.emulate = graph, half, emulate
        self.nodes: list[onnx.NodeProto] = []
        self._half: set[str] = set()
        self._lowered: dict[str, str] = {}  # fp32 value -> the same in half precision
        self._raised: dict[str, str] = {}

    def rewrite(self) -> None:
        self._take_cache()
        wanted = {value.name for value in self.graph.output if value.name.startswith("new_")}
        for node in self.graph.node:
            if node.op_type in _PRODUCTS:
                self._product(node)
            elif node.op_type in _MOVES and self._half.intersection(node.input):
                self._move(node)
            else:
                node.input[:] = [self._raise(name) for name in node.input]
                self.nodes.append(node)
        self._give(wanted)
        del self.graph.node[:]
        self.graph.node.extend(self.nodes)

    def _take_cache(self) -> None:
        for value in self.graph.input:
            if not value.name.startswith(_KEPT_IN_HALF):
                continue
            if not self.emulate:  # when emulated, the rows were rounded as they left
                value.type.tensor_type.elem_type = self.half
                self._half.add(value.name)

    def _product(self, node: onnx.NodeProto) -> None:
        node.input[:] = [self._lower(name) for name in node.input]
        output = node.output[0]
        node.output[0] = f"{output}.half"
        self.nodes.append(node)
        if self.emulate:
            self._cast(node.output[0], f"{output}.rounded", self.half)
            self._cast(f"{output}.rounded", output, TensorProto.FLOAT)
        else:
            self._cast(node.output[0], output, TensorProto.FLOAT)
            self._lowered[output] = node.output[0]

    def _move(self, node: onnx.NodeProto) -> None:
        data = _MOVES[node.op_type]
        data = len(node.input) if data is None else data
        node.input[:] = [self._lower(name) if index < data else name for index, name in enumerate(node.input)]
        self.nodes.append(node)
        self._half.update(node.output)

    def _give(self, wanted: set[str]) -> None:
        """Outputs the new cache rows in the cache's type, under their old names."""
        for value in self.graph.output:
            if value.name not in wanted:
                continue
            if not self.emulate:
                value.type.tensor_type.elem_type = self.half
            if value.name in self._half:
                continue
            plain = f"{value.name}.fp32"
            for node in self.nodes:
                for names in (node.input, node.output):
                    names[:] = [plain if name == value.name else name for name in names]
            if self.emulate:
                self._cast(plain, f"{value.name}.rounded", self.half)
                self._cast(f"{value.name}.rounded", value.name, TensorProto.FLOAT)
            else:
                self._cast(plain, value.name, self.half)

    def _lower(self, name: str) -> str:
        if name in self._half or not name:
            return name
        if name not in self._lowered:
            self._lowered[name] = f"{name}.to_half"
            if self.emulate:
                self._cast(name, f"{name}.rounded_in", self.half)
                self._cast(f"{name}.rounded_in", f"{name}.to_half", TensorProto.FLOAT)
            else:
                self._cast(name, f"{name}.to_half", self.half)
        return self._lowered[name]

    def _raise(self, name: str) -> str:
        if name not in self._half:
            return name
        if name not in self._raised:
            self._raised[name] = f"{name}.to_fp32"
            self._cast(name, f"{name}.to_fp32", TensorProto.FLOAT)
        return self._raised[name]

    def _cast(self, source: str, target: str, kind: int) -> None:
        self.nodes.append(helper.make_node("Cast", [source], [target], name=f"cast.{target}", to=kind))
