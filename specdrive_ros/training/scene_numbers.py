"""The numbers a model learns to read from an image: where things are, and the path the expert then takes."""

import numpy as np

from specdrive_ros.sim.scene_geometry import SCENE_GEOMETRY
from specdrive_ros.training.scenes import Shard

WAY = {"way_curvature": 0.01, "way_1s": 0.3, "way_2s": 1.2, "way_3s": 2.4}  # 1/m, then m: spreads of `expert_ways`
NUMBERS = WAY | SCENE_GEOMETRY  # name -> spread


def expert_ways(futures: np.ndarray) -> np.ndarray:
    """[N, 64, 3] x, y, yaw (m, m, rad) in the ego frame -> [N, 4]: mean curvature (1/m) over the first second, and
    metres to the left after 1, 2 and 3 s. Not the path itself: that would require seeing the speed."""
    curvature = futures[:, 9, 2] / np.maximum(futures[:, 9, 0], 1.0)
    return np.stack([curvature, *futures[:, [9, 19, 29], 1].T], axis=1)


def frame_numbers(shard: Shard) -> np.ndarray:
    """[F, N] numbers of every frame, in spreads, columns as in `NUMBERS`; NaN for the path unless the frame is a
    sample's newest."""
    ways = np.full((len(shard.scene), len(WAY)), np.nan, np.float32)
    ways[shard.sample_frame] = expert_ways(shard.sample_future)
    return np.concatenate([ways, shard.geometry], axis=1) / np.array(list(NUMBERS.values()), np.float32)
