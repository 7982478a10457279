"""The prompt: images camera by camera, the ego's history, the instruction, and the opened chain of causation.

The wording is the released model's; other wording would need another model. Knows ids and positions, no pixels.
"""

from dataclasses import dataclass

import numpy as np

from specdrive_ros.target.config import TargetConfig
from specdrive_ros.target.rope import prompt_positions
from specdrive_ros.target.tokens import TargetTokenizer

SYSTEM_TEXT = "You are a driving assistant that generates safe and accurate actions."
USER_TEXT = "output the chain-of-thought reasoning of the driving process, then output the future trajectory."


@dataclass(frozen=True)
class Prompt:
    """token_ids: [T] int64; position_ids: [3, T] int64; image_rows: [V] rows of image tokens, in image order;
    rope_delta: added to a later token's cache slot to get its position."""

    token_ids: np.ndarray
    position_ids: np.ndarray
    image_rows: np.ndarray
    rope_delta: int


def prompt_text(images: int, history_tokens: int) -> str:
    """The prompt as rendered by the chat template: one placeholder per image and one per history token."""
    pictures = "<|vision_start|><|image_pad|><|vision_end|>" * images
    history = "<|traj_history_start|>" + "<|traj_history|>" * history_tokens + "<|traj_history_end|>"
    return (
        f"<|im_start|>system\n{SYSTEM_TEXT}<|im_end|>\n<|im_start|>user\n{pictures}{history}{USER_TEXT}<|im_end|>\n"
        "<|im_start|>assistant\n<|cot_start|>"
    )


def build_prompt(
    config: TargetConfig, tokenizer: TargetTokenizer, grids: np.ndarray, history_xyz: np.ndarray
) -> Prompt:
    """Ids and positions for images with grids [images, 3] (camera by camera) and a history [16, 3] (m, ego frame at
    t0)."""
    token_ids = placeholder_ids(config, tokenizer, grids)
    token_ids[token_ids == tokenizer.ids["traj_history"]] = tokenizer.history_tokens(history_xyz)
    image_pad = tokenizer.ids["image_pad"]
    positions, rope_delta = prompt_positions(token_ids, image_pad, grids, config.vision.spatial_merge_size)
    return Prompt(token_ids, positions, np.flatnonzero(token_ids == image_pad), rope_delta)


def placeholder_ids(config: TargetConfig, tokenizer: TargetTokenizer, grids: np.ndarray) -> np.ndarray:
    """[T] int64 with every image token in place, and placeholders for the history."""
    grids = np.asarray(grids, np.int64).reshape(-1, 3)
    ids = np.array(
        tokenizer.encode(prompt_text(len(grids), config.vocabulary.tokens_per_history_traj)), np.int64
    )
    repeats = np.ones(len(ids), np.int64)
    repeats[ids == tokenizer.ids["image_pad"]] = grids.prod(axis=1) // config.vision.spatial_merge_size**2
    return np.repeat(ids, repeats)
