"""Devices, shapes and figures as they ship are right, wrong ones are refused with place, rule and value."""

import json
from dataclasses import MISSING, fields

import pytest
import yaml

from specdrive_ros.budget.cycle import DRAFTS
from specdrive_ros.budget.device import ARITHMETIC, DEVICES, PRECISIONS, Device, Fact, find_device, find_precision
from specdrive_ros.budget.figures import SOFTWARE, STAGES, Figure, Figures
from specdrive_ros.budget.shape import SHAPES, CycleShape, ExpertShape, ModelShape, TextShape, VisionShape, read_shape
from specdrive_ros.yaml_file import known_names
from specdrive_ros.errors import InputError
from specdrive_ros.installation import data_roots

ROOT = data_roots()[0] / "engines"
FACT = {"value": 8, "source": "https://example.org"}
GOOD = {"title": "x", "memory_gb": FACT, "bandwidth_gb_per_s": FACT, "tflops": {"fp32": FACT, "fp16": FACT}}


@pytest.mark.parametrize("name", known_names(DEVICES))
def test_shipped_devices(name):
    device = find_device(name)
    assert find_device(ROOT / "devices" / f"{name}.yaml") == device
    assert 50 < device.bandwidth_gb_per_s.value < 10_000 and 4 <= device.memory_gb.value <= 200
    rates = {name: fact.value for name, fact in device.tflops.items()}
    assert rates["fp32"] < rates["fp16"]
    assert rates.get("fp4", 1e9) > rates.get("fp8", rates["fp16"]) >= rates["fp16"]


def test_the_devices_that_were_promised():
    wanted = {"orin-nano", "orin-nx", "orin-agx", "thor", "drive-thor", "rtx-4090", "rtx-5090", "l40s", "h100", "h200"}
    assert wanted <= set(known_names(DEVICES))


@pytest.mark.parametrize("name", known_names(SHAPES))
def test_shipped_shapes(name):
    assert read_shape(name).source.startswith("https://")


def schema(name):
    return json.loads((ROOT / f"{name}.schema.json").read_text())


def says_the_same(rule, kind):
    """Keys, needed keys and defaults of a part of a schema are those of a dataclass."""
    needed = {one.name for one in fields(kind) if one.default is MISSING}
    assert set(rule["properties"]) == {one.name for one in fields(kind)} and set(rule["required"]) == needed
    assert rule["additionalProperties"] is False
    for one in fields(kind):
        if "default" in rule["properties"][one.name]:
            assert rule["properties"][one.name]["default"] == one.default


def test_schemas_say_what_the_code_says():
    device, shape, figures = schema("device"), schema("shape"), schema("figures")
    says_the_same(device, Device)
    says_the_same(device["$defs"]["fact"], Fact)
    assert set(device["properties"]["tflops"]["properties"]) == set(ARITHMETIC)
    says_the_same(shape, ModelShape)
    parts = {"text": TextShape, "vision": VisionShape, "expert": ExpertShape, "cycle": CycleShape}
    for name, kind in parts.items():
        says_the_same(shape["properties"][name], kind)
    says_the_same(figures["items"], Figure)
    choices = {name: rule.get("enum") for name, rule in figures["items"]["properties"].items()}
    assert choices["precision"] == list(PRECISIONS) and choices["stage"] == list(STAGES)
    assert choices["draft"] == list(DRAFTS) and choices["software"] == list(SOFTWARE)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"memory_gb": 8}, "memory_gb: must be a mapping with keys among value, source, note, checked, got 8"),
        ({"memory_gb": {"value": 8}}, "memory_gb: missing key 'source'; the keys are value, source, note, checked"),
        ({"memory_gb": FACT | {"value": -1}}, "memory_gb: value must be a number above 0, got -1"),
        ({"memory_gb": FACT | {"value": True}}, "memory_gb: value must be a number above 0, got True"),
        ({"memory_gb": FACT | {"source": "a friend"}}, "source must be an address that begins with https://, got"),
        ({"memory_gb": FACT | {"checked": 3}}, "checked must be an address, got 3"),
        ({"tflops": {"fp16": FACT}}, "must be fp32, fp16 and others of fp32, fp16, fp8, int8, fp4, got ['fp16']"),
        ({"tflops": {"fp32": FACT, "fp16": FACT, "fp3": FACT}}, "tflops must be fp32, fp16 and others"),
        ({"tflops": [1]}, "tflops: must be a mapping, got [1]"),
        ({"shared_memory": "no"}, "shared_memory must be true or false, got 'no'"),
        ({"title": 7}, "title must be the device's name, got 7"),
        ({"colour": "green"}, "unknown key 'colour'; the keys are title, memory_gb"),
    ],
)
def test_wrong_devices(tmp_path, change, said):
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(GOOD))
    assert find_device(path).title == "x"
    path.write_text(yaml.safe_dump(GOOD | change))
    with pytest.raises(InputError) as caught:
        find_device(path)
    assert said in str(caught.value) and str(path) in str(caught.value)


@pytest.mark.parametrize("content", ["", "[1", "7", "\xff\xfe", "title: 2026-13-45"])
def test_no_device_at_all(tmp_path, content):
    path = tmp_path / "mine.yaml"
    path.write_text(content, encoding="latin-1")
    with pytest.raises(InputError, match="mine.yaml: (must be a mapping|not readable as YAML)"):
        find_device(path)


def test_unknown_names():
    with pytest.raises(InputError, match="device 'mars': neither a file nor a name; known names: .*thor"):
        find_device("mars")
    with pytest.raises(InputError, match="precision 'int3': must be one of fp16, bf16"):
        find_precision("int3")
    with pytest.raises(InputError, match="precision fp8: Jetson AGX Orin 64GB has no fp8 arithmetic; .* int4"):
        find_device("orin-agx").flop_per_s(find_precision("fp8"))


@pytest.mark.parametrize(
    ("section", "change", "said"),
    [
        ("text", {"layers": 0}, "text: layers must be a whole number of at least 1, got 0"),
        ("text", {"layers": 1.5}, "text: layers must be"),
        ("cycle", {"capacity": 10}, "cycle: capacity must be at least 3047 (prompt and reasoning), got 10"),
        ("vision", {"depth": 3}, "vision: unknown key 'depth'"),
    ],
)
def test_wrong_shapes(tmp_path, section, change, said):
    content = yaml.safe_load((ROOT / "shapes" / "alpamayo-r1.yaml").read_text())
    content[section] |= change
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(content))
    with pytest.raises(InputError) as caught:
        read_shape(path)
    assert said in str(caught.value)


ROW = {"device": "thor", "model": "qwen3-8b", "precision": "nvfp4", "software": "engine", "stage": "tokens",
       "measured": 46.8, "unit": "tokens/s", "source": "https://example.org"}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"stage": "lunch"}, "row 1: stage must be one of tokens, prefill"),
        ({"stage": ["pass"]}, "row 1: stage must be one of"),
        ({"unit": "s"}, "unit must be one of tokens/s, ms, got 's'"),
        ({"rows": 0}, "rows must be a whole number of at least 1, got 0"),
        ({"measured": "fast"}, "measured must be a number above 0, got 'fast'"),
        ({"source": "heard"}, "source must be an address"),
        ({"accepted_length": 0.5}, "accepted_length must be a number of at least 1"),
    ],
)
def test_wrong_figures(tmp_path, change, said):
    path = tmp_path / "figures.yaml"
    path.write_text(yaml.safe_dump([ROW | change]))
    with pytest.raises(InputError) as caught:
        Figures.load(path)
    assert said in str(caught.value)


def test_figures_that_settle_nothing(tmp_path):
    path = tmp_path / "figures.yaml"
    path.write_text(yaml.safe_dump([ROW]))
    with pytest.raises(InputError, match="no row settles bandwidth; one must have fit: bandwidth"):
        Figures.load(path).check()
    path.write_text("a: b")
    with pytest.raises(InputError, match="must be a list of rows, got dict"):
        Figures.load(path)
