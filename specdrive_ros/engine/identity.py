"""What an engine was made from: everything that would lead to a different engine, and the hash over it.

Two engines with the same key are interchangeable. Different keys are explained part by part, so that a refusal can say
what has changed. Knows no files beyond hashing them, and no TensorRT.
"""

import hashlib
import json
from dataclasses import asdict, dataclass, fields

from specdrive_ros.errors import InputError
from specdrive_ros.runtime.bindings import EXPORT_VERSION

_SHOWN = 12  # digits of a hash in a message


@dataclass(frozen=True)
class EngineIdentity:
    """graph:           name of the graph
    onnx:            sha256 of the graph's file
    weights:         weights file -> sha256
    precision:       fp32, fp16 or bf16
    profile:         canonical JSON of the shape ranges and build options
    builder:         Python module that built it
    builder_version: its version
    target:          what it runs on: compute capabilities (sm_89+sm_120), or the device's name if built on it
    export_version:  of our graphs
    added:           what the engine has in addition to the graph (`bindings.ADDED`)
    """

    graph: str
    onnx: str
    weights: dict[str, str]
    precision: str
    profile: str
    builder: str
    builder_version: str
    target: str
    export_version: int = EXPORT_VERSION
    added: str = ""

    @property
    def key(self) -> str:
        """sha256 over all parts."""
        return digest_of(self.to_dict())

    def to_dict(self) -> dict:
        """Every part; `added` only if not empty, so that older manifests keep their meaning."""
        return {name: value for name, value in asdict(self).items() if name != "added" or value}

    def differences(self, wanted: "EngineIdentity") -> tuple[str, ...]:
        """`part: of this engine -> wanted` for every part that differs."""
        found = []
        for field in fields(self):
            mine, theirs = getattr(self, field.name), getattr(wanted, field.name)
            if mine != theirs:
                found += _explain(field.name, mine, theirs)
        return tuple(found)

    @classmethod
    def from_dict(cls, values: object) -> "EngineIdentity":
        """Raises `InputError` if a part is missing, unknown or of a wrong type."""
        kinds = {field.name: field.type for field in fields(cls)}
        if isinstance(values, dict):
            values = {"added": "", **values}
        if not isinstance(values, dict) or values.keys() != kinds.keys():
            raise InputError(f"an identity has the parts {', '.join(kinds)}")
        for name, kind in kinds.items():
            wanted = dict if name == "weights" else kind
            if type(values[name]) is not wanted:
                raise InputError(f"{name} must be {wanted.__name__}, got {values[name]!r}")
        if not all(isinstance(each, str) for each in values["weights"].values()):
            raise InputError("weights must map file names to hashes")
        return cls(**values)


def digest_of(values: object) -> str:
    """sha256 of the canonical JSON of `values`."""
    return hashlib.sha256(canonical(values).encode()).hexdigest()


def canonical(values: object) -> str:
    return json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def _explain(name: str, mine, theirs) -> list[str]:
    if name == "weights":
        files = sorted({*mine, *theirs})
        return [
            f"weights {file}: {_short(mine.get(file))} -> {_short(theirs.get(file))}"
            for file in files
            if mine.get(file) != theirs.get(file)
        ]
    if name == "profile":
        return _explain_profile(mine, theirs)
    show = _short if name == "onnx" else str
    return [f"{name}: {show(mine) or 'nothing'} -> {show(theirs) or 'nothing'}"]


def _explain_profile(mine: str, theirs: str) -> list[str]:
    """The differences by key, if both can be read."""
    try:
        old, new = json.loads(mine), json.loads(theirs)
        keys = sorted({*old, *new})
    except (ValueError, TypeError):
        return [f"profile: {mine} -> {theirs}"]
    return [
        f"profile {key}: {canonical(old.get(key))} -> {canonical(new.get(key))}"
        for key in keys
        if old.get(key) != new.get(key)
    ]


def _short(digest: str | None) -> str:
    return "none" if digest is None else digest[:_SHOWN]
