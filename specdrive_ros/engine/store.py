"""A folder of built engines that cannot go stale: written completely or not at all, checked before use.

An engine is machine code. `load` returns bytes only if the manifest names the file, the entry is sealed, the identity
is the wanted one, and size and hash of the very bytes returned are right. Everything else is an `EngineFault` that
says what is wrong; none of them is fatal, since an engine can be built again. Files are named by their content and
never overwritten, so that readers and writers do not interfere. Knows no TensorRT.
"""

import fcntl
import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from specdrive_ros.engine.faults import EngineDamaged, EngineFault, EngineMismatch, EngineMissing
from specdrive_ros.engine.identity import EngineIdentity
from specdrive_ros.engine.manifest import (
    ENGINE_FILE,
    MANIFEST,
    Binding,
    Entry,
    read_manifest,
    replace_file,
    write_manifest,
)
from specdrive_ros.errors import InputError

_LOCK = ".lock"
_READS = 3  # a file may be pruned between reading its entry and opening it


@dataclass(frozen=True)
class StoredEngine:
    """An engine that passed every check."""

    entry: Entry
    content: bytes


@dataclass(frozen=True)
class Removed:
    """A file that `prune` removed, and why."""

    file: str
    why: str


class EngineStore:
    """The engines in one folder, which is made when the first one is written."""

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)

    def entries(self) -> list[Entry]:
        """All entries. Raises `EngineDamaged` if the manifest is damaged."""
        return read_manifest(self.folder)

    def load(self, identity: EngineIdentity) -> StoredEngine:
        """The engine with exactly this identity. Raises `EngineFault` saying what differs or what is damaged."""
        for attempt in range(_READS):
            entry = self._find(identity)
            try:
                return StoredEngine(entry, self.read(entry))
            except EngineMissing:
                if attempt == _READS - 1 or entry in self.entries():
                    raise
        raise AssertionError("unreachable")

    def _find(self, wanted: EngineIdentity) -> Entry:
        of_graph = [entry for entry in self.entries() if entry.identity.graph == wanted.graph]
        if not of_graph:
            raise EngineMissing(f"{self.folder}: no engine of {wanted.graph}")
        differing = [(entry.identity.differences(wanted), entry) for entry in of_graph]
        differences, nearest = min(differing, key=lambda pair: len(pair[0]))
        if differences:
            raise EngineMismatch(
                f"{self.folder / nearest.file}: was built from something else: {'; '.join(differences)}", differences
            )
        return nearest

    def read(self, entry: Entry) -> bytes:
        """The checked bytes of an entry's file. Raises `EngineMissing` or `EngineDamaged`."""
        path = self.folder / entry.file
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                content = _read_regular(descriptor, path, entry.size)
            finally:
                os.close(descriptor)
        except FileNotFoundError:
            raise EngineMissing(f"{path}: is in the manifest, but gone") from None
        except OSError as error:
            raise EngineDamaged(f"{path}: cannot be read ({error.strerror})") from None
        if hashlib.sha256(content).hexdigest() != entry.sha256:
            raise EngineDamaged(f"{path}: is not what was written (its sha256 differs from the manifest's)")
        return content

    def put(
        self,
        identity: EngineIdentity,
        content: bytes,
        *,
        model: str = "",
        build_s: float = 0.0,
        bindings: tuple[Binding, ...] = (),
    ) -> Entry:
        """Writes engine and entry; an entry with the same identity is replaced. Raises `InputError` if it cannot."""
        if not content:
            raise InputError(f"an engine of {identity.graph} without a byte is none")
        digest = hashlib.sha256(content).hexdigest()
        built_at = datetime.now(timezone.utc).isoformat(timespec="seconds")
        file = f"{identity.graph}-{digest[:16]}.engine"
        entry = Entry(identity, file, len(content), digest, model, built_at, round(build_s, 2), bindings)
        with self._saying_what_fails(), self._writing():
            replace_file(self.folder / file, content)
            others = [each for each in self._entries_or_none() if each.identity.key != identity.key]
            write_manifest(self.folder, [*others, entry])
        return entry

    def prove_writable(self) -> None:
        """Checks before an engine is compiled, which takes minutes, that it can be kept. Raises `InputError` if
        not."""
        with self._saying_what_fails(), self._writing():
            pass

    @contextmanager
    def _saying_what_fails(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise InputError(f"{self.folder}: engines cannot be written there ({error.strerror or error})") from None

    def _entries_or_none(self) -> list[Entry]:
        """The entries; a damaged manifest is set aside, because what it names cannot be trusted any more."""
        try:
            return self.entries()
        except EngineDamaged:
            (self.folder / MANIFEST).rename(self.folder / f"{MANIFEST}.damaged")
            return []

    def faults(self, entry: Entry) -> tuple[str, ...]:
        """What is wrong with an entry's file; empty if nothing is."""
        try:
            self.read(entry)
        except EngineFault as fault:
            return (str(fault),)
        return ()

    def prune(self, unwanted: dict[str, str] | None = None) -> list[Removed]:
        """Removes entries that cannot be served, those in `unwanted` (key of an identity -> why), and files that no
        entry names; a file that another entry also names stays. Raises `InputError` if the folder cannot be
        written."""
        if not self.folder.is_dir():
            raise InputError(f"{self.folder}: no such folder of engines")
        removed, kept = [], []
        try:
            with self._writing():
                for entry in self._entries_or_none():
                    why = (unwanted or {}).get(entry.identity.key) or next(iter(self.faults(entry)), None)
                    if why is None:
                        kept.append(entry)
                    else:
                        removed.append(Removed(entry.file, why))
                write_manifest(self.folder, kept)
                removed += self._remove_files({entry.file for entry in kept}, {each.file for each in removed})
        except OSError as error:
            raise InputError(f"{self.folder}: engines cannot be removed there ({error.strerror or error})") from None
        return removed

    def _remove_files(self, kept: set[str], known: set[str]) -> list[Removed]:
        """Removes our leftover files; other people's files stay."""
        orphans = []
        for path in sorted(self.folder.iterdir()):
            ours = ENGINE_FILE.fullmatch(path.name) or path.name.startswith(".unfinished-")
            if not ours or path.name in kept or path.is_dir():
                continue
            path.unlink()
            if path.name not in known:
                orphans.append(Removed(path.name, "no manifest names it"))
        return orphans

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Allows one writer at a time, across processes. Readers do not wait."""
        self.folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def _read_regular(descriptor: int, path: Path, size: int) -> bytes:
    """All of a regular file that has exactly this size."""
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        raise EngineDamaged(f"{path}: is no regular file")
    if found.st_size != size:
        raise EngineDamaged(f"{path}: has {found.st_size} bytes, its manifest says {size}")
    with os.fdopen(descriptor, "rb", closefd=False) as file:
        return file.read(size)
