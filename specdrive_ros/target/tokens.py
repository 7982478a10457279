"""Text, special tokens and trajectory bins as ids.

The release names a base tokenizer; the reasoning model adds `<i0>` … (future bins, then history bins) and the special
tokens below, in this order. A tokenizer that already has them is used as it is; either way the ids must be those that
the checkpoint's config expects. Knows neither images nor networks.
"""

import hashlib
import json
import os
from functools import cached_property
from pathlib import Path

import numpy as np
from tokenizers import AddedToken, Tokenizer

from specdrive_ros.errors import InputError
from specdrive_ros.target.config import FutureTokenizerConfig, HistoryTokenizerConfig, TargetConfig

SPECIAL_TOKENS = (
    "prompt_start",
    "prompt_end",
    "image_start",
    "image_pre_tkn",
    "image_end",
    "traj_history_start",
    "traj_history_pre_tkn",
    "traj_history_end",
    "cot_start",
    "cot_end",
    "meta_action_start",
    "meta_action_end",
    "traj_future_start",
    "traj_future_pre_tkn",
    "traj_future_end",
    "traj_history",
    "traj_future",
    "image_pad",
    "vectorized_wm",
    "vectorized_wm_start",
    "vectorized_wm_end",
    "vectorized_wm_pre_tkn",
    "route_start",
    "route_pad",
    "route_end",
    "question_start",
    "question_end",
    "answer_start",
    "answer_end",
)
TRAJECTORY_TOKENS = ("history", "future", "history_start", "future_start", "history_end", "future_end")
BASE_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
)


class TargetTokenizer:
    """The target's vocabulary.

    ids:        special token name (`cot_end`, `traj_future_start`, `image_pad` …) -> id
    base_ids:   token of the base vocabulary (`<|im_end|>` …) -> id
    size:       number of entries in the whole vocabulary
    base_size:  number of entries before `<i0>`
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        trajectory_tokens: int = 4000,
        history: HistoryTokenizerConfig | None = None,
    ):
        history = history or HistoryTokenizerConfig()
        if tokenizer.token_to_id("<i0>") is None:
            tokenizer = extend_base_tokenizer(tokenizer, trajectory_tokens)
        self.tokenizer = tokenizer
        self.history = history
        self.trajectory_tokens = trajectory_tokens
        self.ids = {name: self._id(special_token(name)) for name in SPECIAL_TOKENS}
        self.base_ids = {token: self._id(token) for token in BASE_TOKENS}
        self.base_size = self._id("<i0>")
        self.size = tokenizer.get_vocab_size(with_added_tokens=True)
        self.history_start = self.base_size + trajectory_tokens - history.num_bins

    @classmethod
    def load(cls, source: TargetConfig | str | Path) -> "TargetTokenizer":
        """The tokenizer of a checkpoint (its config or folder): the one beside the weights, else the backbone's.

        Raises `InputError` naming the file unless it is a tokenizer whose ids are those of the config.
        """
        config = source if isinstance(source, TargetConfig) else TargetConfig.load(source)
        path = find_tokenizer(config.folder, config.backbone_folder)
        library = read_tokenizer(path)
        try:
            tokenizer = cls(library, config.vocabulary.traj_vocab_size, config.history)
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
        tokenizer.check(config, path)
        return tokenizer

    def encode(self, text: str) -> list[int]:
        """Ids of a text; special tokens in it are recognised, none are added."""
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def encode_with_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Ids of a text, and for each the character range (start, end) it stands for."""
        encoding = self.tokenizer.encode(text, add_special_tokens=False)
        return encoding.ids, encoding.offsets

    def decode(self, token_ids) -> str:
        """Text for ids, special tokens included."""
        return self.tokenizer.decode([int(token) for token in token_ids], skip_special_tokens=False)

    def reasoning(self, token_ids) -> str:
        """The chain of causation in generated ids: the text before `<|cot_end|>` or the trajectory."""
        token_ids = [int(token) for token in token_ids]
        for end in ("cot_end", "traj_future_start"):
            if self.ids[end] in token_ids:
                token_ids = token_ids[: token_ids.index(self.ids[end])]
        return self.tokenizer.decode(token_ids, skip_special_tokens=True).strip()

    @cached_property
    def fingerprint(self) -> str:
        """16 hex digits that identify a vocabulary."""
        vocabulary = sorted(self.tokenizer.get_vocab(with_added_tokens=True).items())
        return hashlib.sha256(json.dumps(vocabulary).encode()).hexdigest()[:16]

    @property
    def cot_end(self) -> int:
        return self.ids["cot_end"]

    @property
    def traj_future_start(self) -> int:
        return self.ids["traj_future_start"]

    @property
    def trajectory_ids(self) -> dict[str, int]:
        """Ids of the trajectory placeholders and their brackets, by the names in `config.json`."""
        return {name: self.ids[f"traj_{name}"] for name in TRAJECTORY_TOKENS}

    def trajectory_mask(self) -> np.ndarray:
        """[size] bool, True at the trajectory bins: never written while reasoning, their logits are -inf."""
        mask = np.zeros(self.size, bool)
        mask[self.base_size : self.base_size + self.trajectory_tokens] = True
        return mask

    def history_tokens(self, xyz: np.ndarray) -> np.ndarray:
        """Ids [..., 48] of history positions [..., 16, 3] in metres."""
        return history_bins(xyz, self.history) + self.history_start

    def is_history_token(self, token_ids: np.ndarray) -> np.ndarray:
        """bool, True at ids of history bins."""
        offset = np.asarray(token_ids) - self.history_start
        return (offset >= 0) & (offset < self.history.num_bins)

    def check(self, config: TargetConfig, where: Path) -> None:
        """Raises `InputError` unless the ids are those that the checkpoint was trained with."""
        expected = config.vocabulary.traj_token_start_idx
        if self.base_size != expected:
            raise InputError(
                f"{where}: <i0> has id {self.base_size}, config.json has traj_token_start_idx {expected}; "
                "this is not the tokenizer the checkpoint was made with"
            )
        highest = max(self.tokenizer.get_vocab(with_added_tokens=True).values())
        if highest >= config.text.vocab_size:
            raise InputError(
                f"{where}: ids up to {highest}, config.json has vocab_size {config.text.vocab_size}; "
                "this is not the tokenizer the checkpoint was made with"
            )

    def save(self, path: str | Path) -> None:
        self.tokenizer.save(str(path))

    def _id(self, token: str) -> int:
        token_id = self.tokenizer.token_to_id(token)
        if token_id is None:
            raise InputError(f"tokenizer has no {token!r}; it must be the backbone's, extended or not")
        return token_id


def special_token(name: str) -> str:
    return f"<|{name}|>"


def extend_base_tokenizer(base: Tokenizer, trajectory_tokens: int = 4000) -> Tokenizer:
    """A copy of the backbone's tokenizer with `<i0>` … and the special tokens appended that it lacks."""
    extended = Tokenizer.from_str(base.to_str())
    extended.add_tokens([AddedToken(f"<i{index}>", normalized=True) for index in range(trajectory_tokens)])
    extended.add_special_tokens(
        [AddedToken(special_token(name), normalized=False, special=True) for name in SPECIAL_TOKENS]
    )
    return extended


def find_tokenizer(folder: Path, backbone_folder: Path) -> Path:
    """Raises `InputError` where neither folder has one."""
    for candidate in (folder / "tokenizer.json", backbone_folder / "tokenizer.json"):
        if os.path.lexists(candidate):  # a folder or a dangling link, too: the other's may be another vocabulary
            return candidate
    raise InputError(f"no tokenizer.json in {folder} nor in {backbone_folder}; put the backbone's there")


def read_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer in a file, for whole texts: without truncation and padding that the file may ask for.

    Raises `InputError` for a file that has none.
    """
    if not path.is_file():  # reading a pipe would wait forever
        raise InputError(f"{path} is no file; it must be a tokenizer.json of the tokenizers library")
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises plain Exception for every fault in the file
        raise InputError(
            f"{path} is no tokenizer ({error}); it must be a tokenizer.json of the tokenizers library"
        ) from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def history_bins(xyz: np.ndarray, config: HistoryTokenizerConfig) -> np.ndarray:
    """Bins [..., 3 * poses] of the steps between positions [..., poses, 3] in metres, the first from the origin.

    Float32 like the reference, so that a value on the border of two bins falls on the same side.
    """
    xyz = np.asarray(xyz, np.float32)
    low, high = np.float32(config.ego_xyz_min), np.float32(config.ego_xyz_max)
    steps = np.diff(xyz, axis=-2, prepend=np.zeros_like(xyz[..., :1, :]))
    return _bins(steps, low, high, config.num_bins).reshape(*xyz.shape[:-2], -1)


def history_positions(bins: np.ndarray, config: HistoryTokenizerConfig) -> np.ndarray:
    """Positions [..., poses, 3] float32, metres, that bins [..., 3 * poses] represent."""
    low, high = np.float32(config.ego_xyz_min), np.float32(config.ego_xyz_max)
    steps = _bin_centres(np.reshape(bins, (*np.shape(bins)[:-1], -1, 3)), low, high, config.num_bins)
    return np.cumsum(steps, axis=-2, dtype=np.float32)


def future_bins(action: np.ndarray, config: FutureTokenizerConfig) -> np.ndarray:
    """Bins [..., 2 * waypoints] of an action [..., waypoints, 2] in the network's units."""
    action = np.asarray(action, np.float32)
    bins = _bins(action, np.float32(config.dims_min), np.float32(config.dims_max), config.num_bins)
    return bins.reshape(*action.shape[:-2], -1)


def future_action(bins: np.ndarray, config: FutureTokenizerConfig) -> np.ndarray:
    """The action [..., waypoints, 2] float32 that bins [..., 2 * waypoints] represent."""
    pairs = np.reshape(bins, (*np.shape(bins)[:-1], -1, 2))
    return _bin_centres(pairs, np.float32(config.dims_min), np.float32(config.dims_max), config.num_bins)


def _bins(values: np.ndarray, low: np.ndarray, high: np.ndarray, count: int) -> np.ndarray:
    return np.clip(np.round((values - low) / (high - low) * np.float32(count - 1)), 0, count - 1).astype(
        np.int64
    )


def _bin_centres(bins: np.ndarray, low: np.ndarray, high: np.ndarray, count: int) -> np.ndarray:
    return bins.astype(np.float32) / np.float32(count - 1) * (high - low) + low
