"""Plans of a flow-matching target after given answers, many per batch: the basis of action-aware RL's rewards.

A prompt goes through the target once; its keys and values are kept for repeated samples. Answers of different lengths
are padded at the end, where neither their own tokens nor the waypoints see the padding. PyTorch.
"""

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
import torch

from specdrive_ros.shapes import FLOW_STEPS
from specdrive_ros.target.network import AlpamayoTarget, KeyValues
from specdrive_ros.target.unicycle import action_to_trajectory
from specdrive_ros.training.aarl_reward import Request
from specdrive_ros.training.frame_features import FrameFeatures
from specdrive_ros.training.samples import SampleSet


class FlowTrajectories:
    """`TrajectorySource` over samples. chosen: [n] sample index of number k; noise: [W, 2] that the head starts from;
    remembered: number of prompts whose keys and values are kept."""

    def __init__(
        self,
        target: AlpamayoTarget,
        samples: SampleSet,
        frames: FrameFeatures,
        chosen: np.ndarray,
        noise: np.ndarray,
        *,
        steps: int = FLOW_STEPS,
        remembered: int = 512,
    ):
        self.target, self.samples, self.frames, self.chosen = target, samples, frames, chosen
        self.noise, self.steps, self.remembered = torch.from_numpy(noise), steps, remembered
        self._prompts: OrderedDict[int, KeyValues] = OrderedDict()

    @torch.no_grad()
    def trajectories(self, requests: Sequence[Request]) -> np.ndarray:
        numbers, texts = [number for number, _ in requests], [text for _, text in requests]
        past, lengths = self._past(numbers), torch.tensor([len(text) for text in texts])
        prompt, delta = past[0][0].shape[2], int(self.samples.prompt.rope_delta)
        ids = torch.nn.utils.rnn.pad_sequence([torch.tensor(text) for text in texts], batch_first=True)
        slots = prompt + torch.arange(ids.shape[1])
        written = self.target.text_forward(self.target.embed(ids), (slots + delta).expand(3, len(ids), -1), past=past)
        visible = torch.arange(prompt + ids.shape[1]) < (prompt + lengths)[:, None]
        waypoints = (prompt + lengths + delta)[:, None] + torch.arange(len(self.noise))
        action = self.target.sample(
            self.noise.expand(len(ids), -1, -1), written.key_values, waypoints.expand(3, -1, -1), visible, self.steps
        )
        v0s = self.samples.v0s[self.chosen[numbers]]
        plan = action_to_trajectory(self.target.config.action_space, action.numpy(), v0s)
        return np.concatenate([plan.xyz[..., :2], plan.yaw[..., None]], axis=-1)

    def _past(self, numbers: list[int]) -> KeyValues:
        """Keys and values of these samples' prompts, [requests, H, S, D] per layer."""
        per_sample = [self._prompt(number) for number in numbers]
        return [tuple(torch.stack(part) for part in zip(*layer)) for layer in zip(*per_sample)]

    def _prompt(self, number: int) -> KeyValues:
        """Keys and values of one prompt, [H, S, D] per layer."""
        found = self._prompts.pop(number, None) or self._prefill(number)
        self._prompts[number] = found
        if len(self._prompts) > self.remembered:
            self._prompts.popitem(last=False)
        return found

    def _prefill(self, number: int) -> KeyValues:
        """One sample at a time: in a batch its last digits would depend on the others, and a resumed run batches
        differently."""
        index, prompt = self.chosen[[number]], self.samples.prompt
        ids = torch.from_numpy(self.samples.prompt_ids[index])
        levels = self.frames[self.samples.frame_rows[index]].float().permute(2, 0, 1, 3, 4).flatten(1, 3)
        image_mask = torch.zeros(ids.shape, dtype=torch.bool)
        image_mask[:, torch.from_numpy(np.asarray(prompt.image_rows))] = True
        positions = torch.from_numpy(np.asarray(prompt.position_ids))[:, None].expand(3, *ids.shape)
        output = self.target.text_forward(
            self.target.embed_prompt(ids, image_mask, levels[0]),
            positions,
            deepstack=list(levels[1:]),
            image_mask=image_mask,
        )
        return [(keys[0], values[0]) for keys, values in output.key_values]
