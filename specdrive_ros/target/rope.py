"""Positions of tokens and patches: M-RoPE positions, rotary tables, the vision model's position grid.

NumPy only; every runtime gets them from here. Axes are (time, height, width). Text advances all three together; the
tokens of an image share one time and count rows and columns from there. Tables are float32 because the reference
computes them so whatever the model's dtype.
"""

import numpy as np

from specdrive_ros.target.config import TextConfig, VisionConfig


def prompt_positions(
    token_ids: np.ndarray, image_token_id: int, grids: np.ndarray, merge: int
) -> tuple[np.ndarray, int]:
    """Positions of a prompt's tokens, and what to add to a cache slot to get the position of a later token.

    token_ids: [T], image placeholders expanded; grids: [images, 3] patches (1, rows, columns) per image.
    Returns [3, T] int64 and rope_delta = largest position + 1 - T.
    """
    is_image = np.asarray(token_ids) == image_token_id
    positions = np.empty((3, len(is_image)), np.int64)
    token, position = 0, 0
    for grid in _next_grid(grids, merge, int(is_image.sum())):
        start = token + int(np.argmax(is_image[token:]))
        positions[:, token:start] = position + np.arange(start - token)
        position += start - token
        rows, columns = grid
        token = start + rows * columns
        positions[0, start:token] = position
        positions[1, start:token] = position + np.repeat(np.arange(rows), columns)
        positions[2, start:token] = position + np.tile(np.arange(columns), rows)
        position += max(rows, columns)
    positions[:, token:] = position + np.arange(len(is_image) - token)
    return positions, int(positions.max(initial=-1)) + 1 - len(is_image)


def text_positions(first_slot: int, count: int, rope_delta: int) -> np.ndarray:
    """[3, count] positions of tokens (or waypoints) at cache slots from `first_slot` on."""
    return np.broadcast_to(first_slot + rope_delta + np.arange(count, dtype=np.int64), (3, count)).copy()


def rotary_tables(position_ids: np.ndarray, text: TextConfig) -> tuple[np.ndarray, np.ndarray]:
    """Interleaved M-RoPE: cosines and sines [..., T, head_dim] of positions [3, ..., T]."""
    angles = np.asarray(position_ids, np.float32)[..., None] * _frequencies(text.head_dim, text.rope_theta)
    axis = frequency_axes(text.mrope_section)
    chosen = np.where(axis == 1, angles[1], np.where(axis == 2, angles[2], angles[0]))
    chosen = np.concatenate([chosen, chosen], axis=-1)
    return np.cos(chosen), np.sin(chosen)


def frequency_axes(mrope_section: tuple[int, int, int]) -> np.ndarray:
    """The axis of each rotary frequency: time, height, width, time, … until a section is used up."""
    axes = np.zeros(sum(mrope_section), np.int64)
    for axis in (1, 2):
        axes[axis : 3 * mrope_section[axis] : 3] = axis
    return axes


def patch_rows_columns(rows: int, columns: int, merge: int) -> tuple[np.ndarray, np.ndarray]:
    """Row and column of every patch of an image in merge-block order, each [rows * columns]."""
    grid = np.arange(rows * columns).reshape(rows // merge, merge, columns // merge, merge)
    order = grid.transpose(0, 2, 1, 3).reshape(-1)
    return order // columns, order % columns


def vision_rotary_tables(rows: int, columns: int, vision: VisionConfig) -> tuple[np.ndarray, np.ndarray]:
    """Cosines and sines [patches, head_dim] of the vision model's rows-and-columns rotary embedding."""
    row, column = patch_rows_columns(rows, columns, vision.spatial_merge_size)
    frequencies = _frequencies(vision.head_dim // 2, 10000.0)
    angles = np.concatenate(
        [row[:, None] * frequencies, column[:, None] * frequencies], axis=-1, dtype=np.float32
    )
    angles = np.concatenate([angles, angles], axis=-1)
    return np.cos(angles), np.sin(angles)


def position_grid_weights(rows: int, columns: int, vision: VisionConfig) -> tuple[np.ndarray, np.ndarray]:
    """How the learned position grid is interpolated over an image: four entries and weights per patch.

    Returns indices [patches, 4] into the flattened grid and bilinear weights [patches, 4] (corners aligned).
    """
    side = vision.position_grid_side
    row, column = patch_rows_columns(rows, columns, vision.spatial_merge_size)
    (row_low, row_high, row_weight), (column_low, column_high, column_weight) = (
        _linear_taps(row, rows, side),
        _linear_taps(column, columns, side),
    )
    indices = [r * side + c for r in (row_low, row_high) for c in (column_low, column_high)]
    weights = [r * c for r in (1 - row_weight, row_weight) for c in (1 - column_weight, column_weight)]
    return np.stack(indices, axis=-1), np.stack(weights, axis=-1)


def _linear_taps(index: np.ndarray, count: int, side: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Grid entries below and above each of evenly spaced points, and the upper one's weight."""
    place = np.linspace(0, side - 1, count, dtype=np.float32)[index]
    low = place.astype(np.int64)
    return low, np.minimum(low + 1, side - 1), place - low.astype(np.float32)


def _frequencies(size: int, theta: float) -> np.ndarray:
    exponents = np.arange(0, size, 2, dtype=np.float32) / np.float32(size)
    return (np.float32(1) / np.float32(theta) ** exponents).astype(np.float32)


def _next_grid(grids: np.ndarray, merge: int, image_tokens: int) -> list[tuple[int, int]]:
    """(rows, columns) of merged tokens per image. Raises ValueError if there are not as many placeholders."""
    merged = [
        (int(rows) // merge, int(columns) // merge)
        for frames, rows, columns in np.asarray(grids)
        for _ in range(frames)
    ]
    expected = sum(rows * columns for rows, columns in merged)
    if expected != image_tokens:
        raise ValueError(f"prompt has {image_tokens} image placeholders, its image grids need {expected}")
    return merged
