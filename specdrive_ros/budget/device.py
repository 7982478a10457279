"""Peak figures of a device: memory, bandwidth and dense arithmetic, each number with its source.

A YAML file under `engines/devices/` or anywhere else; `engines/device.schema.json` says the same to editors and CI.
Knows no model.
"""

from dataclasses import dataclass
from pathlib import Path

from specdrive_ros.budget.yaml_file import find_file, parse
from specdrive_ros.errors import InputError
from specdrive_ros.validation import is_number, require
from specdrive_ros.yaml_file import read_yaml

DEVICES = Path("engines") / "devices"
ARITHMETIC = ("fp32", "fp16", "fp8", "int8", "fp4")  # fp16 also stands for bf16; fp32 is that of the plain cores


@dataclass(frozen=True)
class Precision:
    """How the language model's matrices are stored and multiplied. bits: per weight, including its share of scales;
    unpacks: whether every weight is converted to fp16 before it is multiplied."""

    name: str
    bits: float
    arithmetic: str
    unpacks: bool = False


PRECISIONS = {
    one.name: one
    for one in (
        Precision("fp16", 16, "fp16"),
        Precision("bf16", 16, "fp16"),
        Precision("fp8", 8, "fp8"),
        Precision("int8", 8, "int8"),
        Precision("int4", 4.25, "fp16", unpacks=True),  # groups of 128 with a scale and a zero
        Precision("w4a8", 4.5, "int8"),  # blocks of 32 with a 16-bit scale; rounded rows times integers
        Precision("nvfp4", 4.5, "fp4"),  # blocks of 16 with an 8-bit scale
    )
}


@dataclass(frozen=True)
class Fact:
    """A number and the address of its source. note: how it follows from the source, if it is not stated there as such;
    checked: another page that confirms it, or what it follows from; "" if none was found."""

    value: float
    source: str
    note: str = ""
    checked: str = ""

    def __post_init__(self):
        require(is_number(self.value) and self.value > 0, "value", "a number above 0", self.value)
        https = isinstance(self.source, str) and self.source.startswith("https://")
        require(https, "source", "an address that begins with https://", self.source)
        again = isinstance(self.checked, str) and (not self.checked or self.checked.startswith(("https://", "http://")))
        require(again, "checked", "an address", self.checked)


@dataclass(frozen=True)
class Device:
    """memory_gb, bandwidth_gb_per_s: in 10^9 bytes, and bytes per second
    tflops:        10^12 operations per second without sparsity, of the GPU alone, with sums in fp32 if there is a
                   choice; by arithmetic
    shared_memory: whether processor and operating system use the same memory
    """

    title: str
    memory_gb: Fact
    bandwidth_gb_per_s: Fact
    tflops: dict[str, Fact]
    shared_memory: bool = False

    def __post_init__(self):
        require(isinstance(self.title, str) and self.title != "", "title", "the device's name", self.title)
        known = {"fp32", "fp16"} <= set(self.tflops) <= set(ARITHMETIC)
        require(known, "tflops", f"fp32, fp16 and others of {', '.join(ARITHMETIC)}", list(self.tflops))
        require(isinstance(self.shared_memory, bool), "shared_memory", "true or false", self.shared_memory)

    def flop_per_s(self, precision: Precision) -> float:
        """Peak operations per second in this precision. Raises `InputError` if the device does not support it."""
        if precision.arithmetic not in self.tflops:
            able = [name for name, one in PRECISIONS.items() if one.arithmetic in self.tflops]
            raise InputError(
                f"precision {precision.name}: {self.title} has no {precision.arithmetic} arithmetic; "
                f"it must be one of {', '.join(able)}"
            )
        return 1e12 * self.tflops[precision.arithmetic].value

    @property
    def plain_flop_per_s(self) -> float:
        """Peak of the cores that are not for matrices."""
        return 1e12 * self.tflops["fp32"].value

    @property
    def bytes_per_s(self) -> float:
        return 1e9 * self.bandwidth_gb_per_s.value


def find_device(name: str | Path) -> Device:
    """A device by name (in `engines/devices/`) or by path. Raises `InputError` if it is missing or wrong."""
    path = find_file("device", DEVICES, name)
    return parse(Device, read_yaml(path), str(path))


def find_precision(name: str) -> Precision:
    if name not in PRECISIONS:
        raise InputError(f"precision {name!r}: must be one of {', '.join(PRECISIONS)}")
    return PRECISIONS[name]
