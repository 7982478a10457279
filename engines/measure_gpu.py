"""What a cycle of a 10B driving model costs on this GPU, stage by stage: see measure_gpu.sh.

Layers have the released shapes (Qwen3-VL 8B and an action expert of 2.3B) and random weights; what is timed is the
work, not an answer. Every stage runs as a CUDA graph where it can be captured, else queued call by call, and the row
says which. A stage that fails is written down as failed and the others go on. Self-contained on purpose: torch only.
"""

import argparse
import json
import math
import platform
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

WARM_UP = 3
SPECULATED = (1.0, 3.0, 5.0, 7.4)  # accepted lengths that a whole cycle is put together for
REASONED = 20  # tokens of a chain of causation
EAGLE_DEPTH = 6  # steps of the draft a proposal
BUDGET_S = 400  # of measuring; stages that do not fit any more are left out and said so


@dataclass(frozen=True)
class Shape:
    """Sizes of one model: text, its vision, its action expert; prompt and frames of a cycle."""

    layers: int = 36
    hidden: int = 4096
    inner: int = 12288
    heads: int = 32
    kv_heads: int = 8
    head: int = 128
    vocabulary: int = 155697
    vision_layers: int = 27
    vision_hidden: int = 1152
    vision_inner: int = 4304
    vision_heads: int = 16
    patches: int = 720
    images: int = 16
    prompt: int = 3027
    capacity: int = 4096
    expert_hidden: int = 2048
    expert_inner: int = 8256
    expert_heads: int = 16
    waypoints: int = 64
    flow_steps: int = 10
    draft_words: int = 32000
    dflash_layers: int = 5
    block: int = 16


TINY = Shape(
    layers=2, hidden=64, inner=128, heads=4, kv_heads=2, head=16, vocabulary=500, vision_layers=2, vision_hidden=32,
    vision_inner=64, vision_heads=2, patches=16, images=2, prompt=24, capacity=128, expert_hidden=32, expert_inner=64,
    expert_heads=4, waypoints=8, flow_steps=2, draft_words=100, dflash_layers=1, block=4,
)  # fmt: skip
SHAPES = {"10b": Shape(), "tiny": TINY}


class Layer(nn.Module):
    """A decoder layer that writes its keys and values into a cache of fixed capacity and reads `visible` rows of it."""

    def __init__(self, hidden: int, inner: int, heads: int, kv_heads: int, head: int, source: int = 0):
        super().__init__()
        self.heads, self.kv_heads, self.head = heads, kv_heads, head
        self.qkv = nn.Linear(source or hidden, (heads + 2 * kv_heads) * head, bias=False)
        self.out = nn.Linear(heads * head, hidden, bias=False)
        self.gate_up = nn.Linear(hidden, 2 * inner, bias=False)
        self.down = nn.Linear(inner, hidden, bias=False)
        self.norm, self.norm2 = (nn.Parameter(torch.ones(size)) for size in (source or hidden, hidden))

    def forward(self, x, cache, start: int, mask, joined=None, causal=False):
        """x [T, E]; cache [2, H, capacity, D]; mask [T, start + T] additive or None; joined: what is attended instead;
        causal: of a prompt, whose attention then takes the fast way that knows no masks."""
        tokens = x.shape[0]
        source = F.rms_norm(x if joined is None else joined, self.norm.shape, self.norm)
        query, key, value = (
            self.qkv(source).view(tokens, -1, self.head).split([self.heads, self.kv_heads, self.kv_heads], 1)
        )
        cache[0, :, start : start + tokens] = key.transpose(0, 1)
        cache[1, :, start : start + tokens] = value.transpose(0, 1)
        keys, values = (cache[index, None, :, : start + tokens] for index in (0, 1))
        mixed = F.scaled_dot_product_attention(
            query.transpose(0, 1)[None], keys, values, mask, is_causal=causal, enable_gqa=True
        )
        x = x + self.out(mixed[0].transpose(0, 1).reshape(tokens, -1))
        gate, up = self.gate_up(F.rms_norm(x, self.norm2.shape, self.norm2)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Block(nn.Module):
    """A vision block: attention inside each image."""

    def __init__(self, hidden: int, inner: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, inner), nn.Linear(inner, hidden)

    def forward(self, x):
        images, patches, _ = x.shape
        qkv = self.qkv(self.norm1(x)).view(images, patches, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(*qkv).transpose(1, 2).reshape(images, patches, -1)
        x = x + self.out(mixed)
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Stages:
    """The networks of one shape on one device, and each stage of a cycle as a call without arguments."""

    def __init__(self, shape: Shape, device: torch.device, dtype: torch.dtype):
        self.shape, self.device, self.dtype = shape, device, dtype
        with torch.device("meta"):
            s = shape
            self.text = nn.ModuleList(Layer(s.hidden, s.inner, s.heads, s.kv_heads, s.head) for _ in range(s.layers))
            self.head = nn.Linear(s.hidden, s.vocabulary, bias=False)
            self.vision = nn.ModuleList(
                Block(s.vision_hidden, s.vision_inner, s.vision_heads) for _ in range(s.vision_layers)
            )
            self.merge = nn.Sequential(
                nn.Linear(4 * s.vision_hidden, 4 * s.vision_hidden), nn.GELU(), nn.Linear(4 * s.vision_hidden, s.hidden)
            )
            self.expert = nn.ModuleList(
                Layer(s.expert_hidden, s.expert_inner, s.expert_heads, s.kv_heads, s.head) for _ in range(s.layers)
            )
            self.action_in, self.action_out = nn.Linear(60, s.expert_hidden), nn.Linear(s.expert_hidden, 2)
            self.eagle = Layer(s.hidden, s.inner, s.heads, s.kv_heads, s.head, source=2 * s.hidden)
            self.eagle_head = nn.Linear(s.hidden, s.draft_words, bias=False)
            self.fuse = nn.Linear(3 * s.hidden, s.hidden, bias=False)
            self.dflash = nn.ModuleList(
                Layer(s.hidden, s.inner, s.heads, s.kv_heads, s.head) for _ in range(s.dflash_layers)
            )
        for name, part in vars(self).items():
            if isinstance(part, nn.Module):
                setattr(self, name, self._real(part))
        self.cache = self._zeros(s.layers, 2, s.kv_heads, s.capacity, s.head)
        self.draft_cache = self._zeros(s.dflash_layers, 2, s.kv_heads, s.capacity, s.head)

    def _real(self, part: nn.Module) -> nn.Module:
        """Random weights made on the device, in the type they are used in: never twice in memory."""
        part = part.to(self.dtype).to_empty(device=self.device).requires_grad_(False)
        for weight in part.parameters():
            weight.normal_(0, 0.02) if weight.ndim > 1 else weight.fill_(1)
        return part

    def _zeros(self, *size):
        return torch.zeros(size, dtype=self.dtype, device=self.device)

    def _input(self, *size):
        return torch.randn(size, dtype=self.dtype, device=self.device)

    def parameters(self) -> int:
        parts = (part for part in vars(self).values() if isinstance(part, nn.Module))
        return sum(weight.numel() for part in parts for weight in part.parameters())

    def encode(self, images: int):
        s, x = self.shape, self._input(images, self.shape.patches, self.shape.vision_hidden)

        def run():
            y = x
            for block in self.vision:
                y = block(y)
            return self.merge(y.view(images, s.patches // 4, -1))

        return run

    def extend(self, tokens: int, start: int, logits: int):
        """tokens new rows behind `start` cached ones, under a tree's mask where there are some."""
        x = self._input(tokens, self.shape.hidden)
        mask = self._causal(tokens, start) if tokens > 1 and start else None

        def run():
            y = x
            for layer, cache in zip(self.text, self.cache):
                y = layer(y, cache, start, mask, causal=not start)
            return self.head(y[-logits:]).argmax(-1)

        return run

    def _causal(self, tokens: int, start: int):
        mask = torch.zeros(tokens, start + tokens, dtype=self.dtype, device=self.device)
        hidden = torch.ones(tokens, tokens, dtype=torch.bool, device=self.device).triu(1)
        mask[:, start:].masked_fill_(hidden, -math.inf)
        return mask

    def act(self, start: int):
        s, x, features = self.shape, self._input(self.shape.waypoints, 2), self._input(self.shape.waypoints, 60)

        def run():
            state = x
            for _ in range(s.flow_steps):
                y = self.action_in(features + state.sum(-1, keepdim=True))
                for layer, cache in zip(self.expert, self.cache):
                    y = layer(y, cache, start, None)
                state = state + self.action_out(y) / s.flow_steps
            return state

        return run

    def eagle_step(self, beams: int, start: int):
        embeddings, hidden = (self._input(beams, self.shape.hidden) for _ in "ab")

        def run():
            y = self.eagle(hidden, self.draft_cache[0], start, None, torch.cat([embeddings, hidden], -1))
            return self.eagle_head(y).topk(10)

        return run

    def eagle_newest(self, tokens: int, start: int):
        embeddings, taps = self._input(tokens, self.shape.hidden), self._input(tokens, 3 * self.shape.hidden)

        def run():
            hidden = self.fuse(taps)
            y = self.eagle(hidden, self.draft_cache[0], start, None, torch.cat([embeddings, hidden], -1))
            return self.eagle_head(y[-1:]).topk(10)

        return run

    def dflash_block(self, start: int):
        x = self._input(self.shape.block, self.shape.hidden)

        def run():
            y = x
            for layer, cache in zip(self.dflash, self.draft_cache):
                y = layer(y, cache, start, None)
            return self.head(y).argmax(-1)

        return run


@dataclass
class Row:
    """One stage: milliseconds over its repetitions, or why there are none."""

    stage: str
    median_ms: float | None = None
    p99_ms: float | None = None
    least_ms: float | None = None
    repetitions: int = 0
    cuda_graph: bool = False
    note: str = ""


def measure(name: str, run, device: torch.device, until: float, seconds: float) -> Row:
    row = Row(name)
    if time.monotonic() > until:
        row.note = "left out: no time left"
        return row
    try:
        with torch.inference_mode():
            call, row.cuda_graph, row.note = prepare(run, device)
            times = repeat(call, device, seconds)
    except RuntimeError as error:
        row.note = f"failed: {' '.join(str(error).split())[:200]}"
        return row
    ordered = sorted(times)
    row.median_ms, row.least_ms = ordered[len(ordered) // 2], ordered[0]
    row.p99_ms, row.repetitions = ordered[min(len(ordered) - 1, round(0.99 * len(ordered)))], len(ordered)
    return row


def prepare(run, device: torch.device):
    """(call, whether it replays a CUDA graph, why not)."""
    for _ in range(WARM_UP):
        run()
    if device.type != "cuda":
        return run, False, "on the CPU"
    torch.cuda.synchronize()
    try:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            run()
        return graph.replay, True, ""
    except RuntimeError as error:
        torch.cuda.synchronize()
        return run, False, f"not captured: {' '.join(str(error).split())[:150]}"


def repeat(call, device: torch.device, seconds: float, most: int = 100, least: int = 5) -> list[float]:
    """Milliseconds each call takes until its work is done."""
    times, begun = [], time.monotonic()
    while len(times) < least or (len(times) < most and time.monotonic() - begun < seconds):
        if device.type == "cuda":
            start, end = (torch.cuda.Event(enable_timing=True) for _ in "ab")
            start.record()
            call()
            end.record()
            end.synchronize()
            times.append(start.elapsed_time(end))
        else:
            start = time.perf_counter()
            call()
            times.append(1000 * (time.perf_counter() - start))
    return times


def all_stages(stages: Stages):
    """(name, call), what matters most first."""
    s, start = stages.shape, stages.shape.prompt + REASONED
    yield "extend 1", stages.extend(1, start, 1)
    yield f"extend {s.block}", stages.extend(s.block, start, s.block)
    yield "extend 60", stages.extend(60, start, 60)
    yield f"action {s.flow_steps} steps", stages.act(start)
    yield f"prefill {s.prompt}", stages.extend(s.prompt, 0, 1)
    yield f"vision {s.images} images", stages.encode(s.images)
    yield f"vision {max(1, s.images // 4)} images", stages.encode(max(1, s.images // 4))
    yield f"dflash block {s.block}", stages.dflash_block(start)
    yield "eagle3 newest 8", stages.eagle_newest(8, start)
    yield "eagle3 step 10", stages.eagle_step(10, start)


def cycles(shape: Shape, rows: list[Row]) -> list[dict]:
    """A cycle put together from the stages, for each accepted length; a plain one decodes token by token."""
    ms = {row.stage: row.median_ms for row in rows}
    needed = [
        f"vision {max(1, shape.images // 4)} images",
        f"prefill {shape.prompt}",
        f"action {shape.flow_steps} steps",
    ]
    fixed = [ms.get(name) for name in needed]
    drafts = {
        "dflash": (ms.get(f"dflash block {shape.block}"), ms.get(f"extend {shape.block}")),
        "eagle3": (_sum(ms.get("eagle3 newest 8"), _times(EAGLE_DEPTH, ms.get("eagle3 step 10"))), ms.get("extend 60")),
    }
    found = [{"draft": "none", "accepted_length": 1.0, "reasoning_ms": _times(REASONED, ms.get("extend 1"))}]
    for name, (draft, verify) in drafts.items():
        for length in SPECULATED[1:]:
            passes = math.ceil(REASONED / length)
            found.append(
                {"draft": name, "accepted_length": length, "reasoning_ms": _times(passes, _sum(draft, verify))}
            )
    for one in found:
        one["cycle_ms"] = _sum(*fixed, one["reasoning_ms"])
    return found


def _sum(*parts):
    return None if any(part is None for part in parts) else sum(parts)


def _times(count, part):
    return None if part is None else count * part


def describe(device: torch.device) -> dict:
    found = {"name": platform.processor() or "CPU", "torch": torch.__version__, "python": platform.python_version()}
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        found |= {
            "name": properties.name,
            "capability": f"{properties.major}.{properties.minor}",
            "memory_gb": round(properties.total_memory / 1e9, 1),
            "cuda": torch.version.cuda,
        }
    return found


def bandwidth(device: torch.device) -> float | None:
    """GB/s of a copy of half a gigabyte, read and written."""
    if device.type != "cuda":
        return None
    source = torch.empty(2**29, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    times = repeat(lambda: target.copy_(source), device, 0.5)
    return round(2 * source.numel() / min(times) / 1e6, 1)


def as_markdown(document: dict) -> str:
    show = lambda value: "" if value is None else f"{value:.2f}"  # noqa: E731
    lines = [f"# {document['device']['name']}, shape {document['shape_name']}, {document['dtype']}", ""]
    lines += ["| stage | median ms | p99 ms | least ms | CUDA graph | note |", "|---|---|---|---|---|---|"]
    for row in document["stages"]:
        graph = "yes" if row["cuda_graph"] else "no"
        times = " | ".join(show(row[name]) for name in ("median_ms", "p99_ms", "least_ms"))
        lines.append(
            f"| {row['stage']} | {times} | {graph} | {row['note']} |"
        )
    lines += [
        "",
        f"Cycles put together from these medians, {REASONED} tokens of reasoning, one new frame a camera:",
        "",
    ]
    lines += ["| draft | L | reasoning ms | cycle ms |", "|---|---|---|---|"]
    for one in document["cycles"]:
        lines.append(
            f"| {one['draft']} | {one['accepted_length']:g} | {show(one['reasoning_ms'])} | {show(one['cycle_ms'])} |"
        )
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", choices=SHAPES, default="10b")
    parser.add_argument("--out", type=Path, default=Path("."))
    parser.add_argument("--seconds", type=float, default=3.0, help="to repeat a stage for (default %(default)s)")
    args = parser.parse_args()
    if not torch.cuda.is_available() and args.shape != "tiny":
        print("measure_gpu: no CUDA GPU that PyTorch can use; SHAPE=tiny tries the script on the CPU", file=sys.stderr)
        return 2
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    begun, shape, dtype = time.monotonic(), SHAPES[args.shape], torch.bfloat16
    document = {
        "version": 1,
        "device": describe(device),
        "shape_name": args.shape,
        "shape": asdict(shape),
        "dtype": "bfloat16",
    }
    document["copy_gb_per_s"] = bandwidth(device)
    stages = Stages(shape, device, dtype)
    document["parameters"] = stages.parameters()
    rows: list[Row] = []
    for name, run in all_stages(stages):
        rows.append(measure(name, run, device, begun + BUDGET_S, args.seconds))
        print(f"{name:<20} {rows[-1].median_ms or math.nan:9.2f} ms  {rows[-1].note}", flush=True)
        document |= {
            "stages": [asdict(row) for row in rows],
            "cycles": cycles(shape, rows),
            "seconds": round(time.monotonic() - begun, 1),
        }
        (args.out / "measure_gpu.json").write_text(json.dumps(document, indent=1) + "\n")  # a stop loses one stage
    (args.out / "measure_gpu.md").write_text(as_markdown(document))
    return 0 if all(row.median_ms is not None for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
