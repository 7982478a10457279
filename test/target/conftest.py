"""The reference folder, its arrays and its model, loaded once."""

from pathlib import Path

import numpy as np
import pytest

from specdrive_ros.target.config import TargetConfig
from specdrive_ros.target.tokens import TargetTokenizer

GOLDEN = Path(__file__).parents[1] / "golden" / "alpamayo_A"


@pytest.fixture(scope="session")
def golden() -> Path:
    return GOLDEN


@pytest.fixture(scope="session")
def arrays():
    """`arrays("expected_vision")` -> the arrays of that file."""

    def read(file: str) -> dict[str, np.ndarray]:
        with np.load(GOLDEN / f"{file}.npz") as archive:
            return {name: archive[name] for name in archive.files}

    return read


@pytest.fixture(scope="session")
def config() -> TargetConfig:
    return TargetConfig.load(GOLDEN / "checkpoint")


@pytest.fixture(scope="session")
def tokenizer(config) -> TargetTokenizer:
    return TargetTokenizer.load(config)


@pytest.fixture(scope="session")
def target():
    torch = pytest.importorskip("torch", reason="needs the train extra")
    checkpoint = pytest.importorskip("specdrive_ros.target.checkpoint", reason="needs the train extra")
    torch.set_num_threads(1)  # the model is tiny and the cores are shared
    return checkpoint.load_target(GOLDEN / "checkpoint").requires_grad_(False)
