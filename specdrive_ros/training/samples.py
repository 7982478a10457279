"""Training samples of the target: prompt, chain of causation with token weights, and the expert's action.

All prompts of one camera set have the same layout and differ only in history tokens and image features, so a batch
shares its position ids. Knows the scenes on disk and the tokenizer; knows no network.
"""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from specdrive_ros.shapes import FRAMES_PER_CAMERA, WAYPOINT_STEP_S
from specdrive_ros.target.config import TargetConfig
from specdrive_ros.target.prompt import Prompt, build_prompt
from specdrive_ros.target.tokens import TargetTokenizer
from specdrive_ros.target.unicycle import trajectory_to_action
from specdrive_ros.training.scene_numbers import frame_numbers
from specdrive_ros.training.scenes import Shard, planar_poses

LAMP = re.compile("(red|yellow|green)_(light|arrow)")  # in a cause
STEERING_CURVATURE = 0.01  # 1/m: a sample this curved has weight two
BRAKING_MPS = 2.0  # lost within two seconds: adds one to the weight


@dataclass(frozen=True)
class WordWeights:
    """Loss weights of the reasoning tokens: the first word, which commits the sentence to a decision and a phrasing;
    those that only the image determines; all others; the closing tokens."""

    first: float = 8.0
    visual: float = 4.0
    template: float = 0.5
    closing: float = 0.5


@dataclass(frozen=True)
class Batch:
    """B samples. T prompt tokens, R reasoning tokens (padded), A frames per sample.

    token_ids [B, T+R]; weights [B, R] and is_visual [B, R] of the reasoning tokens; lengths [B] number of reasoning
    tokens without padding, closing tokens included; frame_rows [B, A] rows of the feature cache; action [B, 64, 2]
    normalised; v0 [B] m/s; future [B, 64, 3] x, y, yaw (m, m, rad) in the ego frame at t0; labels [B, K] and numbers
    [B, N] (in spreads) of the newest frame.
    """

    token_ids: np.ndarray
    weights: np.ndarray
    is_visual: np.ndarray
    lengths: np.ndarray
    frame_rows: np.ndarray
    action: np.ndarray
    v0: np.ndarray
    future: np.ndarray
    labels: np.ndarray
    numbers: np.ndarray


class SampleSet:
    """All samples of some shards, tokenised once; `advance` hears how many more are prepared."""

    def __init__(self, shards: list[Shard], config: TargetConfig, tokenizer: TargetTokenizer, grids: np.ndarray,
                 weights: WordWeights = WordWeights(), advance: Callable[[int], None] = lambda samples: None):
        self.config, self.tokenizer, self.word_weights = config, tokenizer, weights
        self.prompt: Prompt | None = None
        prompts, reasonings, rows, actions, v0s, futures, events = [], [], [], [], [], [], []
        first_frame = 0
        for shard in shards:
            xyz, rotation = planar_poses(shard.sample_history)
            fit = trajectory_to_action(config.action_space, xyz, rotation, *planar_poses(shard.sample_future))
            actions.append(fit.action)
            v0s.append(fit.v0)
            futures.append(shard.sample_future)
            for index, frame in enumerate(shard.sample_frame):
                prompts.append(self._prompt_ids(grids, xyz[index]))
                words = shard.words[index]
                reasonings.append(self._reasoning(words["text"], shard.sample_spans[index]))
                rows.append(first_frame + frame - np.arange(FRAMES_PER_CAMERA)[::-1])
                events.append((words["decision"], words["cause"]))
            first_frame += len(shard.scene)
            advance(len(shard.sample_frame))
        self.prompt_ids, self.frame_rows = np.stack(prompts), np.stack(rows)
        self.reasonings, self.actions = reasonings, np.concatenate(actions).astype(np.float32)
        self.v0s, self.futures = np.concatenate(v0s).astype(np.float32), np.concatenate(futures)
        self.scene_labels = shards[0].scene_labels
        self.labels = np.concatenate([shard.scene[shard.sample_frame] for shard in shards]).astype(np.int64)
        self.numbers = np.concatenate([frame_numbers(shard)[shard.sample_frame] for shard in shards])
        drawn = rare_event_weights(events) * manoeuvre_weights(self.futures)
        self._cumulative = np.cumsum(drawn)
        self._as_they_occur = drawn.mean() / drawn

    def __len__(self) -> int:
        return len(self.reasonings)

    def draw(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """[count] random sample numbers; rare decisions and causes are drawn more often, and so are samples with
        steering or braking."""
        return np.searchsorted(self._cumulative, rng.random(count) * self._cumulative[-1])

    def _prompt_ids(self, grids: np.ndarray, xyz: np.ndarray) -> np.ndarray:
        if self.prompt is None:
            self.prompt = build_prompt(self.config, self.tokenizer, grids, xyz)
            self._history_columns = np.flatnonzero(self.tokenizer.is_history_token(self.prompt.token_ids))
        ids = self.prompt.token_ids.copy()
        ids[self._history_columns] = self.tokenizer.history_tokens(xyz)
        return ids

    def _reasoning(self, text: str, spans: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Token ids including the two closing tokens, and a bool per token: whether it overlaps a visual span."""
        ids, offsets = self.tokenizer.encode_with_offsets(text)
        visual = [any(start < end_of_word and start_of_word < end for start, end in spans if start >= 0)
                  for start_of_word, end_of_word in offsets]
        closing = [self.tokenizer.cot_end, self.tokenizer.traj_future_start]
        return np.array([*ids, *closing]), np.array([*visual, False, False])

    def batch(self, indices: np.ndarray) -> Batch:
        longest = max(len(self.reasonings[i][0]) for i in indices)
        ids = np.full((len(indices), longest), self.tokenizer.cot_end)
        weights, is_visual = np.zeros((len(indices), longest), np.float32), np.zeros((len(indices), longest), bool)
        lengths = np.zeros(len(indices), np.int64)
        for row, index in enumerate(indices):
            tokens, visual = self.reasonings[index]
            lengths[row] = n = len(tokens)
            ids[row, :n], is_visual[row, :n] = tokens, visual
            weights[row, :n] = np.where(visual, self.word_weights.visual, self.word_weights.template)
            weights[row, n - 2:n] = self.word_weights.closing
            # what is drawn more often than it occurs weighs less here, or the model would decide it too often
            weights[row, 0] = self.word_weights.first * self._as_they_occur[index]
        return Batch(np.concatenate([self.prompt_ids[indices], ids], axis=1), weights, is_visual, lengths,
                     self.frame_rows[indices], self.actions[indices], self.v0s[indices], self.futures[indices],
                     self.labels[indices], self.numbers[indices])


def rare_event_weights(events: list[tuple[str, str]]) -> np.ndarray:
    """[N] weights of (decision, cause) pairs: 1/sqrt(number of occurrences), so that common ones do not fill the
    batches.

    All colours of a lamp count as one cause: were yellow drawn more often than it occurs, lamps that are hard to see
    would be taken for yellow.
    """
    events = [(decision, LAMP.sub("lamp", cause)) for decision, cause in events]
    counts = Counter(events)
    return np.array([counts[event] ** -0.5 for event in events])


def manoeuvre_weights(futures: np.ndarray) -> np.ndarray:
    """[N] weights of the expert's futures [N, 64, 3] x, y, yaw (m, m, rad in the ego frame at t0): 1 for going
    straight on at constant speed, up to 4 in a sharp bend, up to 3 for hard braking, up to 6 for both.

    Most of a drive is neither; trained on drives as they come, a model steers too little and brakes too late.
    """
    curvature = futures[:, 9, 2] / np.maximum(futures[:, 9, 0], 1.0)  # 1/m, mean of the first second
    speed = np.linalg.norm(np.diff(futures[:, :21, :2], axis=1), axis=-1) / WAYPOINT_STEP_S
    lost = np.maximum(speed[:, 0] - speed[:, -1], 0.0)
    return 1.0 + np.minimum(np.abs(curvature) / STEERING_CURVATURE, 3.0) + np.minimum(lost / BRAKING_MPS, 2.0)
