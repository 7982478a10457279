"""Finds the package's data (`config/`, `models/`, `engines/`), however it was installed."""

import os
import sys
from pathlib import Path

PACKAGE = "specdrive_ros"


def data_roots() -> list[Path]:
    """Folders that may hold `config/`, best first: the checkout, colcon's share folders, pip's share folder."""
    prefixes = [*filter(None, os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep)), sys.prefix]
    return [Path(__file__).resolve().parents[1], *(Path(prefix) / "share" / PACKAGE for prefix in prefixes)]


def data_file(name: str | Path) -> Path:
    """The first `name` (such as config/fastdds.xml) that exists; where none does, the checkout's."""
    candidates = [root / name for root in data_roots()]
    return next((path for path in candidates if path.is_file()), candidates[0])
