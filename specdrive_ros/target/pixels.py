"""Camera frames to the vision model's patches: resize, normalise, cut.

The resize keeps the aspect ratio within the pixel limits and rounds both sides to whole merge blocks; it is bicubic
and antialiased in fixed-point arithmetic on 8-bit values, columns first, bit for bit like the reference. Knows no
colour spaces (RGB comes in) and no networks.
"""

import math
from functools import lru_cache

import numpy as np

from specdrive_ros.errors import InputError
from specdrive_ros.target.config import ImageLimits, TargetConfig, VisionConfig

MAX_ASPECT_RATIO = 200
_BLOCK = 16  # new samples computed together
_CUBIC = -0.5  # the kernel's free parameter
_NORMALIZED = ((np.arange(256) - 127.5) / 127.5).astype(
    np.float32
)  # mean and deviation 0.5 of values in 0 … 1


def patchify(frames: np.ndarray, config: TargetConfig) -> tuple[np.ndarray, np.ndarray]:
    """Resizes and cuts frames [N, H, W, 3] uint8 RGB of one size.

    Returns patches [P, 3*2*16*16] float32 and grid_thw [N, 3] int64: (1, patch rows, patch columns) per frame.
    """
    vision = config.vision
    height, width = fit_size(*frames.shape[1:3], vision.patch_size * vision.spatial_merge_size, config.images)
    resized = resize(frames, height, width)
    grid = np.array([1, height // vision.patch_size, width // vision.patch_size], np.int64)
    return cut_patches(resized, vision), np.tile(grid, (len(frames), 1))


def fit_size(height: int, width: int, block: int, limits: ImageLimits) -> tuple[int, int]:
    """Height and width in whole blocks, as close as possible to the image's own within the pixel limits."""
    if min(height, width) < 1 or max(height, width) / min(height, width) > MAX_ASPECT_RATIO:
        raise InputError(
            f"image of {height} x {width} pixels: its sides must not differ over {MAX_ASPECT_RATIO} times"
        )
    rows, columns = round(height / block) * block, round(width / block) * block
    if rows * columns > limits.max_pixels:
        shrink = math.sqrt(height * width / limits.max_pixels)
        return max(block, math.floor(height / shrink / block) * block), max(
            block, math.floor(width / shrink / block) * block
        )
    if rows * columns < limits.min_pixels:
        grow = math.sqrt(limits.min_pixels / (height * width))
        return math.ceil(height * grow / block) * block, math.ceil(width * grow / block) * block
    return rows, columns


def resize(frames: np.ndarray, height: int, width: int) -> np.ndarray:
    """[N, H, W, 3] uint8 -> [N, height, width, 3] uint8."""
    if frames.shape[1:3] == (height, width):
        return frames
    return np.stack([_resize_one(frame, height, width) for frame in frames])


def cut_patches(frames: np.ndarray, vision: VisionConfig) -> np.ndarray:
    """[N, H, W, 3] uint8 -> [N * patches, 3 * temporal * patch * patch] float32, merge block by merge block.

    Each frame is an image of its own, repeated to fill the temporal patch.
    """
    patch, merge, temporal = vision.patch_size, vision.spatial_merge_size, vision.temporal_patch_size
    count, height, width, channels = frames.shape
    rows, columns = height // (patch * merge), width // (patch * merge)
    cut = frames.reshape(count, rows, merge, patch, columns, merge, patch, channels)
    cut = cut.transpose(0, 1, 4, 2, 5, 7, 3, 6)  # image, block row, block column, row, column, channel, patch
    values = _NORMALIZED[cut.reshape(-1, channels, 1, patch, patch)]
    return np.repeat(values, temporal, axis=2).reshape(-1, channels * temporal * patch * patch)


def _resize_one(frame: np.ndarray, height: int, width: int) -> np.ndarray:
    columns = _resample(frame.swapaxes(0, 1), width)
    return _resample(columns.swapaxes(0, 1), height)


def _resample(lines: np.ndarray, size: int) -> np.ndarray:
    """[N, M, 3] uint8 -> [size, M, 3] uint8."""
    if len(lines) == size:
        return lines
    weights, bits = _bicubic_weights(len(lines), size)
    total = _banded_product(weights, lines.reshape(len(lines), -1).astype(np.float32))
    rounded = np.floor((total + 2.0 ** (bits - 1)) / 2.0**bits)
    return np.clip(rounded, 0, 255).astype(np.uint8).reshape(size, *lines.shape[1:])


def _banded_product(weights: np.ndarray, lines: np.ndarray) -> np.ndarray:
    """weights [S, N] @ lines [N, M], block by block: a new sample only reads its neighbourhood. Sums are integers
    below 2**24, so float32 represents them exactly and their order does not matter."""
    product = np.empty((len(weights), lines.shape[1]), np.float32)
    for first in range(0, len(weights), _BLOCK):
        block = weights[first : first + _BLOCK]
        used = np.flatnonzero(block.any(axis=0))
        near = slice(used[0], used[-1] + 1)
        np.matmul(block[:, near], lines[near], out=product[first : first + _BLOCK])
    return product


@lru_cache(maxsize=32)
def _bicubic_weights(size: int, new_size: int) -> tuple[np.ndarray, int]:
    """[new_size, size] float32: weight of each old sample in each new one, as integers over 2**bits.

    The kernel widens when shrinking. The largest weight takes 15 bits, as in 16-bit fixed-point arithmetic.
    """
    scale = size / new_size
    stretch = max(scale, 1.0)
    centres = (np.arange(new_size) + 0.5) * scale
    distance = np.abs(np.arange(size)[None] + 0.5 - centres[:, None]) / stretch
    near = ((_CUBIC + 2) * distance - (_CUBIC + 3)) * distance**2 + 1
    far = _CUBIC * (((distance - 5) * distance + 8) * distance - 4)
    weights = np.where(distance < 1, near, np.where(distance < 2, far, 0.0))
    weights /= weights.sum(axis=1, keepdims=True)
    bits = min(22, 14 - math.floor(math.log2(weights.max())))
    while int(0.5 + weights.max() * 2**bits) >= 2**15:
        bits -= 1
    return np.round(weights * 2**bits).astype(np.float32), bits
