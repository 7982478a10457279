"""Public measurements that the model of a cycle is fitted to and compared with: `engines/figures.yaml`.

A row with `fit` determines one share of the software it ran on, and shows no error of its own; every other row is held
out. Also compares a measurement of `engines/measure_gpu.sh` with the model. Knows no command line.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from specdrive_ros.budget.cycle import VERIFIED
from specdrive_ros.budget.device import PRECISIONS, Device, find_device, find_precision
from specdrive_ros.budget.roofline import BANDWIDTH, COMPUTE, LAUNCH, UNPACKING, Software, least_times, stage_time
from specdrive_ros.budget.shape import CycleShape, ExpertShape, ModelShape, TextShape, VisionShape, find_shape
from specdrive_ros.budget.work import Stages, Work
from specdrive_ros.budget.yaml_file import parse
from specdrive_ros.errors import InputError
from specdrive_ros.json_file import parse_json
from specdrive_ros.installation import data_file
from specdrive_ros.validation import is_count, is_number, require
from specdrive_ros.yaml_file import read_yaml

FIGURES = Path("engines") / "figures.yaml"
SOFTWARE = {
    "engine": "compiled engines and CUDA graphs: TensorRT, TensorRT Edge-LLM, llama.cpp, MLC",
    "eager": "PyTorch, layer by layer from Python",
}
STAGES = (
    "tokens", "prefill", "pass", "vision", "action", "speculation", "eagle3 newest", "eagle3 step", "dflash block",
)  # fmt: skip
MEASURED = "measured here"  # the source of rows measured by the user
ENGINE_LAYER_US = 10.0  # assumed, no row determines it: ten kernels per layer, a microsecond each
_FIT = {"bandwidth": BANDWIDTH, "half": COMPUTE, "narrow": COMPUTE, "unpacking": UNPACKING, "layer_us": LAUNCH}
_DRAFT_STAGES = {
    "eagle3 newest": Stages.eagle3_newest,
    "eagle3 step": Stages.eagle3_step,
    "dflash block": lambda works, rows, cached: works.dflash_block(cached),
}
TOKENS_PER_S, MS = "tokens/s", "ms"


@dataclass(frozen=True)
class Figure:
    """One measured number.

    stage:    tokens (decoded one by one), prefill (of `rows`), pass (of `rows` after `cached`), vision (of `rows`
              images), action (all steps), speculation (tokens per second at an accepted length)
    tokens:   of a `tokens` row whose unit is ms: how many were written in that time
    assumes:  what the source does not say and was assumed here
    fit:      the value of `Software` that this row determines
    """

    device: str
    model: str
    precision: str
    software: str
    stage: str
    measured: float
    unit: str
    source: str
    rows: int = 1
    cached: int = 512
    tokens: int = 1
    draft: str = "none"
    accepted_length: float = 1.0
    assumes: str = ""
    fit: str = ""

    def __post_init__(self):
        for name, value, choices in (
            ("precision", self.precision, PRECISIONS), ("software", self.software, SOFTWARE),
            ("stage", self.stage, STAGES), ("unit", self.unit, (TOKENS_PER_S, MS)),
            ("fit", self.fit, ("", *_FIT)), ("draft", self.draft, VERIFIED),
        ):  # fmt: skip
            known = isinstance(value, str) and value in choices
            require(known, name, f"one of {', '.join(filter(None, choices))}", value)
        require(is_number(self.measured) and self.measured > 0, "measured", "a number above 0", self.measured)
        known = isinstance(self.source, str) and (self.source == MEASURED or self.source.startswith("https://"))
        require(known, "source", f"an address that begins with https://, or {MEASURED!r}", self.source)
        for name in ("rows", "cached", "tokens"):
            require(is_count(getattr(self, name)), name, "a whole number of at least 1", getattr(self, name))
        length = self.accepted_length
        require(is_number(length) and length >= 1, "accepted_length", "a number of at least 1", length)

    def work(self, shape: ModelShape) -> Work:
        """The work that was timed: one pass, one speculative round, or all of a stage."""
        works = Stages(shape, find_precision(self.precision))
        if self.stage == "vision":
            return works.vision(self.rows)
        if self.stage == "action":
            return works.action_step(self.cached) * shape.expert.steps
        if self.stage == "prefill":
            return works.text(self.rows, 0, 1)
        if self.stage in _DRAFT_STAGES:
            return _DRAFT_STAGES[self.stage](works, self.rows, self.cached)
        if self.stage != "speculation":
            return works.text(self.rows, self.cached, self.rows) * self.tokens
        verify = works.text(VERIFIED[self.draft], self.cached, VERIFIED[self.draft])
        propose = {"eagle3": works.eagle3_proposal, "dflash": works.dflash_proposal}.get(self.draft)
        return verify if propose is None else verify + propose(round(self.accepted_length), self.cached)

    @property
    def measured_ms(self) -> float:
        return self.measured if self.unit == MS else 1e3 * self._emitted / self.measured

    def predicted(self, ms: float) -> float:
        """Milliseconds of the work, converted to the unit of the row."""
        return ms if self.unit == MS else 1e3 * self._emitted / ms

    @property
    def _emitted(self) -> float:
        """Tokens that the work emits or takes in."""
        return self.accepted_length if self.stage == "speculation" else self.rows * self.tokens


@dataclass(frozen=True)
class Check:
    """A row, the model's prediction and its relative error: +0.1 is a tenth too many milliseconds (or too few
    tokens)."""

    figure: Figure
    predicted: float
    binds: str

    @property
    def error(self) -> float:
        """Relative error of the time."""
        ratio = self.predicted / self.figure.measured
        return (ratio if self.figure.unit == MS else 1 / ratio) - 1


class Figures:
    """All rows, and the software that was fitted to some of them."""

    def __init__(self, rows: Iterable[Figure]):
        self.rows = tuple(rows)

    @classmethod
    def load(cls, path: Path | None = None) -> "Figures":
        path = path or data_file(FIGURES)
        content = read_yaml(path)
        if not isinstance(content, list):
            raise InputError(f"{path}: must be a list of rows, got {type(content).__name__}")
        return cls(parse(Figure, row, f"{path}: row {index + 1}") for index, row in enumerate(content))

    @cached_property
    def software(self) -> dict[str, Software]:
        """Each value makes the row that determines it come out exactly; the least time per layer is PyTorch's,
        everything else the GPU libraries', whoever calls them. Raises `InputError` if a value is undetermined."""
        values = {row.fit: self._share(row) for row in self.rows if row.fit}
        if missing := [name for name in _FIT if name not in values]:
            raise InputError(f"figures: no row settles {missing[0]}; one must have fit: {missing[0]}")
        eager = Software("eager", **values)
        return {"engine": replace(eager, name="engine", layer_us=ENGINE_LAYER_US), "eager": eager}

    @staticmethod
    def _share(row: Figure) -> float:
        device, precision = find_device(row.device), find_precision(row.precision)
        share = least_times(row.work(find_shape(row.model)), device, precision)[_FIT[row.fit]] / row.measured_ms
        return 1 / share if row.fit == "layer_us" else share

    def check(self) -> list[Check]:
        runs = self.software
        return [_check(row, find_shape(row.model), find_device(row.device), runs[row.software]) for row in self.rows]


def _check(row: Figure, shape: ModelShape, device: Device, software: Software) -> Check:
    time = stage_time(row.work(shape), device, find_precision(row.precision), software)
    return Check(row, row.predicted(time.ms), time.binds)


def find_software(name: str) -> Software:
    if name not in SOFTWARE:
        raise InputError(f"software {name!r}: must be one of {', '.join(SOFTWARE)}")
    return Figures.load().software[name]


def check_measurement(path: Path, device: str, software: str) -> list[Check]:
    """The stages of a `measure_gpu.json` against the model. Raises `InputError` if it is another kind of file."""
    found, runs = find_device(device), find_software(software)
    shape, rows = read_measurement(path, device, software)
    return [_check(row, shape, found, runs) for row in rows]


def read_measurement(path: Path, device: str, software: str) -> tuple[ModelShape, list[Figure]]:
    """The shape that was measured, and a row for each of its stages, in the order they were timed."""
    try:
        document = parse_json(path.read_text(encoding="utf-8"))
        sizes, stages = document["shape"], [(one["stage"], one["median_ms"]) for one in document["stages"]]
        return _measured_shape(sizes), [_row(name, ms, sizes, device, software) for name, ms in stages if ms]
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise InputError(f"{path}: no measurement of engines/measure_gpu.sh ({reason})") from None


def _measured_shape(sizes: dict) -> ModelShape:
    def pick(*names: str) -> list[int]:
        return [sizes[name] for name in names]

    return ModelShape(
        "measured shape", "engines/measure_gpu.py",
        TextShape(*pick("layers", "hidden", "inner", "heads", "kv_heads", "head", "vocabulary")),
        VisionShape(*pick("vision_layers", "vision_hidden", "vision_inner", "vision_heads")),
        ExpertShape(*pick("expert_hidden", "expert_inner", "expert_heads", "waypoints", "flow_steps")),
        CycleShape(1, sizes["images"], sizes["patches"], sizes["prompt"], 1, sizes["capacity"]),
    )  # fmt: skip


def _row(stage: str, ms: float, sizes: dict, device: str, software: str) -> Figure:
    """A row for a stage named as in `measure_gpu.py`, such as `extend 16` or `eagle3 newest 8`."""
    kind, *words = stage.split()
    count = next(int(word) for word in words if word.isdigit())
    cached = sizes["prompt"] + 20  # that script has 20 tokens after the prompt
    row = Figure(device, "measured shape", "bf16", software, "pass", ms, MS, MEASURED, rows=count, cached=cached)
    names = {"extend": "pass", "eagle3": f"eagle3 {words[0]}", "dflash": "dflash block"}
    return replace(row, stage=names.get(kind, kind))
