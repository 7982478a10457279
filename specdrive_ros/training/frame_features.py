"""What the frozen vision encoder makes of the frames of driving scenes, each encoded when first asked for."""

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
    """What the text model will read of N frames: merged tokens, then each deepstack level, each [N, V, E]."""
    encoded = target.encode_images(patches, grid)
    return [level.unflatten(0, (len(grid), -1)) for level in (encoded.embeddings, *encoded.deepstack)]


class FrameFeatures:
    """Features of all frames of some shards, kept in host memory as float16.

    A short run never encodes what it does not draw; a long one encodes every frame once.
    """

    def __init__(self, target: AlpamayoTarget, shards: list[Shard]):
        self.target, self.shards = target, shards
        self.starts = np.cumsum([0] + [len(shard.scene) for shard in shards])
        self.known = np.zeros(self.starts[-1], bool)
        self.features: torch.Tensor | None = None

    def __getitem__(self, rows: np.ndarray) -> torch.Tensor:
        """rows: frame numbers over all shards, any shape -> float16 [*rows.shape, 1 + K, V, E]."""
        missing = np.unique(rows[~self.known[rows]])
        if len(missing):
            self._encode(missing)
        return self.features[torch.from_numpy(rows)]

    def once(self, rows: np.ndarray) -> torch.Tensor:
        """The same of frames that will not be asked for again: nothing is kept of them."""
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
