"""Camera frames to image tokens, each frame once.

A frame's features do not depend on the other frames, and three of four frames were there in the previous cycle, so
features are kept for one cycle. A frame is recognised only if camera, stamp and every pixel are the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from specdrive_ros.errors import InputError
from specdrive_ros.runtime.networks import TargetNetworks, VisionFeatures
from specdrive_ros.target.pixels import patchify

_Key = tuple[str, int]  # camera and stamp


@dataclass(frozen=True)
class EncodedFrame:
    """frame: uint8 [H, W, 3]; grid: [3]; features: of this frame, kept wherever the runtime keeps them."""

    frame: np.ndarray
    grid: np.ndarray
    features: VisionFeatures


class FrameEncoder:
    """cameras: names in the order of the prompt. keep: whether to reuse the previous cycle's features.

    in_step: whether the latest observation is one frame after the one before: only the newest frame of each camera was
    new.
    """

    def __init__(self, networks: TargetNetworks, cameras: Sequence[str], *, keep: bool = True):
        self.networks, self.cameras, self.keep = networks, tuple(cameras), keep
        self.encoded_frames = 0  # number of frames encoded by the network
        self.in_step = False
        self._known: dict[_Key, EncodedFrame] = {}

    def forget(self) -> None:
        """Forgets all frames, because the clock or the scene has changed."""
        self._known, self.in_step = {}, False

    def encode(
        self, frames: Mapping[str, np.ndarray], stamps_ns: Mapping[str, np.ndarray]
    ) -> list[EncodedFrame]:
        """frames: camera -> uint8 [N, H, W, 3]; stamps_ns: camera -> [N].

        Returns all frames, camera by camera; a frame that was known is the same object as before. Raises InputError if
        a camera is missing.
        """
        keys, pictures = self._in_order(frames, stamps_ns)
        encoded = [self._recall(key, frame) for key, frame in zip(keys, pictures, strict=True)]
        new = [index for index, each in enumerate(encoded) if each is None]
        newest = np.cumsum([len(frames[camera]) for camera in self.cameras]) - 1
        self.in_step = new == newest.tolist()
        if new:
            for index, each in zip(new, self._encode_new([pictures[index] for index in new]), strict=True):
                encoded[index] = each
        self._known = dict(zip(keys, encoded, strict=True)) if self.keep else {}
        return encoded

    def _in_order(self, frames, stamps_ns) -> tuple[list[_Key], list[np.ndarray]]:
        """Keys and images of all frames, camera by camera."""
        keys, pictures = [], []
        for camera in self.cameras:
            if camera not in frames:
                raise InputError(f"camera {camera!r}: not in the observation, which has {sorted(frames)}")
            keys += [(camera, int(stamp)) for stamp in stamps_ns[camera]]
            pictures += list(frames[camera])
        return keys, pictures

    def _recall(self, key: _Key, frame: np.ndarray) -> EncodedFrame | None:
        known = self._known.get(key)
        return known if known is not None and np.array_equal(known.frame, frame) else None

    def _encode_new(self, pictures: list[np.ndarray]) -> list[EncodedFrame]:
        """Encodes the frames of all cameras in one call of the networks, so that a device is waited for once."""
        config = self.networks.config
        patches, grids = zip(*[patchify(frame[None], config) for frame in pictures], strict=True)
        grids = np.concatenate(grids)
        features = self.networks.encode_images(np.concatenate(patches), grids)
        self.encoded_frames += len(pictures)
        parts = features.split(grids.prod(axis=1) // config.vision.spatial_merge_size**2)
        return [EncodedFrame(frame.copy(), *each) for frame, *each in zip(pictures, grids, parts, strict=True)]
