"""The planner drives, the expert says what it would do: samples are of where the planner got to."""

import numpy as np

from specdrive_ros.safety.fallback import comfortable_stop
from specdrive_ros.sim.labels import SCENE_LABELS
from specdrive_ros.training.drift import record_drift
from specdrive_ros.training.scenes import EpisodePlan, Shard, write_shard

PLAN = EpisodePlan(samples=2, sample_every_s=1.5)


class Brakes:
    """A planner that stops wherever it is, and remembers what it was shown."""

    cameras = ("rgb_front",)

    def __init__(self):
        self.observations = []

    def plan(self, observation):
        self.observations.append(observation)
        return comfortable_stop(observation)


def test_samples_are_what_the_planner_saw_labelled_by_the_expert(tmp_path):
    driver = Brakes()
    episode = record_drift(driver, "cruise", 8, PLAN)
    assert len(episode["samples"]) == 2 and len(episode["frames"]) == len(episode["scene"]) == 8

    shown = {o.t0_ns: o for o in driver.observations}
    for number, sample in enumerate(episode["samples"]):
        frames = np.stack(episode["frames"][4 * number:4 * number + 4])
        assert any(np.array_equal(frames, o.frames["rgb_front"]) for o in shown.values())
    assert episode["samples"][-1]["future"][-1, 0] > 10.0  # the expert would have driven on
    assert episode["samples"][-1]["speed"] < episode["samples"][0]["speed"]  # the planner braked
    before_t0 = np.array(episode["scene"])[[0, 1, 2, 4, 5, 6]]
    assert np.all(before_t0 == -1) and np.any(np.array(episode["scene"])[[3, 7]] >= 0)

    lane = np.array(episode["geometry"])[:, 0]
    assert np.isnan(lane[[0, 1, 2, 4, 5, 6]]).all() and np.abs(lane[[3, 7]]).max() < 3.0

    path = tmp_path / "shard-0.safetensors"
    assert write_shard(path, [episode]) == 2
    assert Shard(path).scene.shape == (8, len(SCENE_LABELS))
