"""What a checkpoint folder has and what it lacks: a model or a draft, in our layout or a public one. PyTorch.

Of a model no weights are read: tensors are known from the headers of their files, and compared with a network without
weights. A draft is small and is loaded. Changes nothing, runs nothing.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from specdrive_ros.draft.layout import CONFIG, layout_of, read_draft_config
from specdrive_ros.errors import InputError
from specdrive_ros.runtime.bindings import DRAFT_GRAPHS, GRAPHS
from specdrive_ros.runtime.weights_file import TensorPlace, tensor_places
from specdrive_ros.target.config import TargetConfig, TextConfig
from specdrive_ros.target.released_layout import read_json
from specdrive_ros.target.tokens import TargetTokenizer

TARGET, RELEASED = "target", "released"
WHOLES = ("vlm.model.visual", "vlm.model.language_model", "vlm.lm_head")  # else a part is a name's first component


@dataclass(frozen=True)
class Inventory:
    """kind:    target, eagle3 or dflash
    layout:  whose file layout it is
    tensors: by name; empty if the weights cannot be read
    facts:   from the config, for people: sizes, taps, rotary setting
    faults:  why it cannot be loaded, one sentence each; empty if it can
    absent:  what it could have and lacks: graphs, drafts
    """

    folder: Path
    kind: str
    layout: str
    tensors: dict[str, TensorPlace]
    facts: dict[str, object]
    faults: tuple[str, ...]
    absent: tuple[str, ...]

    @property
    def parts(self) -> dict[str, int]:
        """Part of the network -> number of values in it, in the order of the names."""
        counts: Counter[str] = Counter()
        for name, place in sorted(self.tensors.items()):
            part = next((whole for whole in WHOLES if name.startswith(f"{whole}.")), name.partition(".")[0])
            counts[part] += _size(place)
        return dict(counts)

    @property
    def types(self) -> dict[str, int]:
        """Type, by safetensors' name -> number of values of that type."""
        counts: Counter[str] = Counter()
        for place in self.tensors.values():
            counts[place.dtype] += _size(place)
        return dict(sorted(counts.items()))


def take_inventory(folder: Path, text_of: Callable[[], TextConfig]) -> Inventory:
    """text_of: gives the language model that a draft is for; called only if `folder` has a draft.

    Raises InputError for a folder that has neither a model nor a draft.
    """
    source = read_json(folder / CONFIG, "the config of a model or of a draft")
    layout = layout_of(source)
    if layout is None and "vlm_name_or_path" not in source:
        raise InputError(
            f"{folder / CONFIG}: neither a model's (it would have vlm_name_or_path) nor a draft's (draft_vocab_size, "
            "dflash_config or speculators_model_type)"
        )
    tensors, unreadable = _tensors(folder)
    if layout is None:
        facts, faults, absent = _of_a_target(folder, tensors)
        return Inventory(folder, TARGET, RELEASED, tensors, facts, (*unreadable, *faults), absent)
    kinds = {"z-lab DFlash": "dflash", "SafeAILab EAGLE-3": "eagle3"}
    kind = kinds.get(layout) or str(source["speculators_model_type"])
    facts, faults = _of_a_draft(folder, text_of())
    absent = tuple(_missing_files(folder, DRAFT_GRAPHS.get(kind, ())))
    return Inventory(folder, kind, layout, tensors, facts, unreadable or faults, absent)


def _size(place: TensorPlace) -> int:
    return int(np.prod(place.shape, dtype=np.int64))


def _tensors(folder: Path) -> tuple[dict[str, TensorPlace], tuple[str, ...]]:
    try:
        return tensor_places(folder), ()
    except InputError as error:
        return {}, (str(error),)


def _of_a_target(folder: Path, tensors: dict[str, TensorPlace]) -> tuple[dict, tuple[str, ...], tuple[str, ...]]:
    """Facts, faults, what is absent."""
    from specdrive_ros.draft.registry import CARRYOVER, NAMES, draft_path
    from specdrive_ros.target.checkpoint import outline_target

    absent = list(_missing_files(folder, GRAPHS))
    absent += [f"drafts/{path.name}" for path in (draft_path(folder, name) for name in NAMES if name != CARRYOVER)
               if not path.exists()]  # fmt: skip
    try:
        config = TargetConfig.load(folder)
    except InputError as error:
        return {}, (str(error),), tuple(absent)
    shapes = {name: place.shape for name, place in tensors.items()}
    checks = [lambda: TargetTokenizer.load(config), *([lambda: outline_target(folder, shapes)] if tensors else [])]
    text = config.text
    facts = {"layers": text.num_hidden_layers, "hidden_size": text.hidden_size, "vocabulary": text.vocab_size,
             "vision_layers": config.vision.depth}  # fmt: skip
    return facts, tuple(_faults(checks)), tuple(absent)


def _of_a_draft(folder: Path, text: TextConfig) -> tuple[dict, tuple[str, ...]]:
    """Facts and faults."""
    from specdrive_ros.draft.checkpoint import load_draft_network

    try:
        config = read_draft_config(folder, text)
    except InputError as error:
        return {}, (str(error),)
    names = ("hidden_size", "vocab_size", "draft_vocab_size", "num_hidden_layers", "block_size", "rope", "tap_layers",
             "target_layers", "target")  # fmt: skip
    facts = {name: getattr(config, name) for name in names if hasattr(config, name)}
    return facts, tuple(_faults([lambda: load_draft_network(folder, text, dtype=None)]))


def _faults(checks: list[Callable[[], object]]) -> Iterator[str]:
    for check in checks:
        try:
            check()
        except InputError as error:
            yield str(error)


def _missing_files(folder: Path, graphs: tuple[str, ...]) -> Iterator[str]:
    return (f"{name}.onnx" for name in graphs if not (folder / f"{name}.onnx").is_file())
