"""Held-out instants of driving: what the car perceived, what the expert says and where it then drives.

One instant per world, so that samples are independent of each other; the worlds are those that `drive --seed` accepts
and training never sees. Knows no model.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from specdrive_ros.errors import InputError
from specdrive_ros.evaluation.drive import LAST_SEED
from specdrive_ros.observation.observation import EgoHistory, Observation
from specdrive_ros.shapes import FRAME_STEP_S, FRAMES_PER_CAMERA, NANOSECONDS
from specdrive_ros.training.scenes import CAMERA, EpisodePlan, planar_poses, record_episode, sample_frames

ONE_INSTANT = EpisodePlan(samples=1)


@dataclass(frozen=True, eq=False)
class HeldOutSample:
    """One instant t0 of one world.

    time_s:       of the world, at t0.
    label:        the expert's sentence; spans: its character spans that only the image can determine.
    history:      [16, 3] x m, y m, yaw rad in the ego frame at t0, at t0 - 1.5 s … t0.
    future:       [64, 3] the same for the expert's next 6.4 s, row k at t0 + 0.1 (k + 1) s.
    lane:         [33, 3] the same along the centre of the ego's lane, 5 m behind to 75 m ahead.
    """

    family: str
    seed: int
    time_s: float
    label: str
    spans: tuple[tuple[int, int], ...]
    decision: str
    cause: str
    history: np.ndarray
    future: np.ndarray
    lane: np.ndarray
    observation: Observation

    @property
    def key(self) -> tuple[str, int]:
        return self.family, self.seed


def held_out_sample(family: str, seed: int) -> HeldOutSample | None:
    """The instant of this world; None if the world ends before it."""
    episode = record_episode(family, seed, ONE_INSTANT)
    if not episode["samples"]:
        return None
    (sample,), words = episode["samples"], episode["samples"][0]["words"]
    return HeldOutSample(
        family, seed, words["time_s"], words["text"], tuple(map(tuple, sample["spans"])), words["decision"],
        words["cause"], sample["history"], sample["future"], sample["lane"],
        _observation(np.stack(sample_frames(episode, sample)), sample["history"], sample["speed"], words["time_s"]))


def held_out_samples(family: str, count: int, first_seed: int) -> Iterator[HeldOutSample]:
    """`count` samples of one family, from the worlds of `first_seed` on. Raises InputError if the seeds run out
    first."""
    found = 0
    for seed in range(first_seed, LAST_SEED + 1):
        sample = held_out_sample(family, seed)
        if sample is not None:
            yield sample
            found += 1
        if found == count:
            return
    raise InputError(f"--seed {first_seed}: {found} of {count} samples of {family} before the last seed "
                     f"{LAST_SEED}; begin with a smaller one")


def _observation(frames: np.ndarray, poses: np.ndarray, speed_mps: float, time_s: float) -> Observation:
    t0_ns = round(time_s * NANOSECONDS)
    stamps = t0_ns - np.arange(FRAMES_PER_CAMERA)[::-1] * round(FRAME_STEP_S * NANOSECONDS)
    history = EgoHistory(*planar_poses(poses), float(speed_mps))
    return Observation(t0_ns, {CAMERA: frames}, {CAMERA: stamps}, history)
