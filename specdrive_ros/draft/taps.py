"""Which hidden states of the target a draft reads: one convention here, and how the public ones translate.

**Tap k is the hidden state that enters layer k of the target**: the output of layer k-1 with that layer's deepstack
rows already added. Tap 0 is the embedding; tap n (the number of layers) is the output of the last layer, before the
final norm. This is `hidden_states[k]` of Hugging Face, and what `networks.TextOutput.taps` holds.

| source | numbers in its files | tap |
|---|---|---|
| SafeAILab EAGLE-3 | none: inputs of layers 2, n//2, n-3 | k |
| speculators, both kinds | `hidden_states[k]` | k |
| z-lab DFlash, SpecForge | outputs of layer id | id + 1 |

Where a deepstack level is added, sglang captures before the addition and Hugging Face after it. Here only *after* is
available: no later layer sees the state before it. Knows no network and no file.
"""

from collections.abc import Iterable

import numpy as np

from specdrive_ros.errors import InputError


def eagle3_taps(layers: int) -> tuple[int, ...]:
    """The published choice for a target of `layers` layers: low, middle, high."""
    return tuple(min(max(k, 1), layers) for k in (2, layers // 2, layers - 3))


def dflash_taps(layers: int, draft_layers: int) -> tuple[int, ...]:
    """The published choice: as many as the draft has layers, evenly spaced from the second to the last but two."""
    if draft_layers == 1:
        return (layers // 2 + 1,)
    return tuple(round(1 + i * (layers - 4) / (draft_layers - 1)) + 1 for i in range(draft_layers))


def from_outputs(layer_ids: Iterable[int]) -> tuple[int, ...]:
    """Indices of layers whose outputs are meant -> taps."""
    return tuple(int(layer) + 1 for layer in layer_ids)


def to_outputs(taps: tuple[int, ...]) -> list[int]:
    """Taps -> indices of the layers whose outputs they are."""
    return [tap - 1 for tap in taps]


class TapSelection:
    """Picks a draft's taps from those a target gives, which may be more or in another order."""

    def __init__(self, wanted: tuple[int, ...], given: tuple[int, ...], hidden_size: int, where: str):
        """Raises `InputError` naming `where` if a tap is not given."""
        missing = [tap for tap in wanted if tap not in given]
        if missing:
            every = " ".join(map(str, sorted({*given, *wanted})))
            raise InputError(
                f"{where}: reads the hidden states entering layers {list(wanted)} of the target, whose graphs give "
                f"{list(given)}; export the target again with --tap-layers {every}"
            )
        self._columns = None
        if tuple(wanted) != tuple(given):
            starts = hidden_size * np.array([given.index(tap) for tap in wanted])
            self._columns = (starts[:, None] + np.arange(hidden_size)).ravel()

    @classmethod
    def everything(cls) -> "TapSelection":
        """For a target that gives exactly what is wanted."""
        return cls((), (), 0, "")

    def __call__(self, taps: np.ndarray) -> np.ndarray:
        """[A, given * E] -> [A, wanted * E]; returned unchanged if there is nothing to pick; device states stay on the
        device."""
        if self._columns is None:
            return taps
        picked = taps[:, self._columns]
        return np.ascontiguousarray(picked) if isinstance(picked, np.ndarray) else picked
