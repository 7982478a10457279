"""Each parameter file has a schema; the schema is that of the node's own table, and the file keeps to it."""

import json

import pytest
import yaml

pytest.importorskip("specdrive_ros.msg")
from specdrive_ros.ros.parameter_schema import NODES, property_of, schema_of, specs_of, text_of  # noqa: E402
from specdrive_ros.ros.parameters import ParameterSpec  # noqa: E402


@pytest.mark.parametrize("node", NODES)
def test_the_committed_schema_is_the_table_s(node, checkout):
    path = checkout / "config" / f"{node}.param.schema.json"
    assert path.read_text(encoding="utf-8") == text_of(node), (
        f"write it anew: python -m specdrive_ros.ros.parameter_schema {path.parent}"
    )


@pytest.mark.parametrize("node", NODES)
def test_the_file_keeps_to_its_schema(node, checkout):
    """Types, choices and limits as the schema has them; with jsonschema where it is installed, too."""
    document = yaml.safe_load((checkout / "config" / f"{node}.param.yaml").read_text())
    schema = json.loads((checkout / "config" / f"{node}.param.schema.json").read_text())
    properties = schema["patternProperties"][".+"]["properties"]["ros__parameters"]["properties"]
    names = {"boolean": bool, "integer": int, "number": (int, float), "string": str, "array": list}
    for name, value in document["/**"]["ros__parameters"].items():
        described = properties[name]
        assert isinstance(value, names[described["type"]]), name
        assert value in described.get("enum", [value]), name
        assert described.get("minimum", float("-inf")) <= value <= described.get("maximum", float("inf")) if (
            "minimum" in described
        ) else True, name
    try:
        import jsonschema
    except ImportError:
        return
    jsonschema.validate(document, schema)


def test_every_parameter_is_described():
    for node in NODES:
        for spec in specs_of(node):
            assert len(spec.description) > 8 and spec.descriptor().description.startswith(spec.description), spec.name
            assert spec.check(spec.default) == spec.default


def test_schema_words():
    spec = ParameterSpec("rate_hz", 10.0, "how often", 0.5, 100.0, read_only=True)
    assert property_of(spec) == {
        "type": "number", "description": "how often", "default": 10.0, "minimum": 0.5, "maximum": 100.0,
        "readOnly": True,
    }
    schema = schema_of("n", [spec])
    assert schema["additionalProperties"] is False and spec.descriptor().read_only
