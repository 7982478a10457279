"""What the car perceived at t0: the input of one planning cycle. Knows nothing about ROS, bags or models."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class EgoHistory:
    """Where the ego was, in the ego frame (base_link) at t0.

    xyz:       [16, 3] float64, metres, at t0-1.5 s … t0; the last row is zero.
    rotation:  [16, 3, 3] float64, rotation matrices; the last is the identity.
    speed_mps: forward speed at t0 by odometry (its twist, else from positions), m/s.
    """

    xyz: np.ndarray
    rotation: np.ndarray
    speed_mps: float


@dataclass(frozen=True)
class Observation:
    """Frames and history at one instant.

    t0_ns:           stamp of the newest complete camera set, nanoseconds.
    frames:          camera name -> uint8 [4, H, W, 3] RGB, oldest first, the last at t0 (10 Hz).
    frame_stamps_ns: camera name -> int64 [4], the true stamps of these frames.
    history:         the ego's own past, resampled in time to t0.
    repeated_frames: number of frames that stand in for missing ones (at the start of a recording).
    """

    t0_ns: int
    frames: dict[str, np.ndarray]
    frame_stamps_ns: dict[str, np.ndarray]
    history: EgoHistory
    repeated_frames: int = 0
