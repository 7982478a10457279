"""Image tokens that stay on the device: from the vision engine's outputs to the rows of the prompt, cycle after cycle.

Every image has its own block, [1 + K, V, E] float32: embeddings, then each deepstack level. A frame that was encoded
in an earlier cycle is copied from there, and a block is reused once its frame is forgotten. All copies are queued on
the device's single stream, so a block's next owner writes after its last reader.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from specdrive_ros.engine.memory import Block, Device, DevicePool, PinnedPool
from specdrive_ros.engine.runner import Tensor
from specdrive_ros.runtime.networks import ImageRows, VisionFeatures

_ITEM = 4  # bytes of a float32


@dataclass(frozen=True)
class _Image:
    """The block of an image with `tokens` image tokens."""

    block: Block
    tokens: int


class DeviceFeatures:
    """The device's counterpart of `VisionFeatures`. Reading `embeddings` or `deepstack` copies them to the host and
    waits."""

    def __init__(self, store: "FeatureStore", images: tuple[_Image, ...]):
        self.store, self.images = store, images

    def split(self, tokens: Sequence[int]) -> list["DeviceFeatures"]:
        """One object per image; `tokens` gives their sizes, checked against the images (ValueError)."""
        if [image.tokens for image in self.images] != list(tokens):
            raise ValueError(f"images of {[image.tokens for image in self.images]} tokens, asked for {list(tokens)}")
        return [DeviceFeatures(self.store, (image,)) for image in self.images]

    def followed_by(self, others: Sequence["DeviceFeatures"]) -> "DeviceFeatures":
        """These image tokens followed by those of `others`; nothing is copied."""
        return DeviceFeatures(self.store, tuple(image for part in (self, *others) for image in part.images))

    @property
    def embeddings(self) -> np.ndarray:
        return self.store.fetch(self).embeddings

    @property
    def deepstack(self) -> np.ndarray:
        return self.store.fetch(self).deepstack


class FeatureStore:
    """levels: number K of deepstack levels; size: E."""

    def __init__(self, device: Device, pinned: PinnedPool, levels: int, size: int):
        self._device, self._pinned, self._pool = device, pinned, DevicePool(device)
        self._levels, self._size, self._row = levels, size, _ITEM * size

    def keep(self, embeddings: Tensor, deepstack: Tensor) -> DeviceFeatures:
        """Queues copies of a vision engine's outputs [I, V, E] and [K, I, V, E], which its next run overwrites."""
        images, tokens, _ = embeddings.shape
        width, kept = tokens * self._row, []
        for image in range(images):
            block, start = self._pool.take((1 + self._levels) * width), image * width
            self._copy(block.address, width, embeddings.address + start, width, width, 1)
            self._copy(block.address + width, width, deepstack.address + start, images * width, width, self._levels)
            kept.append(_Image(block, tokens))
        return DeviceFeatures(self, tuple(kept))

    def place(self, images: ImageRows, words: Tensor, hidden: Tensor, deepstack: Tensor) -> None:
        """Queues what fills `hidden` [T, E] and `deepstack` [K, T, E]: text and image tokens, each in its rows.

        Rows after the last one are zeroed: a mask hides finite values, but NaN would show through it.
        """
        length = len(images.rows) + words.shape[0]
        others = np.ones(length, bool)
        others[images.rows] = False
        self._device.clear(hidden.address + length * self._row, (hidden.shape[0] - length) * self._row)
        self._device.clear(deepstack.address, self._levels * deepstack.shape[1] * self._row)
        for first, row, count in runs(np.flatnonzero(others)):
            self._rows(hidden, row, words.address + first * self._row, count)
        start = 0
        for image in images.features.images:
            self._place_image(image, images.rows[start : start + image.tokens], hidden, deepstack)
            start += image.tokens

    def _place_image(self, image: _Image, rows: np.ndarray, hidden: Tensor, deepstack: Tensor) -> None:
        pitch = deepstack.shape[1] * self._row
        for first, row, count in runs(rows):
            source = image.block.address + first * self._row
            self._rows(hidden, row, source, count)
            level, width = image.tokens * self._row, count * self._row
            self._copy(deepstack.address + row * self._row, pitch, source + level, level, width, self._levels)

    def _rows(self, target: Tensor, row: int, source: int, count: int) -> None:
        width = count * self._row
        self._copy(target.address + row * self._row, width, source, width, width, 1)

    def _copy(self, *arguments: int) -> None:
        self._device.copy_blocks(*arguments)

    def fetch(self, features: DeviceFeatures) -> VisionFeatures:
        arrays = [self._pinned.take((1 + self._levels, image.tokens, self._size)) for image in features.images]
        for image, array in zip(features.images, arrays, strict=True):
            self._device.download(array.ctypes.data, image.block.address, array.nbytes)
        self._device.synchronize()
        together = np.concatenate(arrays, axis=1)
        return VisionFeatures(together[0], together[1:])


def runs(rows: np.ndarray) -> list[tuple[int, int, int]]:
    """(index of the first, its row, length) of each run of consecutive rows in ascending `rows`."""
    if not len(rows):
        return []
    starts = np.flatnonzero(np.diff(rows, prepend=rows[0] - 2) != 1)
    counts = np.diff(starts, append=len(rows))
    return [(int(start), int(rows[start]), int(count)) for start, count in zip(starts, counts, strict=True)]
