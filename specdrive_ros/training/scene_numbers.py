"""What a model learns to read off a picture as numbers: where things are, and the way the expert then takes."""

import numpy as np

from specdrive_ros.sim.scene_geometry import SCENE_GEOMETRY
from specdrive_ros.training.scenes import Shard

WAY = {"way_curvature": 0.01, "way_1s": 0.3, "way_2s": 1.2, "way_3s": 2.4}  # 1/m, then m: spread of `expert_ways`
NUMBERS = WAY | SCENE_GEOMETRY  # name -> spread


def expert_ways(futures: np.ndarray) -> np.ndarray:
    """[N, 64, 3] x, y, yaw (m, m, rad) in the ego frame -> [N, 4]: mean curvature (1/m) of the first second, metres to
    the left after 1, 2 and 3 s. Not the path itself: for that the speed would have to be seen, too."""
    curvature = futures[:, 9, 2] / np.maximum(futures[:, 9, 0], 1.0)
    return np.stack([curvature, *futures[:, [9, 19, 29], 1].T], axis=1)


def frame_numbers(shard: Shard) -> np.ndarray:
    """[F, N] of every frame, in spreads, columns as in `NUMBERS`; the way at the newest frame of a sample, NaN else."""
    ways = np.full((len(shard.scene), len(WAY)), np.nan, np.float32)
    ways[shard.sample_frame] = expert_ways(shard.sample_future)
    return np.concatenate([ways, shard.geometry], axis=1) / np.array(list(NUMBERS.values()), np.float32)
