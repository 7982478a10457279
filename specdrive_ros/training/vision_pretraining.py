"""First stage of mini: the vision encoder learns to name what is in the image, from the world's own labels.

Costs an eleventh per sample of learning to see through the text loss. Linear heads, discarded afterwards, read every
output that the text model will read (the merged tokens and each deepstack level). They read the *mean* over an image's
tokens: what only one token knew, the language model and the action expert would each first have to learn to attend to;
this way the vision encoder spreads it over all tokens.

The heads also read numbers, because steering needs finer values than any class: the position of the lane and of things
(`sim.scene_geometry`) and, if a frame is the newest of a sample, the path the expert then took.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from specdrive_ros.training.scene_numbers import NUMBERS, WAY, frame_numbers
from specdrive_ros.training.scenes import Shard


NUMBER_WEIGHT = 5.0  # in units of one label's cross-entropy
NUMBER_TOLERANCE = 0.25  # in spreads; the gradient grows no further beyond this error
LABEL_WEIGHT = {"signal": 4.0}  # only a handful of pixels, and nothing matters more


@dataclass(frozen=True)
class VisionPretraining:
    """Settings of the first stage. `brightness` and `noise` disturb pixels, in units of the 0…1 range."""

    steps: int = 3000
    batch: int = 32
    learning_rate: float = 1e-3
    weight_decay: float = 0.02
    brightness: float = 0.08
    noise: float = 0.02
    evaluate_every: int = 250
    seed: int = 0


class SceneHeads(nn.Module):
    """A linear classifier per scene label and a linear estimate per number, for every level the text model reads."""

    def __init__(self, scene_labels: dict[str, int], width: int, levels: int):
        super().__init__()
        self.scene_labels = scene_labels
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(levels))
        outputs = sum(scene_labels.values()) + len(NUMBERS)
        self.classify = nn.ModuleList(nn.Linear(width, outputs) for _ in range(levels))

    def forward(self, levels: list[torch.Tensor]) -> list[torch.Tensor]:
        """levels: each [B, tokens, width] -> each [B, sum of classes + numbers], logits and estimates."""
        return [classify(norm(level).mean(1)) for norm, classify, level in zip(self.norms, self.classify, levels)]

    def split(self, outputs: torch.Tensor) -> tuple[list[torch.Tensor], torch.Tensor]:
        """outputs [B, ...] of one level -> logits of every label, each [B, classes], and the numbers [B, N]."""
        *classes, numbers = outputs.split([*self.scene_labels.values(), len(NUMBERS)], dim=1)
        return classes, numbers

    def loss(self, outputs: list[torch.Tensor], labels: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        """The loss over all levels; the first level weighs 1.5, each of the others 0.5.

        labels: [B, K] class indices, -1 where a label does not apply; numbers: [B, N] in spreads, NaN where unknown.
        """
        known = ~numbers.isnan()
        total = outputs[0].new_zeros(())
        for weight, level in zip([1.5] + [0.5] * (len(outputs) - 1), outputs):
            classes, estimated = self.split(level)
            wrong = nn.functional.smooth_l1_loss(estimated, numbers.nan_to_num(), reduction="none",
                                                   beta=NUMBER_TOLERANCE) * known
            total = total + weight * NUMBER_WEIGHT * (wrong.sum(0) / known.sum(0).clamp(min=1)).sum()
            for column, (name, scores) in enumerate(zip(self.scene_labels, classes)):
                wanted = labels[:, column]
                loss = nn.functional.cross_entropy(scores, wanted, ignore_index=-1, reduction="sum")
                total = total + weight * LABEL_WEIGHT.get(name, 1.0) * loss / (wanted >= 0).sum().clamp(min=1)
        return total / len(self.scene_labels)

    def accuracy(self, outputs: torch.Tensor, labels: torch.Tensor) -> dict[str, tuple[int, int]]:
        """(right, applicable) per label, from `outputs` of one level and labels [B, K]."""
        scores, _ = self.split(outputs)
        result = {}
        for column, name in enumerate(self.scene_labels):
            valid = labels[:, column] >= 0
            right = (scores[column].argmax(1) == labels[:, column]) & valid
            result[name] = int(right.sum()), int(valid.sum())
        return result


class FrameSampler:
    """Frames of all shards under one numbering, drawn so that rare labels and samples' newest frames get their
    share."""

    def __init__(self, shards: list[Shard]):
        self.shards = shards
        self.owner = np.concatenate([np.full(len(s.scene), i, np.int32) for i, s in enumerate(shards)])
        self.local = np.concatenate([np.arange(len(s.scene), dtype=np.int32) for s in shards])
        self.labels = np.concatenate([s.scene for s in shards]).astype(np.int64)
        self.numbers = np.concatenate([frame_numbers(s) for s in shards])
        newest = ~np.isnan(self.numbers[:, :len(WAY)]).any(1)
        self.probability = rare_label_weights(self.labels) * np.where(newest, 2.0, 1.0)
        self.cumulative = np.cumsum(self.probability)

    def draw(self, rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Frames [count, H, W, 3], labels [count, K] and numbers [count, N] in spreads."""
        rows = np.searchsorted(self.cumulative, rng.random(count) * self.cumulative[-1])
        return self.frames(rows), self.labels[rows], self.numbers[rows]

    def frames(self, rows: np.ndarray) -> np.ndarray:
        places = ((self.shards[self.owner[row]], int(self.local[row])) for row in rows)
        return np.concatenate([shard.frames(first, first + 1) for shard, first in places])


def rare_label_weights(labels: np.ndarray) -> np.ndarray:
    """[N, K] labels -> [N] weights, sum 1: the mean over labels of 1/sqrt(class frequency), so that no class
    starves."""
    weight = np.zeros(len(labels))
    for column in labels.T:
        classes, inverse, counts = np.unique(column, return_inverse=True, return_counts=True)
        weight += np.where(column >= 0, (1.0 / np.sqrt(counts / len(column)))[inverse], 1.0)
    return weight / weight.sum()


def disturb(patches: torch.Tensor, settings: VisionPretraining, generator: torch.Generator) -> torch.Tensor:
    """Adds a brightness shift and pixel noise to normalised patches [B, P, C] (range -1 … 1)."""
    shift = torch.randn((len(patches), 1, 1), generator=generator) * 2 * settings.brightness
    grain = torch.randn(patches.shape, generator=generator) * 2 * settings.noise
    return (patches + shift + grain).clamp(-1.0, 1.0)
