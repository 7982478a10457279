"""Camera frames to image tokens, each frame once.

A frame's features do not depend on the other frames, and three of four frames were there a cycle ago; so
features are kept for one cycle. A frame counts as seen only if camera, stamp and every pixel are the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from specdrive_ros.errors import InputError
from specdrive_ros.runtime.networks import TargetNetworks, VisionFeatures
from specdrive_ros.target.pixels import patchify


@dataclass(frozen=True)
class _EncodedFrame:
    """frame: uint8 [H, W, 3]; grid: [3]; embeddings [V, E] and deepstack [K, V, E] of this frame."""

    frame: np.ndarray
    grid: np.ndarray
    embeddings: np.ndarray
    deepstack: np.ndarray


class FrameEncoder:
    """cameras: names in the order of the prompt. keep: reuse the previous cycle's features."""

    def __init__(self, networks: TargetNetworks, cameras: Sequence[str], *, keep: bool = True):
        self.networks, self.cameras, self.keep = networks, tuple(cameras), keep
        self.encoded_frames = 0  # how many frames have gone through the network
        self._known: dict[tuple[str, int], _EncodedFrame] = {}

    def forget(self) -> None:
        """The clock or the scene has changed: no frame is known."""
        self._known = {}

    def encode(
        self, frames: Mapping[str, np.ndarray], stamps_ns: Mapping[str, np.ndarray]
    ) -> tuple[VisionFeatures, np.ndarray]:
        """frames: camera -> uint8 [N, H, W, 3]; stamps_ns: camera -> [N].

        Returns the features of all frames, camera by camera, and their grids [images, 3].
        """
        encoded = []
        for camera in self.cameras:
            if camera not in frames:
                raise InputError(f"camera {camera!r}: not in the observation, which has {sorted(frames)}")
            encoded += self._encode_camera(camera, frames[camera], stamps_ns[camera])
        keys = [(camera, int(stamp)) for camera in self.cameras for stamp in stamps_ns[camera]]
        self._known = dict(zip(keys, encoded, strict=True)) if self.keep else {}
        features = VisionFeatures(
            np.concatenate([each.embeddings for each in encoded]),
            np.concatenate([each.deepstack for each in encoded], axis=1),
        )
        return features, np.stack([each.grid for each in encoded])

    def _encode_camera(self, camera: str, frames: np.ndarray, stamps_ns: np.ndarray) -> list[_EncodedFrame]:
        known = [
            self._recall(camera, int(stamp), frame) for frame, stamp in zip(frames, stamps_ns, strict=True)
        ]
        new = [index for index, each in enumerate(known) if each is None]
        if new:
            for index, each in zip(new, self._encode_new(frames[new]), strict=True):
                known[index] = each
        return known

    def _recall(self, camera: str, stamp_ns: int, frame: np.ndarray) -> _EncodedFrame | None:
        known = self._known.get((camera, stamp_ns))
        return known if known is not None and np.array_equal(known.frame, frame) else None

    def _encode_new(self, frames: np.ndarray) -> list[_EncodedFrame]:
        patches, grids = patchify(frames, self.networks.config)
        features = self.networks.encode_images(patches, grids)
        self.encoded_frames += len(frames)
        embeddings = np.split(features.embeddings, len(frames))
        deepstack = np.split(features.deepstack, len(frames), axis=1)
        return [_EncodedFrame(*each) for each in zip(frames, grids, embeddings, deepstack, strict=True)]
