"""The binding table of the exported graphs: names, shapes and the metadata of a file.

Every runtime that runs the ONNX graphs (ONNX Runtime, TensorRT) binds by these names; the exporter writes them. Knows
no runtime. Letters as in `graphs.py`; T, S, I, P and R are dynamic, and V = P / 4.

| graph | input | shape | | output | shape |
|---|---|---|---|---|---|
| vision | patches | [I, P, 3*2*16*16] | | embeddings | [I, V, E] |
| | grid_rows, grid_weights | [P, 4] int64, [P, 4] | | deepstack | [K, I, V, E] |
| | cos, sin | [P, vision head size] | | | |
| text | hidden | [T, E] | | logits | [R, vocabulary] |
| | cos, sin | [T, D] | | taps | [T, n_taps E] |
| | mask | [T, S + T], 0 or HIDDEN, added | | new_0 … new_L-1 | [T, 2, H, D] |
| | deepstack | [K, T, E] | | | |
| | logit_rows | [R] int64 | | | |
| | past_0 … past_L-1 | [S, 2, H, D] | | | |
| action_step | noise | [W, 2] | | action | [W, 2], one step later |
| | time | [1, 1, 1], flow time | | | |
| | cos, sin | [W, D] | | | |
| | keys_0 … keys_L-1 | [H, S, D], of the rows the waypoints may see | | | |
| | values_0 … values_L-1 | [H, S, D], the same | | | |

`action_step` is one Euler step and is run once per step of the action head: a graph with all steps is no faster, but
takes a second to open and minutes to compile.

Engines of text and of the action step differ from the exported graph; the changes are made when they are compiled
(`engine/token_choice.py`, `engine/past_rows.py`):

| graph | input | shape | | output | shape |
|---|---|---|---|---|---|
| text | forbidden | [vocabulary], 0 or HIDDEN, added to logits | | choices | [R] int32, the largest logit's token |
| | | | | best | [R], that logit |
| action_step | past_0 … past_L-1 | [S, 2, H, D], in place of keys and values | | | |

Graphs of drafts; L is the number of the draft's own layers, A accepted tokens, B slots of a block, `words` the size of
the draft's vocabulary:

| graph | input | shape | | output | shape |
|---|---|---|---|---|---|
| eagle3_newest | embeddings, taps | [T, E], [T, n_taps E] | | next_hidden, logits | [1, E], [1, words] |
| | cos, sin, past_0 | [T, D], [S, 2, H, D] | | new_0 | [T, 2, H, D] |
| eagle3_step | embeddings, hidden | [T, E] | | next_hidden, logits | [T, E], [T, words] |
| | cos, sin, mask, past_0 | [T, D], [T, S + T], [S, 2, H, D] | | new_0 | [T, 2, H, D] |
| dflash_context | taps, cos, sin | [A, n_taps E], [A, D] | | new_0 … new_L-1 | [A, 2, H, D] |
| dflash_block | embeddings, cos, sin | [B, E], [B, D] | | logits | [B, words] |
| | head | [E, words], the target's | | | |
| | past_0 … past_L-1 | [S, 2, H, D] | | | |

Engines of drafts have an additional input (`engine/seen_rows.py`):

| graph | input | shape |
|---|---|---|
| eagle3_newest | seen | [S + T], 0 or HIDDEN, added to every row's score |
| dflash_block | seen | [S + B], the same |
"""

import json
from dataclasses import asdict, dataclass

from specdrive_ros.errors import InputError
from specdrive_ros.json_file import parse_json

EXPORT_VERSION = 2
GRAPHS = ("vision", "text", "action_step")
HIDDEN = -1e9  # added by the mask to scores that must not count; finite, so that no engine makes NaN of it

VISION_INPUTS = ("patches", "grid_rows", "grid_weights", "cos", "sin")
VISION_OUTPUTS = ("embeddings", "deepstack")
ACTION_OUTPUTS = ("action",)
FORBIDDEN = "forbidden"
CHOICE_OUTPUTS = ("choices", "best")
SEEN = "seen"
ADDED = {  # graph -> what is added to its engine; another addition makes other engines
    "text": "greedy choice 1",
    "action_step": "past rows 1",
    "eagle3_newest": "seen rows 1",
    "dflash_block": "seen rows 1",
}
_METADATA_KEY = "specdrive"

DRAFT_GRAPHS = {"eagle3": ("eagle3_newest", "eagle3_step"), "dflash": ("dflash_context", "dflash_block")}
EAGLE3_OUTPUTS = ("next_hidden", "logits", "new_0")
EAGLE3_NEWEST_INPUTS = ("embeddings", "taps", "cos", "sin", "past_0")
EAGLE3_STEP_INPUTS = ("embeddings", "hidden", "cos", "sin", "mask", "past_0")
DFLASH_CONTEXT_INPUTS = ("taps", "cos", "sin")
DFLASH_BLOCK_OUTPUTS = ("logits",)


def past_names(layers: int) -> list[str]:
    return [f"past_{layer}" for layer in range(layers)]


def new_names(layers: int) -> list[str]:
    return [f"new_{layer}" for layer in range(layers)]


def dflash_block_inputs(layers: int) -> list[str]:
    return ["embeddings", "cos", "sin", "head", *past_names(layers)]


def text_inputs(layers: int) -> list[str]:
    return ["hidden", "cos", "sin", "mask", "deepstack", "logit_rows", *past_names(layers)]


def text_outputs(layers: int) -> list[str]:
    return ["logits", "taps", *new_names(layers)]


def keys_names(layers: int) -> list[str]:
    return [f"keys_{layer}" for layer in range(layers)]


def values_names(layers: int) -> list[str]:
    return [f"values_{layer}" for layer in range(layers)]


def action_step_inputs(layers: int) -> list[str]:
    return ["noise", "time", "cos", "sin", *keys_names(layers), *values_names(layers)]


@dataclass(frozen=True)
class GraphRecord:
    """The metadata of an exported graph.

    tap_layers:   hidden states in the text graph's `taps`, or those that a draft's graph reads
    flow_steps:   Euler steps of the action head; 0 for a draft's graph
    weights:      weights file -> sha256 of the checkpoint it was exported from
    variant:      fp32 as exported, else the precision or quantisation it was rewritten to
    """

    graph: str
    tap_layers: tuple[int, ...]
    flow_steps: int
    weights: dict[str, str]
    version: int = EXPORT_VERSION
    variant: str = "fp32"

    def to_metadata(self) -> dict[str, str]:
        return {_METADATA_KEY: json.dumps(asdict(self), sort_keys=True)}

    def _check_types(self) -> None:
        """Raises TypeError for values of a wrong type: anybody may have written the metadata."""
        whole = all(type(each) is int for each in (*self.tap_layers, self.flow_steps))
        named = all(isinstance(each, str) for each in (self.graph, self.variant))
        if not (whole and named and isinstance(self.weights, dict)):
            raise TypeError("a part is of another type")
        if not all(isinstance(each, str) for each in self.weights.values()):
            raise TypeError("weights must map file names to hashes")

    @classmethod
    def from_metadata(cls, metadata: dict[str, str], where: str, remedy: str) -> "GraphRecord":
        """Raises `InputError`, naming `remedy`, for a graph that was not exported by this version."""
        try:
            values = parse_json(metadata[_METADATA_KEY])
            record = cls(**{**values, "tap_layers": tuple(values["tap_layers"])})
            record._check_types()
        except (KeyError, TypeError, ValueError):
            raise InputError(f"{where}: was not exported by this package; {remedy}") from None
        if record.version != EXPORT_VERSION:
            raise InputError(
                f"{where}: export version {record.version}, this package reads {EXPORT_VERSION}; {remedy}"
            )
        return record
