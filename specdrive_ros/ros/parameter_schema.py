"""JSON schemas of parameter files, made from the nodes' own tables, so that they cannot disagree.

    python -m specdrive_ros.ros.parameter_schema config     # rewrites config/NODE.param.schema.json
"""

import json
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from specdrive_ros.ros.parameters import ParameterSpec

NODES = ("planner", "controller", "sim")
DRAFT = "https://json-schema.org/draft/2020-12/schema"
TYPES = {bool: "boolean", int: "integer", float: "number", str: "string"}


def specs_of(node: str) -> tuple[ParameterSpec, ...]:
    """All parameters of a node."""
    module = import_module(f"specdrive_ros.ros.{node}_node")
    return module.PARAMETERS


def schema_of(node: str, specs: Sequence[ParameterSpec]) -> dict:
    """Schema of a file in ROS's form, `/**: {ros__parameters: {…}}`; the key may also be the node's name."""
    parameters = {
        "type": "object",
        "properties": {spec.name: property_of(spec) for spec in specs},
        "additionalProperties": False,
    }
    node_entry = {
        "type": "object",
        "properties": {"ros__parameters": parameters},
        "required": ["ros__parameters"],
        "additionalProperties": False,
    }
    return {
        "$schema": DRAFT,
        "title": f"Parameters of the {node} node",
        "type": "object",
        "patternProperties": {".+": node_entry},
        "additionalProperties": False,
    }


def property_of(spec: ParameterSpec) -> dict:
    described = {"description": spec.description, "default": spec.default}
    if isinstance(spec.default, list):
        return {"type": "array", "items": {"type": TYPES[spec.element]}, **described}
    described = {"type": TYPES[type(spec.default)], **described}
    if spec.choices:
        described["enum"] = list(spec.choices)
    if spec.minimum is not None:
        described |= {"minimum": spec.minimum, "maximum": spec.maximum}
    if spec.read_only:
        described["readOnly"] = True
    return described


def text_of(node: str) -> str:
    return json.dumps(schema_of(node, specs_of(node)), indent=2, ensure_ascii=False) + "\n"


def main(arguments: Sequence[str]) -> int:
    for node in NODES:
        path = Path(arguments[0]) / f"{node}.param.schema.json"
        path.write_text(text_of(node), encoding="utf-8")
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
