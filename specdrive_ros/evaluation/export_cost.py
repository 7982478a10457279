"""What exporting a model costs in memory, time and disk, without having its weights.

    python -m specdrive_ros.evaluation.export_cost --model alpamayo-r1

Writes a checkpoint of the model's sizes in the released layout, in bf16 and in shards as they are published, but with
sparse files: all zeros, no space on the disk. Then exports it as `specdrive export --no-compare` does.
"""

import argparse
import json
import struct
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from specdrive_ros.budget.shape import ModelShape, find_shape
from specdrive_ros.cli.answer import json_text
from specdrive_ros.errors import InputError, SpecdriveError
from specdrive_ros.target.config import (
    ActionInputConfig,
    ExpertConfig,
    ImageLimits,
    TargetConfig,
    TextConfig,
    VisionConfig,
    VocabularyConfig,
)
from specdrive_ros.target.released_layout import write_configs
from specdrive_ros.target.tokens import BASE_TOKENS

EXAMPLE = "example: python -m specdrive_ros.evaluation.export_cost --model alpamayo-r1 --out out/export_cost"
LINE = ("{weights_bytes:,} bytes of weights, {graphs_bytes:,} of graphs; {added_peak_bytes:,} added to the peak of "
        "memory, {seconds:.0f} s\n")
ITEM_BYTES = {"F32": 4, "BF16": 2, "I32": 4}
SHARD_BYTES = 5 * 10**9  # the most that a published shard has
ADDED_TOKENS = 28  # behind the trajectory tokens: brackets, placeholders and commands
TRAJECTORY_TOKENS = ("history", "future", "history_start", "future_start", "history_end", "future_end")


def config_of(shape: ModelShape) -> TargetConfig:
    """A target of these sizes. What changes no cost is chosen like the release's: rotary sections, the blocks that
    deepstack taps, the limits of the action space. Raises `InputError` for a shape without vision or action expert."""
    text, vision, expert, cycle = shape.text, shape.vision, shape.expert, shape.cycle
    if vision is None or expert is None or cycle is None:
        raise InputError(f"{shape.title}: has no vision, action expert and cycle; it must be a driving model")
    side = 5 * text.head // 32  # frequencies of height, and of width; time has the rest
    pixels = cycle.patches * 16**2
    return TargetConfig(
        text=TextConfig(text.hidden, text.inner, text.layers, text.heads, text.kv_heads, text.head, text.vocabulary,
                        (text.head // 2 - 2 * side, side, side), rope_theta=5e6),
        vision=VisionConfig(vision.hidden, vision.inner, vision.layers, vision.heads, text.hidden, vision.positions,
                            tuple(k * vision.layers // vision.mergers for k in range(1, vision.mergers)),
                            spatial_merge_size=vision.merge),
        expert=ExpertConfig(expert.hidden, expert.inner, expert.heads, text.head),
        action_input=ActionInputConfig(hidden_size=expert.hidden // 4),
        vocabulary=VocabularyConfig(text.vocabulary - ADDED_TOKENS - VocabularyConfig.traj_vocab_size),
        images=ImageLimits(pixels, pixels),
    )  # fmt: skip


def write_checkpoint(folder: Path, shape: ModelShape) -> int:
    """A checkpoint without numbers. Returns the bytes that its weights would have."""
    import torch

    from specdrive_ros.target.network import AlpamayoTarget

    config = config_of(shape)
    base = config.vocabulary.traj_token_start_idx
    added = base + config.vocabulary.traj_vocab_size
    write_configs(folder, config, {name: added + k for k, name in enumerate(TRAJECTORY_TOKENS)}, base,
                  {name: base - 1 - k for k, name in enumerate(BASE_TOKENS)})
    with torch.device("meta"):
        shapes = {name: tuple(value.shape) for name, value in AlpamayoTarget(config).state_dict().items()}
    shards, files = list(in_shards(shapes)), {}
    for number, shard in enumerate(shards, 1):
        name = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        write_weights(folder / name, shard, "BF16")
        files |= dict.fromkeys(shard, name)
    size = sum(map(bytes_of, shapes.values()))
    index = {"metadata": {"total_size": size}, "weight_map": files}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    return size


def bytes_of(shape: tuple[int, ...], dtype: str = "BF16") -> int:
    return ITEM_BYTES[dtype] * int(np.prod(shape, dtype=np.int64))


def in_shards(shapes: Mapping[str, tuple[int, ...]]) -> Iterator[dict[str, tuple[int, ...]]]:
    shard, size = {}, 0
    for name, shape in shapes.items():
        if shard and size + bytes_of(shape) > SHARD_BYTES:
            yield shard
            shard, size = {}, 0
        shard[name] = shape
        size += bytes_of(shape)
    yield shard


def write_weights(path: Path, shapes: Mapping[str, tuple[int, ...]], dtype: str) -> None:
    """A safetensors file of these shapes, sparse: it takes no space on the disk and reads as zeros."""
    header, position = {}, 0
    for name, shape in shapes.items():
        end = position + bytes_of(shape, dtype)
        header[name], position = {"dtype": dtype, "shape": list(shape), "data_offsets": [position, end]}, end
    content = json.dumps(header).encode()
    content += b" " * (-len(content) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(content)) + content)
        file.truncate(8 + len(content) + position)


def export_cost(folder: Path, shape: ModelShape, on_graph=lambda name: None) -> dict[str, float | int]:
    """Bytes of the weights and of the graphs, seconds, and bytes that the export added to the process's peak memory.

    Call it in a fresh process: a peak does not sink.
    """
    import onnxruntime  # noqa: F401
    import onnxscript  # noqa: F401
    import transformers  # noqa: F401

    from specdrive_ros.runtime.export import export_checkpoint

    weights = write_checkpoint(folder, shape)
    before, begun = peak_bytes(), time.monotonic()
    export_checkpoint(folder, folder, comparing=False, on_graph=on_graph)
    seconds, after = time.monotonic() - begun, peak_bytes()
    graphs = sum(path.stat().st_size for path in folder.glob("*.onnx*"))
    return {"weights_bytes": weights, "graphs_bytes": graphs, "added_peak_bytes": after - before, "seconds": seconds}


def peak_bytes() -> int:
    """The most memory that this process has had. Linux's own count: `ru_maxrss` starts at what the parent had."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="export_cost", description=" ".join(__doc__.split("\n\n")[0].split()),
                                     epilog=EXAMPLE, allow_abbrev=False)
    parser.add_argument("--model", default="alpamayo-r1", metavar="M",
                        help="a shape of engines/shapes/, such a file, or a model (default %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("out/export_cost"), metavar="DIR",
                        help="new folder of the checkpoint and its graphs (default %(default)s)")
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of a line")
    args = parser.parse_args(argv)
    try:
        if args.out.exists():
            raise InputError(f"{args.out} exists; it must be a new folder")
        found = export_cost(args.out, find_shape(args.model),
                            lambda name: print(f"tracing {name}", file=sys.stderr, flush=True))
    except SpecdriveError as error:
        print(f"export_cost: error: {error}", file=sys.stderr)
        return 2 if isinstance(error, InputError) else 1
    sys.stdout.write(json_text(found) if args.json else LINE.format(**found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
