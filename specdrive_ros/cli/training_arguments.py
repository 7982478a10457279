"""What every training command refuses before it makes a folder: a run begun with it would block the correct one. Knows
no networks.
"""

import math
from argparse import Namespace

from specdrive_ros.errors import InputError


def check_training(args: Namespace, *learning_rates: float) -> None:
    """args: has `data`, `seed` and `threads`. Raises InputError for values that no training run can start with."""
    from specdrive_ros.training.scenes import shard_paths

    check_rates(*learning_rates)
    if args.seed < 0:
        raise InputError(f"--seed {args.seed}: must be 0 or more")
    if args.threads is not None and args.threads < 1:
        raise InputError(f"--threads {args.threads}: must be 1 or more")
    shard_paths(args.data / "train")


def check_rates(*learning_rates: float) -> None:
    for rate in learning_rates:
        if not 0 < rate < math.inf:
            raise InputError(f"learning rate {rate:g}: must be above 0")
