"""A golden folder, and the target's passes that follow from its inputs.

Reads `checkpoint/`, `backbone/`, the arrays and `meta.json`; runs every pass once, whichever stages need it. Knows
neither the expected values nor the tolerances.
"""

import zipfile
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from specdrive_ros.errors import InputError
from specdrive_ros.target.checkpoint import load_target
from specdrive_ros.target.network import KeyValues, TextOutput, VisionOutput, flow_times
from specdrive_ros.target.prompt import Prompt, build_prompt, prompt_text
from specdrive_ros.target.released_layout import read_json
from specdrive_ros.target.rope import text_positions
from specdrive_ros.target.tokens import TargetTokenizer


@dataclass(frozen=True)
class Greedy:
    """N steps of plain greedy decoding: tokens [N], logits [N, vocabulary], hidden [N, E], and the keys and values of
    the prompt and the tokens."""

    tokens: np.ndarray
    logits: np.ndarray
    hidden: np.ndarray
    key_values: KeyValues


class Reference:
    """A golden folder and this implementation's results for its inputs, each pass computed once."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.target = load_target(folder / "checkpoint").requires_grad_(False)
        self.config = self.target.config
        self.tokenizer = TargetTokenizer.load(self.config)
        self.meta = read_json(folder / "meta.json", "the settings of the reference folder")
        self.inputs = self.arrays("inputs")

    def has(self, file: str) -> bool:
        return (self.folder / f"{file}.npz").is_file()

    def arrays(self, file: str) -> dict[str, np.ndarray]:
        path = self.folder / f"{file}.npz"
        try:
            with np.load(path, allow_pickle=False) as archive:
                return {name: archive[name] for name in archive.files}
        except (OSError, ValueError, zipfile.BadZipFile) as error:
            raise InputError(
                f"{path} cannot be read ({error}); it must be an npz archive of plain arrays"
            ) from None

    def special_token_ids(self) -> tuple[np.ndarray, np.ndarray]:
        """Expected and our ids of every special, placeholder and base token, in the file's order."""
        listed = read_json(self.folder / "special_tokens.json", "the ids of the reference folder")
        expected = [entry["id"] for entry in listed["special_tokens"].values()]
        ours = [self.tokenizer.ids.get(name, -1) for name in listed["special_tokens"]]
        expected += [listed["traj_token_ids"][name] for name in self.tokenizer.trajectory_ids]
        ours += list(self.tokenizer.trajectory_ids.values())
        expected += [listed["traj_token_start_idx"], listed["history_token_start_idx"], listed["vocab_size"]]
        ours += [self.tokenizer.base_size, self.tokenizer.history_start, self.tokenizer.size]
        return np.array(expected), np.array(ours)

    @property
    def frames(self) -> np.ndarray:
        """[images, H, W, 3] uint8, camera by camera."""
        images = self.inputs["images"]
        return np.moveaxis(images.reshape(-1, *images.shape[2:]), 1, -1)

    @property
    def history(self) -> tuple[np.ndarray, np.ndarray]:
        """Positions [poses, 3] (m) and rotations [poses, 3, 3] in the ego frame at t0."""
        return self.inputs["ego_history_xyz"][0, 0], self.inputs["ego_history_rot"][0, 0]

    @property
    def prompt_text(self) -> str:
        return prompt_text(len(self.frames), self.config.vocabulary.tokens_per_history_traj)

    @cached_property
    def prompt(self) -> Prompt:
        return build_prompt(self.config, self.tokenizer, self.inputs["image_grid_thw"], self.history[0])

    @property
    def prompt_length(self) -> int:
        return len(self.prompt.token_ids)

    @cached_property
    def vision(self) -> VisionOutput:
        return self.target.encode_images(
            torch.from_numpy(self.inputs["pixel_values"]), self.inputs["image_grid_thw"]
        )

    @cached_property
    def prompt_embeddings(self) -> Tensor:
        ids = torch.from_numpy(self.prompt.token_ids)[None]
        return self.target.embed_prompt(ids, self._image_mask, self.vision.embeddings)

    @cached_property
    def prefill(self) -> TextOutput:
        positions = torch.from_numpy(self.prompt.position_ids)[:, None]
        with _outputs_of(self.target.language_model.layers) as self.layer_outputs:
            return self.target.text_forward(
                self.prompt_embeddings,
                positions,
                deepstack=self.vision.deepstack,
                image_mask=self._image_mask,
            )

    @property
    def _image_mask(self) -> Tensor:
        return torch.from_numpy(self.prompt.token_ids == self.tokenizer.ids["image_pad"])[None]

    @cached_property
    def greedy(self) -> Greedy:
        """Greedy decoding with as many steps as the reference took."""
        if self.has("expected_greedy"):
            return self._decode_greedily(len(self.arrays("expected_greedy")["tokens"]))
        return self._decode_greedily(int(self.meta["settings"]["max_new_tokens"]))

    def _decode_greedily(self, steps: int) -> Greedy:
        hidden, key_values = self.prefill.hidden[:, -1:], self.prefill.key_values
        tokens, logits, states = [], [], []
        for _ in range(steps):
            states.append(hidden[0, -1])
            logits.append(self.target.logits(states[-1]))
            tokens.append(int(np.argmax(self.mask_trajectory(logits[-1].numpy()))))
            passed = self.extend(torch.tensor([[tokens[-1]]]), key_values)
            hidden, key_values = passed.hidden, passed.key_values
        return Greedy(np.array(tokens), torch.stack(logits).numpy(), torch.stack(states).numpy(), key_values)

    def extend(self, token_ids: Tensor, past: KeyValues) -> TextOutput:
        """The pass over tokens [B, T] that follow the cached ones."""
        positions = text_positions(past[0][0].shape[2], token_ids.shape[1], self.prompt.rope_delta)
        positions = torch.from_numpy(positions)[:, None].expand(3, len(token_ids), -1)
        return self.target.text_forward(self.target.embed(token_ids), positions, past=past)

    def mask_trajectory(self, logits: np.ndarray) -> np.ndarray:
        forbidden = np.zeros(logits.shape[-1], bool)
        forbidden[: self.tokenizer.size] = self.tokenizer.trajectory_mask()
        return np.where(forbidden, -np.inf, logits)

    def stopped_tokens(self, limit: int | None = None) -> np.ndarray:
        """The greedy tokens that the reference's stop rule keeps: up to one past `<|traj_future_start|>`, to the end
        of text, or to `limit`."""
        tokens = self.greedy.tokens
        ends = [
            np.flatnonzero(tokens == self.tokenizer.traj_future_start)[:1] + 2,
            np.flatnonzero(tokens == self.tokenizer.base_ids["<|im_end|>"])[:1] + 1,
            [len(tokens) if limit is None else limit],
        ]
        return tokens[: int(min(np.concatenate(ends)))]

    def greedy_run(self, limit: int | None = None) -> "Run":
        """The greedy tokens up to where they stop, ready for the action expert."""
        sequence = np.concatenate([self.prompt.token_ids, self.stopped_tokens(limit)])
        return Run(self, sequence[None], self.greedy.key_values)


class Run:
    """Generated sequences [B, prompt + N], handed over to the action expert as in the reference.

    The expert reads the cache of all tokens but the last; from the token after `<|traj_future_start|>` on, the cache
    is hidden. Without that token everything is visible and one position is skipped.
    """

    def __init__(self, reference: Reference, sequences: np.ndarray, key_values: KeyValues):
        self.reference, self.raw = reference, sequences
        self.cache_length = sequences.shape[1] - 1
        self.key_values = first_slots(key_values, self.cache_length)
        start = sequences == reference.tokenizer.traj_future_start
        self.has_start = start.any(axis=1)
        self.offset = np.where(self.has_start, start.argmax(axis=1) + 1, sequences.shape[1])
        later = np.arange(sequences.shape[1]) >= self.offset[:, None]
        self.sequences = np.where(later, reference.tokenizer.base_ids["<|endoftext|>"], sequences)
        self.visible = torch.from_numpy(~later[:, : self.cache_length])
        waypoints = reference.config.action_space.n_waypoints
        first = [
            text_positions(int(offset), waypoints, reference.prompt.rope_delta) for offset in self.offset
        ]
        self.expert_positions = torch.from_numpy(np.stack(first, axis=1))

    def sample_path(self, noise: np.ndarray) -> Tensor:
        """[steps + 1, B, waypoints, 2] from the noise to the normalised action."""
        states, _ = self.reference.target.sample_path(torch.from_numpy(noise), *self._given)
        return torch.stack(states)

    def velocities_at(self, states: np.ndarray) -> Tensor:
        """Velocities at given states [steps + 1, B, waypoints, 2], so that errors do not accumulate along the path."""
        times = flow_times(len(states) - 1)[:-1]
        return torch.stack([self.velocity(x, time) for x, time in zip(torch.from_numpy(states), times)])

    def velocity(self, x: Tensor, time: float) -> Tensor:
        return self.reference.target.velocity(x, _flow_time(x, time), *self._given)

    def expert_pass(self, x: Tensor, time: float) -> tuple[Tensor, list[Tensor], Tensor]:
        """The expert's input, the output of each of its layers, and its final output."""
        target = self.reference.target
        entering = target.action_in_proj(x, _flow_time(x, time))
        with _outputs_of(target.expert.layers) as layers:
            leaving = target.expert_forward(entering, *self._given)
        return entering, layers, leaving

    @property
    def _given(self) -> tuple[KeyValues, Tensor, Tensor]:
        return self.key_values, self.expert_positions, self.visible


def _flow_time(x: Tensor, time: float) -> Tensor:
    """[B, 1, 1]: the same flow time for every row of x."""
    return torch.full((len(x), 1, 1), float(time))


def first_slots(key_values: KeyValues, slots: int) -> KeyValues:
    """The cache as it was after `slots` tokens."""
    return [(keys[:, :, :slots], values[:, :, :slots]) for keys, values in key_values]


@contextmanager
def _outputs_of(modules: nn.ModuleList):
    """Collects what each of the modules returns, in the order in which they run."""
    outputs: list[Tensor] = []
    hooks = [module.register_forward_hook(lambda _, __, output: outputs.append(output)) for module in modules]
    try:
        yield outputs
    finally:
        for hook in hooks:
            hook.remove()
