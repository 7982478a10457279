"""`specdrive budget`: predicts a planning cycle on a device, before one is available. Predicted, not measured.

Thin: arguments in, a table or one JSON document out. The model is in `budget/cycle.py`; what it was fitted to and how
wrong it is, in `budget/figures.py`.
"""

import sys
from argparse import ArgumentParser, BooleanOptionalAction, Namespace
from dataclasses import asdict
from pathlib import Path

from specdrive_ros.cli.answer import print_json

ALL = "all"
EXAMPLE = "example: specdrive budget --device thor --precision nvfp4 --draft eagle3 --accepted-length 5"


def add_arguments(parser: ArgumentParser) -> None:
    parser.epilog = EXAMPLE
    add = parser.add_argument
    add("--target", default="alpamayo-r1", metavar="T",
        help="a name of engines/shapes/, a file like those, or a model's name or folder (default %(default)s)")
    add("--device", metavar="D", help="a name of engines/devices/, a file like those, or all")
    add("--precision", default="bf16", metavar="P",
        help="of the language model and its draft: fp16, bf16, fp8, int8, int4, w4a8, nvfp4 (default %(default)s); "
        "vision and action expert stay in 16 bits")
    add("--draft", default="none", metavar="D",
        help="none, phrasebook, carryover, eagle3 or dflash (default %(default)s)")
    add("--accepted-length", type=float, nargs="+", default=(), metavar="L",
        help="tokens a target pass emits, the bonus token included; `bench decode` measures it (default: 3 5 7.4)")
    add("--draft-ms", type=float, metavar="MS", help="time of one proposal, instead of the one counted here")
    add("--reasoning", type=int, metavar="N", help="tokens of a chain of causation (default: the shape's)")
    add("--deadline-ms", type=float, default=100.0, metavar="MS", help="of a cycle (default %(default)s)")
    add("--vision-cache", action=BooleanOptionalAction, default=True,
        help="whether only new frames are encoded (default: yes)")
    add("--software", default="engine", metavar="S",
        help="engine (compiled, CUDA graphs) or eager (PyTorch, layer by layer) (default %(default)s)")
    add("--check", action="store_true", help="hold the model against public measurements, error a row")
    add("--measured", type=Path, metavar="FILE",
        help="hold it against a measure_gpu.json of engines/measure_gpu.sh, made on --device")
    add("--json", action="store_true", help="print one JSON document instead of a table")  # fmt: skip


def run(args: Namespace) -> int:
    """Raises InputError for an invalid device, model, precision, draft or file."""
    from specdrive_ros.budget.device import DEVICES
    from specdrive_ros.errors import InputError
    from specdrive_ros.yaml_file import known_names

    if args.check:
        return _check(args)
    if not args.device:
        names = ", ".join(known_names(DEVICES))
        raise InputError(f"--device is missing; known names: {names}, all; see specdrive budget --help")
    if args.measured:
        return _measured(args)
    return _all_devices(args) if args.device == ALL else _budget(args)


def _budget(args: Namespace) -> int:
    plan, model_on = _question(args)
    model = model_on(args.device)
    budget = model.budget(plan)
    if args.json:
        print_json(document_of(model, plan, budget))
    else:
        _print_budget(model, plan, budget)
    return 0


def _question(args: Namespace):
    """The plan, and a function from a device's name to the model of the cycle on it."""
    from specdrive_ros.budget.cycle import CycleModel, Plan
    from specdrive_ros.budget.device import find_device, find_precision
    from specdrive_ros.budget.figures import find_software
    from specdrive_ros.budget.shape import find_shape, with_cycle

    changes = {} if args.reasoning is None else {"reasoning": args.reasoning}
    shape = with_cycle(find_shape(args.target), **changes)
    precision, software = find_precision(args.precision), find_software(args.software)
    plan = Plan(args.draft, tuple(args.accepted_length), args.deadline_ms, args.draft_ms, args.vision_cache)
    return plan, lambda device: CycleModel(shape, find_device(device), precision, software)


def _all_devices(args: Namespace) -> int:
    """One line for each known device; one that does not support the precision says so."""
    from specdrive_ros.budget.device import DEVICES
    from specdrive_ros.errors import InputError
    from specdrive_ros.yaml_file import known_names

    plan, model_on = _question(args)
    rows, documents = [], []
    for name in known_names(DEVICES):
        model = model_on(name)
        try:
            budget = model.budget(plan)
        except InputError as error:
            documents.append({"device": model.device.title, "error": str(error)})
            rows.append([model.device.title, *[""] * 5, f"has no {model.precision.arithmetic}"])
            continue
        documents.append(document_of(model, plan, budget))
        rows.append(line_of(model, budget))
    if args.json:
        print_json({"version": 1, "predicted": True, "devices": documents})
        return 0
    head = ["device", "GB", "no reasoning, ms", "plain, ms", f"{plan.draft}, ms", f"{plan.deadline_ms:g} ms", "binds"]
    title = f"{model.shape.title}, {model.precision.name}, {plan.draft}, {args.software}: predicted, not measured"
    _print_table(title, head, rows, 130)
    return 0


def line_of(model, budget) -> list[str]:
    """Device, memory, milliseconds, whether the deadline holds, which bound applies; for the last of the cycles."""
    memory, last = budget.memory, budget.cycles[-1]
    gb = f"{memory.needed_gb:.0f} of {memory.device_gb:g}"
    times = [f"{ms:.0f}" for ms in (budget.fixed_ms, budget.cycles[0].cycle_ms)]
    shown = f"{last.cycle_ms:.0f} (L = {last.accepted_length:g})"
    return [model.device.title, gb, *times, shown, "hold" if holds(budget, last) else "do not hold", budget.binds]


def document_of(model, plan, budget) -> dict:
    return {
        "version": 1, "predicted": True, "device": model.device.title, "target": model.shape.title,
        "precision": model.precision.name, "draft": plan.draft, "software": asdict(model.software),
        "deadline_ms": plan.deadline_ms, "reasoning_tokens": model.shape.cycle.reasoning,
        "memory_gb": {"parts": budget.memory.parts_gb, "needed": budget.memory.needed_gb,
                      "device": budget.memory.device_gb, "fits": budget.memory.fits},
        "stages": {name: asdict(stage) for name, stage in budget.stages.items()},
        "without_reasoning_ms": budget.fixed_ms,
        "cycles": [asdict(one) | {"holds": holds(budget, one)} for one in budget.cycles],
        "least_accepted_length": budget.least_length, "binds": budget.binds,
    }  # fmt: skip


def holds(budget, cycle) -> bool:
    return budget.memory.fits and cycle.cycle_ms <= budget.deadline_ms


def verdict(plan, budget) -> str:
    """One sentence: whether the deadline can hold, and what prevents it."""
    memory, deadline = budget.memory, f"{budget.deadline_ms:g} ms"
    if not memory.fits:
        return f"does not fit: {memory.needed_gb:.1f} GB of {memory.device_gb:g} GB"
    if budget.fixed_ms > budget.deadline_ms:
        fixed = f"without any reasoning a cycle takes {budget.fixed_ms:.0f} ms"
        return f"{deadline} do not hold: {fixed}; {budget.binds} binds"
    if budget.least_length is None:
        return f"{deadline} do not hold at any accepted length of {plan.draft}; {budget.binds} binds"
    return f"{deadline} hold from an accepted length of {budget.least_length:.3g} on; {budget.binds} binds"


def _print_budget(model, plan, budget) -> None:
    title = f"{model.shape.title} on {model.device.title}, {model.precision.name}, {model.software.name}"
    memory, bounds = budget.memory, ("compute", "bandwidth", "launch overhead")
    rows = [[name, f"{gb:.2f}"] for name, gb in memory.parts_gb.items()]
    rows.append(["together", f"{memory.needed_gb:.2f} of {memory.device_gb:g}"])
    _print_table(f"{title}: predicted, not measured", ["memory", "GB"], rows)
    rows = [
        [stage_name(name, plan, model), f"{one.ms:.2f}", one.binds, *(f"{one.bounds_ms.get(b, 0):.2f}" for b in bounds)]
        for name, one in budget.stages.items()
    ]
    _print_table("", ["stage", "ms", "binds", *(f"{name}, ms" for name in bounds)], rows)
    rows = [
        [one.draft, f"{one.accepted_length:g}", str(one.passes), f"{one.reasoning_ms:.1f}", f"{one.cycle_ms:.1f}",
         "hold" if holds(budget, one) else "do not hold"]
        for one in budget.cycles
    ]  # fmt: skip
    _print_table("", ["draft", "L", "passes", "reasoning, ms", "cycle, ms", f"{plan.deadline_ms:g} ms"], rows)
    print(verdict(plan, budget))


def stage_name(name: str, plan, model) -> str:
    from specdrive_ros.budget.cycle import VERIFIED

    cycle = model.shape.cycle
    images = cycle.cameras * (1 if plan.vision_cache else cycle.frames)
    return {
        "vision": f"vision, {images} image{'s' * (images > 1)}", "prefill": f"prefill, {cycle.prompt} tokens",
        "verify": f"a pass of {VERIFIED[plan.draft]}", "draft": f"a proposal, {plan.draft}",
        "action": f"action, {model.shape.expert.steps} steps",
    }[name]  # fmt: skip


def _check(args: Namespace) -> int:
    from specdrive_ros.budget.figures import Figures

    figures = Figures.load()
    checks, software = figures.check(), figures.software
    if args.json:
        rows = [row_of(one) for one in checks]
        print_json({"version": 1, "software": {name: asdict(one) for name, one in software.items()}, "rows": rows})
        return 0
    _print_checks(checks)
    shares = {name: getattr(software["eager"], name) for name in ("bandwidth", "half", "narrow")}
    print("shares of the peak, fitted: " + ", ".join(f"{name} {value:.2f}" for name, value in shares.items()))
    unpacking = software["eager"].unpacking
    print(f"unpacking on the way: {unpacking:.1f} operations of a product for one of the plain cores' (fitted)")
    print(f"a layer takes at least {software['eager'].layer_us:.0f} µs in PyTorch (fitted), "
          f"{software['engine'].layer_us:.0f} µs in an engine (assumed)")  # fmt: skip
    return 0


def row_of(check) -> dict:
    row = asdict(check.figure) | {"predicted": check.predicted, "binds": check.binds}
    return row | {"time_error": None if check.figure.fit else check.error}


def _measured(args: Namespace) -> int:
    """The stages of a measurement against the model of the same shape on `--device`."""
    from specdrive_ros.budget.figures import check_measurement

    checks = check_measurement(args.measured, args.device, args.software)
    if args.json:
        print_json({"version": 1, "rows": [row_of(one) for one in checks]})
    else:
        _print_checks(checks)
    return 0


def _print_checks(checks) -> None:
    head = ["device", "model", "precision", "stage", "measured", "predicted", "error of the time", "binds"]
    _print_table("the model of `budget` against measurements", head, [check_line(one) for one in checks], 150)
    errors = sorted(abs(one.error) for one in checks if not one.figure.fit)
    if errors:
        median, largest = errors[len(errors) // 2], errors[-1]
        print(f"{len(errors)} rows held out: error of the time {median:.0%} (median), {largest:.0%} (largest)")


def check_line(check) -> list[str]:
    row = check.figure
    stage = " ".join([row.stage, *[str(row.rows)] * (row.rows > 1), *[row.draft] * (row.draft != "none")])
    error = f"fitted ({row.fit})" if row.fit else f"{check.error:+.0%}"
    measured = f"{row.measured:g} {row.unit}"
    return [row.device, row.model, row.precision, stage, measured, f"{check.predicted:.1f}", error, check.binds]


def _print_table(title: str, head: list[str], rows: list[list[str]], width: int = 110) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD)
    for name in head:
        numeric = name in ("GB", "ms", "L", "passes", "predicted", "error of the time") or name.endswith(", ms")
        table.add_column(name, justify="right" if numeric else "left")
    for row in rows:
        table.add_row(*row)
    out = Console(width=None if sys.stdout.isatty() else width, highlight=False)
    if title:
        out.print(title)
    out.print(table)
