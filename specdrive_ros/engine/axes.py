"""Which axes of the graphs' inputs vary, and the range of sizes that each graph is built for.

Letters as in `runtime/bindings.py`: T tokens of a pass, S cached rows, R rows whose logits are wanted, I images,
P patches of one image, A accepted tokens, B slots of a block, W words of a draft's vocabulary. `S+T` is the width of a
mask. Knows no TensorRT.
"""

from dataclasses import dataclass

from specdrive_ros.errors import InputError
from specdrive_ros.runtime.bindings import SEEN

DRAFT_ENGINE_GRAPHS = ("eagle3_newest", "eagle3_step", "dflash_context", "dflash_block")
PAST = "past_"  # all inputs past_0 … past_L-1

_TURNED = {"cos": {0: "T"}, "sin": {0: "T"}}
_MASKED = {"mask": {0: "T", 1: "S+T"}}
AXES: dict[str, dict[str, dict[int, str]]] = {
    "vision": {
        "patches": {0: "I", 1: "P"},
        "grid_rows": {0: "P"},
        "grid_weights": {0: "P"},
        "cos": {0: "P"},
        "sin": {0: "P"},
    },
    "text": {"hidden": {0: "T"}, **_TURNED, **_MASKED, "deepstack": {1: "T"}, "logit_rows": {0: "R"}, PAST: {0: "S"}},
    "action_step": {PAST: {0: "S"}},
    "eagle3_newest": {"embeddings": {0: "T"}, "taps": {0: "T"}, **_TURNED, SEEN: {0: "S+T"}, PAST: {0: "S"}},
    "eagle3_step": {"embeddings": {0: "T"}, "hidden": {0: "T"}, **_TURNED, **_MASKED, PAST: {0: "S"}},
    "dflash_context": {"taps": {0: "A"}, "cos": {0: "A"}, "sin": {0: "A"}},
    "dflash_block": {
        "embeddings": {0: "B"},
        "cos": {0: "B"},
        "sin": {0: "B"},
        "head": {1: "W"},
        SEEN: {0: "S+B"},
        PAST: {0: "S"},
    },
}


def letters_of(graph: str) -> tuple[str, ...]:
    """The letters that vary in a graph, in order of appearance."""
    found: dict[str, None] = {}
    for axes in AXES[graph].values():
        for expression in axes.values():
            found.update(dict.fromkeys(expression.split("+")))
    return tuple(found)


def varying_axes(graph: str, name: str) -> dict[int, str]:
    """Axis -> letter or sum of letters of an input; empty if its shape is fixed."""
    return AXES[graph].get(PAST if name.startswith(PAST) else name, {})


@dataclass(frozen=True)
class Range:
    """Smallest, best (optimised for) and largest size of a letter."""

    least: int
    best: int
    largest: int

    def __post_init__(self):
        sizes = (self.least, self.best, self.largest)
        if any(type(size) is not int for size in sizes) or not 0 <= self.least <= self.best <= self.largest:
            raise InputError(f"a range is three whole numbers 0 <= least <= best <= largest, got {list(sizes)}")
        if self.largest < 1:
            raise InputError("a range's largest size must be at least 1, got 0")

    def __contains__(self, size: int) -> bool:
        return self.least <= size <= self.largest

    def at(self, which: int) -> int:
        return (self.least, self.best, self.largest)[which]


Ranges = dict[str, Range]  # letter -> range: one optimisation profile


def profile_shapes(graph: str, name: str, shape: tuple[int, ...], ranges: Ranges) -> tuple[tuple[int, ...], ...]:
    """Smallest, best and largest shape of an input whose varying axes are -1 in `shape`; empty for a fixed one.

    Raises `InputError` if an axis varies that the table does not list.
    """
    if -1 not in shape:
        return ()
    axes = varying_axes(graph, name)
    unknown = [axis for axis, size in enumerate(shape) if size == -1 and axis not in axes]
    if unknown:
        raise InputError(f"{graph}: input {name} varies in axis {unknown[0]}, which no table knows; export it again")
    return tuple(
        tuple(
            sum(ranges[letter].at(which) for letter in axes[axis].split("+")) if size == -1 else size
            for axis, size in enumerate(shape)
        )
        for which in range(3)
    )
