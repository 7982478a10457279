"""What every cell is measured on: one instant per world, from worlds that no draft was trained on.

`validation`  worlds from the range that training validates on
`held_out`    worlds that `drive --seed` accepts, which neither training nor validation ever sees
"""

from collections.abc import Callable, Sequence

from specdrive_ros.evaluation.looking.samples import HeldOutSample, held_out_sample, held_out_samples
from specdrive_ros.training.scenes import VALIDATION_SEED_BASE

VALIDATION, HELD_OUT = "validation", "held_out"
SPLITS = (VALIDATION, HELD_OUT)
VALIDATION_OFFSET = 500_000  # beyond the worlds of `data generate`, so that no cached state is of the same world


def prompts(
    split: str, families: Sequence[str], count: int, seed: int, on_prompt: Callable[[], None]
) -> list[HeldOutSample]:
    """`count` instants, divided evenly over the families. seed: of the first held-out world."""
    found = []
    for number, family in enumerate(families):
        share = count // len(families) + (number < count % len(families))
        for sample in _of(split, family, share, seed):
            found.append(sample)
            on_prompt()
    return found


def _of(split: str, family: str, count: int, seed: int):
    if split == HELD_OUT:
        yield from held_out_samples(family, count, seed) if count else ()
        return
    world, found = VALIDATION_SEED_BASE + VALIDATION_OFFSET, 0
    while found < count:
        sample = held_out_sample(family, world)
        world += 1
        if sample is not None:
            found += 1
            yield sample
