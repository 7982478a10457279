"""`manifest.json` of a folder of engines: what each is, how it is checked, what it binds.

An entry is sealed with a hash over the rest of it, so that an entry that was edited by hand, or whose file was swapped
with another's, is detected before the engine is touched. The seal is not a signature: whoever may write to the folder
can run code as whoever loads from it. Reads and writes entries, not engines.
"""

import json
import os
import re
import stat
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from specdrive_ros.engine.faults import EngineDamaged
from specdrive_ros.engine.identity import EngineIdentity, digest_of
from specdrive_ros.errors import InputError
from specdrive_ros.json_file import parse_json

MANIFEST = "manifest.json"
VERSION = 1
ENGINE_FILE = re.compile(r"[a-z0-9_]+-[0-9a-f]{16}\.engine")
_SIZE_LIMIT = 16 * 2**20  # bytes


@dataclass(frozen=True)
class Binding:
    """One input or output of an engine, as described by the builder's network.

    mode:     input or output
    dtype:    float32, float16, bfloat16, int64 or int32
    shape:    -1 where it varies
    profiles: smallest, best and largest shape for each optimisation profile; empty for an output or a fixed shape
    """

    name: str
    mode: str
    dtype: str
    shape: tuple[int, ...]
    profiles: tuple[tuple[tuple[int, ...], ...], ...] = ()

    @classmethod
    def from_dict(cls, values: dict) -> "Binding":
        profiles = tuple(tuple(tuple(shape) for shape in ranges) for ranges in values["profiles"])
        return cls(values["name"], values["mode"], values["dtype"], tuple(values["shape"]), profiles)


@dataclass(frozen=True)
class Entry:
    """One engine.

    file, size, sha256: of the engine's file
    model:              folder of the checkpoint it was built from
    built_at, build_s:  when (UTC, ISO 8601) and how long it took to build
    bindings:           its inputs and outputs
    """

    identity: EngineIdentity
    file: str
    size: int
    sha256: str
    model: str
    built_at: str
    build_s: float
    bindings: tuple[Binding, ...] = ()

    def to_dict(self) -> dict:
        values = json.loads(json.dumps(asdict(self) | {"identity": self.identity.to_dict()}))
        values["key"] = self.identity.key
        return values | {"seal": digest_of(values)}

    @classmethod
    def from_dict(cls, values: object) -> "Entry":
        """Raises ValueError describing what is wrong with the entry."""
        if not isinstance(values, dict):
            raise ValueError("an entry must be a mapping")
        rest = {name: value for name, value in values.items() if name not in ("seal", "key")}
        try:
            identity = EngineIdentity.from_dict(rest.pop("identity"))
            bindings = tuple(map(Binding.from_dict, rest.pop("bindings")))
            entry = cls(identity=identity, bindings=bindings, **rest)
            _check_types(entry)
        except (KeyError, TypeError, InputError) as error:
            raise ValueError(f"an entry is incomplete or has unknown parts ({error})") from None
        if values.get("key") != identity.key or values.get("seal") != entry.to_dict()["seal"]:
            raise ValueError(f"the entry of {entry.file} was changed after it was written")
        return entry


def _check_types(entry: Entry) -> None:
    for name, kind in (("file", str), ("size", int), ("sha256", str), ("model", str), ("built_at", str)):
        if type(getattr(entry, name)) is not kind:
            raise TypeError(f"{name} must be {kind.__name__}")
    if not ENGINE_FILE.fullmatch(entry.file):
        raise TypeError(f"file {entry.file!r} is no name of an engine")


def read_manifest(folder: Path) -> list[Entry]:
    """The entries of a folder; none if there is no manifest.

    Raises `EngineDamaged` if the manifest cannot be read or any entry was changed.
    """
    path = folder / MANIFEST
    try:
        content = parse_json(_text_of(path))
        if not isinstance(content, dict) or not isinstance(content.get("engines"), list):
            raise ValueError("it must be a mapping with a list `engines`")
        if type(content.get("version")) is not int or content["version"] != VERSION:
            raise ValueError(f"version {content.get('version')!r}, this package reads {VERSION}")
        entries = [Entry.from_dict(each) for each in content["engines"]]
        if len({entry.identity.key for entry in entries}) != len(entries):
            raise ValueError("two entries have one key")
        return entries
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise EngineDamaged(f"{path}: damaged ({reason}); no engine of it is loaded; build them again") from None


def _text_of(path: Path) -> str:
    """Text of a regular file up to a manifest's size limit; a pipe would wait forever, a device would never end."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("no regular file")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            content = file.read(_SIZE_LIMIT + 1)
    finally:
        os.close(descriptor)
    if len(content) > _SIZE_LIMIT:
        raise ValueError(f"larger than {_SIZE_LIMIT} bytes")
    return content.decode()


def write_manifest(folder: Path, entries: list[Entry]) -> None:
    """Replaces the manifest in one step: a reader sees either the old or the new one."""
    content = {"version": VERSION, "engines": [entry.to_dict() for entry in entries]}
    replace_file(folder / MANIFEST, (json.dumps(content, indent=1) + "\n").encode())


def replace_file(path: Path, content: bytes) -> None:
    """Writes beside `path`, syncs, then replaces it. After a crash the old file is still there."""
    descriptor, unfinished = tempfile.mkstemp(prefix=".unfinished-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(unfinished, 0o644)
        os.replace(unfinished, path)
    except BaseException:
        Path(unfinished).unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # otherwise a power cut may lose the new name
    finally:
        os.close(folder)
