"""Fixtures for every test: where the checkout is and where reference material lies beside it."""

import hashlib
import tempfile
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def checkout() -> Path:
    """The root of the repository."""
    return CHECKOUT


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of recordings and reference numbers; tests that need it skip where it is absent."""
    folder = CHECKOUT.parent / "shared"
    if not folder.is_dir():
        pytest.skip(f"no reference material: {folder} does not exist")
    return folder


@pytest.fixture(scope="session")
def exported(request) -> Path:
    """The reference checkpoint with its ONNX graphs.

    Made once per version of the code that makes them and kept in pytest's cache: tracing takes a while.
    """
    pytest.importorskip("onnxscript", reason="needs the train extra")
    package = CHECKOUT / "specdrive_ros"
    sources = [package / "target" / "network.py"]
    sources += [package / "runtime" / f"{name}.py" for name in ("bindings", "export", "graphs")]
    version = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]
    folder = request.config.cache.mkdir("exported") / version
    if not folder.is_dir():
        from specdrive_ros.runtime.export import export_checkpoint

        with tempfile.TemporaryDirectory(dir=folder.parent) as unfinished:
            made = Path(unfinished) / "checkpoint"
            export_checkpoint(CHECKOUT / "test" / "golden" / "alpamayo_A" / "checkpoint", made)
            made.rename(folder)
    return folder
