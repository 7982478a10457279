"""Driving scenes retold with long chains of causation, from which a target learns to reason at length.

All recorded data stay; only the sentences and their visual spans are replaced (`sim/long_thoughts.py`). So the result
is a data folder like any other, for `train target`, `train draft` and everything else that reads scenes.
"""

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from specdrive_ros.atomic_file import atomic_write
from specdrive_ros.errors import InputError
from specdrive_ros.sim.long_thoughts import think_aloud
from specdrive_ros.training.scenes import Shard, open_shards

SPLITS = ("validation", "train")


def shards_to_lengthen(data: Path, out: Path) -> list[tuple[Path, Path]]:
    """(shard, its copy) for every shard without a copy. Raises `InputError` without scenes or if the folders are the
    same."""
    if data.resolve() == out.resolve():
        raise InputError(f"{out}: the long chains need a folder of their own, beside the scenes they are made from")
    for split in SPLITS:
        open_shards(data / split)  # reports what is missing or damaged
    paths = [path for split in SPLITS for path in sorted((data / split).glob("shard-*.safetensors"))]
    copies = [(path, out / path.relative_to(data)) for path in paths]
    return [(path, copy) for path, copy in copies if not copy.exists()]


def lengthen_shard(path: Path, copy: Path) -> int:
    """Writes the shard with long chains, atomically. Returns the number of samples. Raises `InputError` if it
    cannot."""
    shard = Shard(path)
    told = [_told(shard, row) for row in range(len(shard.words))]
    spans = np.full((len(told), max((len(found) for _, found in told), default=1), 2), -1, np.int16)
    for row, (_, found) in enumerate(told):
        spans[row, : len(found)] = found
    words = [words | {"text": text} for words, (text, _) in zip(shard.words, told, strict=True)]
    tensors = load_file(path) | {"sample_spans": spans}
    tensors["sample_words"] = np.frombuffer(json.dumps(words).encode(), np.uint8)
    try:
        copy.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(copy) as unfinished:
            save_file(tensors, unfinished, metadata={"scene_labels": json.dumps(shard.scene_labels)})
    except OSError as error:
        raise InputError(f"{copy}: cannot be written ({error.strerror or error})") from None
    return len(told)


def _told(shard: Shard, row: int) -> tuple[str, tuple[tuple[int, int], ...]]:
    scene = dict(zip(shard.scene_labels, shard.scene[shard.sample_frame[row]].tolist(), strict=True))
    spans = [(int(begin), int(end)) for begin, end in shard.sample_spans[row] if begin >= 0]
    return think_aloud(scene, shard.words[row]["text"], spans)
