"""Features of the frozen vision encoder for the frames of driving scenes, each frame encoded on first use."""

import hashlib
import shutil
from pathlib import Path

import numpy as np
import torch

from specdrive_ros.target.network import AlpamayoTarget
from specdrive_ros.target.pixels import patchify
from specdrive_ros.training.scenes import Shard


def frame_patches(frames: np.ndarray, target: AlpamayoTarget) -> tuple[torch.Tensor, torch.Tensor]:
    """uint8 [N, H, W, 3] -> patches [N * P, C] and grid [N, 3]."""
    patches, grid = patchify(frames, target.config)
    return torch.from_numpy(np.asarray(patches)), torch.from_numpy(np.asarray(grid))


def device_of(network: torch.nn.Module) -> torch.device:
    return next(network.parameters()).device


def frame_levels(target: AlpamayoTarget, patches: torch.Tensor, grid: torch.Tensor) -> list[torch.Tensor]:
    """What the text model reads of N frames: merged tokens, then each deepstack level, each [N, V, E]."""
    encoded = target.encode_images(patches, grid)
    return [level.unflatten(0, (len(grid), -1)) for level in (encoded.embeddings, *encoded.deepstack)]


class FrameFeatures:
    """Features of all frames of some shards, kept as float16.

    A short run never encodes frames it does not draw; a long one encodes every frame once.

    folder: where features are kept for later runs with the same frames and vision; those of another vision are
    deleted. Without a folder, or if the disk has too little room, they are kept in host memory.
    """

    def __init__(self, target: AlpamayoTarget, shards: list[Shard], folder: Path | None = None):
        self.target, self.shards, self.folder = target, shards, folder
        self.starts = np.cumsum([0] + [len(shard.scene) for shard in shards])
        self.known = np.zeros(self.starts[-1], bool)
        self.features: torch.Tensor | None = None
        if folder is not None:
            self._empty_of_others()
            self._open(self._values_of_a_frame())

    def _empty_of_others(self) -> None:
        """Deletes features of another vision or other frames from the folder."""
        key = self._key()
        self.folder.mkdir(parents=True, exist_ok=True)
        for path in self.folder.glob("*.npy"):
            if not path.name.startswith(key):
                path.unlink()
        self._prefix = self.folder / key

    def _key(self) -> str:
        digest = hashlib.sha256()
        for name, value in self.target.vlm.model.visual.state_dict().items():
            digest.update(name.encode() + value.cpu().contiguous().numpy().tobytes())
        for shard in self.shards:
            digest.update(f"{shard.path.name} {shard.path.stat().st_size} {len(shard.scene)}".encode())
        return digest.hexdigest()[:16]

    def _values_of_a_frame(self) -> tuple[int, ...]:
        """[1 + K, V, E]"""
        levels = 1 + len(self.target.config.vision.deepstack_visual_indexes)
        patches, _ = frame_patches(self.shards[0].frames(0, 1), self.target)
        tokens = len(patches) // self.target.config.vision.spatial_merge_size**2
        return levels, tokens, self.target.config.vision.out_hidden_size

    def _open(self, values: tuple[int, ...]) -> None:
        paths = [self._prefix.with_name(f"{self._prefix.name}-{part}.npy") for part in ("features", "known")]
        needed = 2 * len(self.known) * int(np.prod(values)) + len(self.known)
        if not all(path.exists() for path in paths) and shutil.disk_usage(self.folder).free < 1.1 * needed:
            return
        shapes = (np.float16, (len(self.known), *values)), (bool, (len(self.known),))
        try:
            features, self.known = (_kept(path, "r+", *shape) for path, shape in zip(paths, shapes))
        except (OSError, EOFError, ValueError):  # not there yet, or a killed run left half a file
            features, self.known = (_kept(path, "w+", *shape) for path, shape in zip(paths, shapes))
        self.features = torch.from_numpy(features)

    def __getitem__(self, rows: np.ndarray) -> torch.Tensor:
        """rows: frame numbers over all shards, any shape -> float16 [*rows.shape, 1 + K, V, E]."""
        missing = np.unique(rows[~self.known[rows]])
        if len(missing):
            self._encode(missing)
        return self.features[torch.from_numpy(rows)]

    def once(self, rows: np.ndarray) -> torch.Tensor:
        """The same for frames that will not be needed again: nothing is kept."""
        asked, places = np.unique(rows, return_inverse=True)
        return self._levels(asked)[torch.from_numpy(places.reshape(rows.shape))]

    def _encode(self, rows: np.ndarray) -> None:
        levels = self._levels(rows)
        if self.features is None:
            self.features = torch.zeros(len(self.known), *levels.shape[1:], dtype=torch.float16)
        self.features[torch.from_numpy(rows)] = levels
        self.known[rows] = True

    @torch.no_grad()
    def _levels(self, rows: np.ndarray) -> torch.Tensor:
        """rows [N] -> float16 [N, 1 + K, V, E]."""
        owners = np.searchsorted(self.starts, rows, "right") - 1
        frames = np.concatenate([self.shards[owner].frames(row - self.starts[owner], row - self.starts[owner] + 1)
                                 for owner, row in zip(owners.tolist(), rows.tolist())])
        patches, grid = (tensor.to(device_of(self.target)) for tensor in frame_patches(frames, self.target))
        return torch.stack(frame_levels(self.target, patches, grid), dim=1).half().cpu()


def _kept(path: Path, mode: str, dtype: type, shape: tuple[int, ...]) -> np.ndarray:
    """An array in a file, as it was left (r+) or all zero (w+); zeros take no disk space until they are written.

    Raises OSError, EOFError or ValueError if the file is missing or incomplete.
    """
    if mode == "r+":
        found = np.load(path, mmap_mode="r")  # opening for writing would fill up a file that is too short with zeros
        if found.dtype != dtype or found.shape != shape:
            raise ValueError(f"{path}: {found.dtype} {found.shape}")
    return np.lib.format.open_memmap(path, mode, dtype, shape)
