"""What each stage of a cycle demands of a device: operations, bytes moved, layers run. Counted from a model's shape.

A multiply and an add are two operations. Weights are read once per pass, however many rows it has; keys, values and
activations are in 16 bits. The language model and its draft are in the chosen precision; vision, action expert and
attention are in 16 bits. Letters: T rows of a pass, S cached rows. Knows no device.
"""

from dataclasses import dataclass

from specdrive_ros.budget.device import Precision
from specdrive_ros.budget.shape import ModelShape

_HALF = 2  # bytes
EAGLE3_TAPS, EAGLE3_WORDS, EAGLE3_DEPTH, EAGLE3_WIDTH = 3, 32000, 6, 10
DFLASH_LAYERS, DFLASH_TAPS, DFLASH_BLOCK = 5, 5, 16
TREE = 60  # rows in which a tree of proposals is verified


@dataclass(frozen=True)
class Work:
    """products: operations in the precision's arithmetic; other: in fp16; bytes: read and written in device memory;
    layers: that have to be started one after another, whatever their size; weights: values stored in the precision."""

    products: float = 0.0
    other: float = 0.0
    bytes: float = 0.0
    layers: float = 0.0
    weights: float = 0.0

    def __add__(self, more: "Work") -> "Work":
        return Work(*(a + b for a, b in zip(vars(self).values(), vars(more).values(), strict=True)))

    def __mul__(self, times: float) -> "Work":
        return Work(*(times * value for value in vars(self).values()))


@dataclass(frozen=True)
class Stages:
    """The stages of a model in a precision."""

    shape: ModelShape
    precision: Precision

    # -- sizes -------------------------------------------------------------------------------------

    @property
    def text_layer_weights(self) -> int:
        s = self.shape.text
        return self._layer_weights(s.hidden, s.inner, s.heads)

    def _layer_weights(self, hidden: int, inner: int, heads: int, source: int = 0) -> int:
        """Weights of a decoder layer; queries, keys and values read `source` values per row, or `hidden` if that is
        0."""
        s = self.shape.text
        projections = (source or hidden) * (heads + 2 * s.kv_heads) * s.head + heads * s.head * hidden
        return projections + 3 * hidden * inner

    @property
    def head_weights(self) -> int:
        return self.shape.text.hidden * self.shape.text.vocabulary

    @property
    def expert_weights(self) -> int:
        e = self.shape.expert
        return self.shape.text.layers * self._layer_weights(e.hidden, e.inner, e.heads)

    @property
    def vision_weights(self) -> int:
        v, out = self.shape.vision, self.shape.text.hidden
        joined = v.hidden * v.merge**2
        layers = v.layers * (4 * v.hidden**2 + 2 * v.hidden * v.inner)
        return layers + v.mergers * (joined**2 + joined * out) + v.patch_values * v.hidden + v.positions * v.hidden

    def draft_weights(self, draft: str) -> int:
        """The draft's own weights; embeddings and an output head shared with the target are not counted."""
        s = self.shape.text
        if draft == "eagle3":
            layer = self._layer_weights(s.hidden, s.inner, s.heads, 2 * s.hidden)
            return layer + s.hidden * (EAGLE3_TAPS * s.hidden + EAGLE3_WORDS)
        if draft == "dflash":
            return DFLASH_LAYERS * self.text_layer_weights + DFLASH_TAPS * s.hidden**2
        return 0

    def row_bytes(self, layers: int) -> int:
        """Bytes of a token's keys and values."""
        return layers * 2 * self.shape.text.kv_heads * self.shape.text.head * _HALF

    # -- stages ------------------------------------------------------------------------------------

    def vision(self, images: int) -> Work:
        """All of a number of images in one pass; attention stays within an image."""
        v, patches = self.shape.vision, self.shape.cycle.patches
        rows = images * patches
        mergers = v.mergers * ((v.hidden * v.merge**2) ** 2 + v.hidden * v.merge**2 * self.shape.text.hidden)
        products = 2 * rows * (v.layers * (4 * v.hidden**2 + 2 * v.hidden * v.inner) + mergers / v.merge**2)
        moved = v.layers * rows * (8 * v.hidden + 2 * v.inner) * _HALF
        attention = v.layers * 4 * v.hidden * rows * patches
        return Work(0, products + attention, _HALF * self.vision_weights + moved, v.layers)

    def text(self, rows: int, cached: int, logits: int) -> Work:
        """`rows` new tokens after `cached` ones through every layer, and `logits` of them through the output head."""
        s = self.shape.text
        layers = self._decoder(s.layers, self.text_layer_weights, s.hidden, s.inner, s.heads, rows, cached)
        return layers + self._head(self.head_weights, logits)

    def action_step(self, cached: int) -> Work:
        """One Euler step of all waypoints."""
        s, e = self.shape.text, self.shape.expert
        weights = self._layer_weights(e.hidden, e.inner, e.heads)
        work = self._decoder(s.layers, weights, e.hidden, e.inner, e.heads, e.waypoints, cached, bits=16)
        return Work(0, work.products + work.other, work.bytes, work.layers)

    def eagle3_newest(self, rows: int, cached: int) -> Work:
        """Accepted tokens into the draft, logits after the newest."""
        s = self.shape.text
        fuse = self._matrix(EAGLE3_TAPS * s.hidden**2, rows)
        return fuse + self._eagle3_layer(rows, cached) + self._head(EAGLE3_WORDS * s.hidden, 1)

    def eagle3_step(self, rows: int, cached: int) -> Work:
        return self._eagle3_layer(rows, cached) + self._head(EAGLE3_WORDS * self.shape.text.hidden, rows)

    def eagle3_proposal(self, accepted: int, cached: int) -> Work:
        """Everything that is run for one tree of proposals."""
        newest, step = self.eagle3_newest(accepted, cached), self.eagle3_step(EAGLE3_WIDTH, cached)
        return newest + step * EAGLE3_DEPTH

    def dflash_proposal(self, accepted: int, cached: int) -> Work:
        """Injects the features of the accepted tokens and fills one block, with the target's own output head."""
        return self.dflash_context(accepted) + self.dflash_block(cached)

    def dflash_context(self, accepted: int) -> Work:
        s = self.shape.text
        keys = DFLASH_LAYERS * 2 * s.kv_heads * s.head * s.hidden
        return self._matrix(DFLASH_TAPS * s.hidden**2 + keys, accepted) + Work(layers=1)

    def dflash_block(self, cached: int) -> Work:
        s = self.shape.text
        block = self._decoder(
            DFLASH_LAYERS, self.text_layer_weights, s.hidden, s.inner, s.heads, DFLASH_BLOCK, cached
        )
        return block + self._head(self.head_weights, DFLASH_BLOCK)

    # -- parts -------------------------------------------------------------------------------------

    def _eagle3_layer(self, rows: int, cached: int) -> Work:
        s = self.shape.text
        weights = self._layer_weights(s.hidden, s.inner, s.heads, 2 * s.hidden)
        return self._decoder(1, weights, s.hidden, s.inner, s.heads, rows, cached)

    def _decoder(self, layers, weights, hidden, inner, heads, rows, cached, bits: float | None = None) -> Work:
        s = self.shape.text
        seen = cached + (rows + 1) / 2
        attention = 4 * heads * s.head * rows * seen
        activations = rows * (6 * hidden + 2 * (heads + 2 * s.kv_heads) * s.head + 5 * inner) * _HALF
        cache = self.row_bytes(1) * (cached + rows)
        bits = self.precision.bits if bits is None else bits
        one = Work(2 * weights * rows, attention, weights * bits / 8 + activations + cache, 1, weights)
        return one * layers

    def _matrix(self, weights: int, rows: int) -> Work:
        return Work(2 * weights * rows, 0, weights * self.precision.bits / 8, 0, weights)

    def _head(self, weights: int, rows: int) -> Work:
        return self._matrix(weights, rows) + Work(bytes=4 * rows * weights / self.shape.text.hidden)
