"""What a pass needs around the graphs, in NumPy: rotary tables, masks, image rows, batches of equal images.

`GraphNetworks` does this for every runtime that runs the graphs of `bindings.py`; a runtime only adds how one graph is
run. Knows no runtime and no torch.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator

import numpy as np

from specdrive_ros.runtime.bindings import HIDDEN
from specdrive_ros.runtime.networks import ImageRows, KeyValueCache, TextOutput, VisionFeatures
from specdrive_ros.target.config import TargetConfig
from specdrive_ros.target.rope import position_grid_weights, rotary_tables, vision_rotary_tables


class GraphNetworks(ABC):
    """`TargetNetworks` over three graphs."""

    chooses = False  # logits are in host memory and are read there, row by row, as needed

    def __init__(self, config: TargetConfig, tap_layers: tuple[int, ...], flow_steps: int):
        self.config, self.tap_layers, self.flow_steps = config, tap_layers, flow_steps
        self._image_tables: dict[tuple[int, int], tuple[np.ndarray, ...]] = {}

    @abstractmethod
    def embed(self, token_ids: np.ndarray) -> np.ndarray:
        """[T] ids -> [T, E] embeddings."""

    @abstractmethod
    def run_vision(self, *inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Inputs in the order of the binding table -> embeddings [I, V, E], deepstack [K, I, V, E]."""

    @abstractmethod
    def run_text(
        self, hidden, cos, sin, mask, deepstack, logit_rows, past, new
    ) -> tuple[np.ndarray, np.ndarray]:
        """`past` [L, S, 2, H, D] is read, `new` [L, T, 2, H, D] written. Returns logits and taps."""

    def run_choice(self, *inputs, forbidden: np.ndarray, taps: bool) -> tuple[np.ndarray, np.ndarray]:
        """The same pass; returns choices [R] and taps, which may be empty if they are not wanted."""
        logits, states = self.run_text(*inputs)
        return np.argmax(np.where(forbidden, -np.inf, logits), -1), states

    def laid_out(self, past) -> np.ndarray:
        """Rows [L, S, 2, H, D] -> keys and values [2, L, H, S, D], the layout that every step of the action head
        reads."""
        return np.ascontiguousarray(past.transpose(2, 0, 3, 1, 4))

    @abstractmethod
    def run_action_step(self, noise, time, cos, sin, past) -> np.ndarray:
        """[W, 2] at flow time `time` [1, 1, 1] -> [W, 2], later by 1 / `flow_steps`. past: from `laid_out`."""

    def run_action(self, noise, cos, sin, past) -> np.ndarray:
        """Runs all steps, one after another -> [W, 2]."""
        for time in step_times(self.flow_steps):
            noise = self.run_action_step(noise, time, cos, sin, past)
        return noise

    def new_cache(self, capacity: int) -> KeyValueCache:
        text = self.config.text
        return KeyValueCache(text.num_hidden_layers, text.num_key_value_heads, text.head_dim, capacity)

    def encode_images(self, patches: np.ndarray, grid_thw: np.ndarray) -> VisionFeatures:
        parts = [self.run_vision(*inputs) for inputs in self.vision_inputs(patches, grid_thw)]
        embeddings = [part.reshape(-1, part.shape[-1]) for part, _ in parts]
        levels = [part.reshape(len(part), -1, part.shape[-1]) for _, part in parts]
        return VisionFeatures(np.concatenate(embeddings), np.concatenate(levels, axis=1))

    def vision_inputs(self, patches: np.ndarray, grid_thw: np.ndarray) -> Iterator[tuple[np.ndarray, ...]]:
        """Inputs of `run_vision` for each run of consecutive images of one size."""
        start = 0
        for (rows, columns), images in equal_images(grid_thw):
            end = start + images * rows * columns
            batch = np.ascontiguousarray(patches[start:end]).reshape(images, rows * columns, -1)
            yield batch, *self._tables_of_image(rows, columns)
            start = end

    def extend(
        self, embeddings, position_ids, cache, *, mask=None, deepstack=None, images=None, logit_rows=None,
        forbidden=None, taps=True,
    ) -> TextOutput:  # fmt: skip
        tokens, cached = len(embeddings) + (0 if images is None else len(images.rows)), cache.length
        new = cache.reserve(tokens)
        cos, sin = rotary_tables(position_ids, self.config.text)
        hidden, deepstack = self.with_images(embeddings, deepstack, images)
        mask = additive_mask(mask, tokens, cached)
        rows = np.arange(tokens) if logit_rows is None else np.asarray(logit_rows, np.int64)
        inputs = (hidden, cos, sin, mask, deepstack, rows, cache.past(cached), new)
        if forbidden is None:
            output = TextOutput(*self.run_text(*inputs))
        else:
            choices, states = self.run_choice(*inputs, forbidden=forbidden, taps=taps)
            output = TextOutput(None, states, choices)
        cache.advance(tokens)
        return output

    def takes(self, tokens: int, cached: int, logit_rows: int) -> bool:
        return True

    def with_images(
        self, embeddings: np.ndarray, deepstack: np.ndarray | None, images: ImageRows | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """`hidden` [T, E] and `deepstack` [K, T, E] for `run_text`, with image tokens in their rows."""
        tokens, size = len(embeddings) + (0 if images is None else len(images.rows)), embeddings.shape[1]
        if deepstack is None:
            deepstack = np.zeros((len(self.config.vision.deepstack_visual_indexes), tokens, size), np.float32)
        if images is None:
            return embeddings, deepstack
        hidden, others = np.empty((tokens, size), np.float32), np.ones(tokens, bool)
        others[images.rows] = False
        hidden[others], hidden[images.rows] = embeddings, images.features.embeddings
        deepstack[:, images.rows] = images.features.deepstack
        return hidden, deepstack

    def act(self, noise, position_ids, cache, *, visible, steps=None) -> np.ndarray:
        cos, sin = rotary_tables(position_ids, self.config.text)
        past = self.laid_out(cache.past(visible))
        if steps is None or steps == self.flow_steps:
            return self.run_action(noise, cos, sin, past)
        for time in step_times(steps):
            ahead = self.run_action_step(noise, time, cos, sin, past)
            noise = noise + (ahead - noise) * np.float32(self.flow_steps / steps)  # the same velocity for longer
        return noise

    def _tables_of_image(self, rows: int, columns: int) -> tuple[np.ndarray, ...]:
        """grid_rows, grid_weights, cos, sin; cached, because only few sizes occur."""
        if (rows, columns) not in self._image_tables:
            vision = self.config.vision
            grid_rows, grid_weights = position_grid_weights(rows, columns, vision)
            cos, sin = vision_rotary_tables(rows, columns, vision)
            self._image_tables[rows, columns] = (grid_rows, grid_weights.astype(np.float32), cos, sin)
        return self._image_tables[rows, columns]


def equal_images(grid_thw: np.ndarray) -> list[tuple[tuple[int, int], int]]:
    """((patch rows, patch columns), number of images) for each run of consecutive images of one size."""
    runs: list[tuple[tuple[int, int], int]] = []
    for frames, rows, columns in np.asarray(grid_thw).tolist():
        if runs and runs[-1][0] == (rows, columns):
            frames += runs.pop()[1]
        runs.append(((rows, columns), frames))
    return runs


def additive_mask(mask: np.ndarray | None, tokens: int, cached: int) -> np.ndarray:
    """[T, S + T] float32: 0 where a row may attend, else HIDDEN; mask None is causal."""
    if mask is None:
        hidden = np.zeros((tokens, cached + tokens), np.float32)
        if tokens > 1:
            hidden[:, cached:][np.triu_indices(tokens, 1)] = HIDDEN
        return hidden
    return np.where(mask, np.float32(0), np.float32(HIDDEN))


def step_times(steps: int) -> list[np.ndarray]:
    """Flow time at the start of each of `steps` Euler steps, each [1, 1, 1], from 0 on."""
    return list(np.linspace(0, 1, steps + 1, dtype=np.float32)[:-1].reshape(-1, 1, 1, 1))
