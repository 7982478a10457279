import numpy as np
import pytest

from specdrive_ros.errors import InputError
from specdrive_ros.runtime.frame_encoder import FrameEncoder

CAMERAS = ("left", "right")


def frames(seed: int = 0, cycles: int = 7) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    return {camera: random.integers(0, 255, (cycles, 64, 128, 3), np.uint8) for camera in CAMERAS}


def cycle(recording: dict[str, np.ndarray], first: int) -> tuple[dict, dict]:
    stamps = np.arange(first, first + 4) * 10**8
    return {camera: each[first : first + 4] for camera, each in recording.items()}, dict.fromkeys(
        recording, stamps
    )


def joined(encoded):
    """The features of all frames, and their grids."""
    first, *others = [each.features for each in encoded]
    return first.followed_by(others), [each.grid.tolist() for each in encoded]


def test_only_new_frames_are_encoded_and_the_features_are_the_same(torch_networks):
    keeping = FrameEncoder(torch_networks, CAMERAS)
    forgetting = FrameEncoder(torch_networks, CAMERAS, keep=False)
    recording = frames()
    for first in range(4):
        kept, grids = joined(keeping.encode(*cycle(recording, first)))
        fresh, _ = joined(forgetting.encode(*cycle(recording, first)))
        np.testing.assert_allclose(kept.embeddings, fresh.embeddings, atol=1e-6)
        np.testing.assert_allclose(kept.deepstack, fresh.deepstack, atol=1e-6)
    assert grids == [[1, 4, 8]] * 8
    assert (keeping.encoded_frames, forgetting.encoded_frames) == (8 + 3 * 2, 4 * 8)


def test_an_observation_is_in_step_when_only_the_newest_frames_are_new(torch_networks):
    encoder, recording = FrameEncoder(torch_networks, CAMERAS), frames()
    steps = []
    for first in (0, 1, 1, 2, 0):  # the third is the same again, the last goes back
        encoder.encode(*cycle(recording, first))
        steps.append(encoder.in_step)
    assert steps == [False, True, False, True, False]
    encoder.forget()
    assert not encoder.in_step


def test_another_picture_of_the_same_stamp_is_encoded(torch_networks):
    encoder = FrameEncoder(torch_networks, CAMERAS)
    recording = frames()
    before, _ = joined(encoder.encode(*cycle(recording, 0)))
    recording["left"][2, 10, 10, 1] ^= 255
    after, _ = joined(encoder.encode(*cycle(recording, 0)))
    assert encoder.encoded_frames == 9
    changed = np.abs(after.embeddings - before.embeddings).reshape(8, -1).max(axis=1) > 0
    assert changed.tolist() == [False, False, True] + [False] * 5


def test_features_are_in_the_order_of_the_prompt(torch_networks):
    recording = frames()
    ahead, _ = joined(FrameEncoder(torch_networks, CAMERAS).encode(*cycle(recording, 0)))
    reverse, _ = joined(FrameEncoder(torch_networks, CAMERAS[::-1]).encode(*cycle(recording, 0)))
    half = len(ahead.embeddings) // 2
    np.testing.assert_allclose(ahead.embeddings[:half], reverse.embeddings[half:], atol=1e-6)


def test_missing_camera(torch_networks):
    given, stamps = cycle(frames(), 0)
    del given["right"]
    with pytest.raises(InputError, match="camera 'right': not in the observation, which has"):
        FrameEncoder(torch_networks, CAMERAS).encode(given, stamps)
