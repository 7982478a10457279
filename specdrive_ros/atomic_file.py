"""Files that are replaced in one step: a reader sees the old file or the new one, never half of it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yields a path beside `path` to write to. On success it takes the place of `path`; on failure it is removed.

    Survives a killed process, not a power cut: nothing is synced to disk.
    """
    unfinished = path.with_name(path.name + ".unfinished")
    try:
        yield unfinished
        os.replace(unfinished, path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
