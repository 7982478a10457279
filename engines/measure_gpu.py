"""What a cycle of a 10B driving model costs on this GPU, stage by stage: see measure_gpu.sh.

Layers have the released shapes (Qwen3-VL 8B and an action expert of 2.3B) and random weights; what is timed is the
work, not an answer. Every stage runs as a CUDA graph where it can be captured, else queued call by call, and the row
says which. A stage that fails is written down as failed and the others go on. Self-contained on purpose: torch, and the
networks in the file beside it.
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
from measure_gpu_networks import SHAPES, Shape, Stages

WARM_UP = 3
SPECULATED = (1.0, 3.0, 5.0, 7.4)  # accepted lengths that a whole cycle is put together for
REASONED = 20  # tokens of a chain of causation
EAGLE_DEPTH = 6  # steps of the draft a proposal
BUDGET_S = 400  # of measuring; stages that do not fit any more are left out and said so


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
