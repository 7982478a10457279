"""Lower bounds on the time of work: by arithmetic, by bandwidth, or by starting layer after layer, whichever is
longest.

Nobody reaches a device's peak. The shares that software reaches are fitted to public measurements, one row of
`engines/figures.yaml` for each share; the other rows are left to show how wrong the model is. Knows no model.
"""

from dataclasses import dataclass

from specdrive_ros.budget.device import Device, Precision, find_precision
from specdrive_ros.budget.work import Work

COMPUTE, BANDWIDTH, LAUNCH = "compute", "bandwidth", "launch overhead"
UNPACKING = "unpacking"  # a kind of compute: on the plain cores, before the matrix cores can multiply
_WRITTEN_AND_READ = 4  # bytes of a weight in 16 bits


@dataclass(frozen=True)
class Software:
    """What runs the networks, as shares of a device's peaks that are reached.

    bandwidth: of the memory's
    half:      of fp16 arithmetic
    narrow:    of fp8, int8 and fp4 arithmetic
    unpacking: products with weights unpacked on the fly, as a multiple of the plain cores' arithmetic
    layer_us:  microseconds that a layer takes however small it is
    """

    name: str
    bandwidth: float
    half: float
    narrow: float
    unpacking: float
    layer_us: float

    def compute_share(self, work: Work, precision: Precision) -> float:
        narrow = work.products and precision.arithmetic != "fp16"
        return self.narrow if narrow else self.half


@dataclass(frozen=True)
class StageTime:
    """Milliseconds of a stage, the bound that determines them, and what each bound alone would take."""

    ms: float
    binds: str
    bounds_ms: dict[str, float]


def least_times(work: Work, device: Device, precision: Precision) -> dict[str, float]:
    """Milliseconds at the device's peaks; for launches: at a microsecond per layer."""
    half = device.flop_per_s(find_precision("fp16"))
    seconds = work.products / device.flop_per_s(precision) + work.other / half
    unpacking = work.products / device.plain_flop_per_s if precision.unpacks else 0.0
    return {
        COMPUTE: 1e3 * seconds,
        UNPACKING: 1e3 * unpacking,
        BANDWIDTH: 1e3 * work.bytes / device.bytes_per_s,
        LAUNCH: work.layers / 1e3,
    }


def stage_time(work: Work, device: Device, precision: Precision, software: Software) -> StageTime:
    """Weights that must be unpacked are unpacked on the fly or all beforehand, whichever is faster."""
    least = least_times(work, device, precision)
    bounds = {
        COMPUTE: least[COMPUTE] / software.compute_share(work, precision),
        BANDWIDTH: least[BANDWIDTH] / software.bandwidth,
        LAUNCH: least[LAUNCH] * software.layer_us,
    }
    if not least[UNPACKING]:
        return _longest(bounds)
    on_the_way = _longest(bounds | {COMPUTE: max(bounds[COMPUTE], least[UNPACKING] / software.unpacking)})
    moved = 1e3 * work.weights * _WRITTEN_AND_READ / (device.bytes_per_s * software.bandwidth)
    return min(on_the_way, _longest(bounds, moved), key=lambda way: way.ms)


def _longest(bounds: dict[str, float], before_ms: float = 0.0) -> StageTime:
    """The time by the longest bound. before_ms: for moving memory before anything else can begin."""
    shown = bounds | {BANDWIDTH: before_ms + bounds[BANDWIDTH]}
    return StageTime(before_ms + max(bounds.values()), max(shown, key=shown.get), shown)
