"""The reference numbers and both runtimes on the reference checkpoint."""

from pathlib import Path

import numpy as np
import pytest

from specdrive_ros.runtime.registry import load_networks

GOLDEN = Path(__file__).parents[1] / "golden" / "alpamayo_A"


@pytest.fixture(scope="session")
def arrays():
    """`arrays("expected_vision")` -> the arrays of that file."""

    def read(file: str) -> dict[str, np.ndarray]:
        with np.load(GOLDEN / f"{file}.npz") as archive:
            return {name: archive[name] for name in archive.files}

    return read


@pytest.fixture(scope="session")
def torch_networks():
    pytest.importorskip("torch", reason="needs the train extra")
    return load_networks(GOLDEN / "checkpoint", "torch", threads=1)


@pytest.fixture(scope="session")
def onnx_networks(exported):
    return load_networks(exported, "onnxruntime", threads=1)


@pytest.fixture(params=["torch", "onnxruntime"])
def networks(request):
    return request.getfixturevalue({"torch": "torch_networks", "onnxruntime": "onnx_networks"}[request.param])
