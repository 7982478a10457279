"""The golden drafts and the sizes of their target."""

import json
from pathlib import Path

import pytest

from specdrive_ros.target.config import TextConfig

GOLDEN = Path(__file__).parents[1] / "golden" / "drafts_A"
SIZES = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
         "head_dim", "vocab_size", "rope_theta", "rms_norm_eps")  # fmt: skip


@pytest.fixture(scope="session")
def golden() -> Path:
    return GOLDEN


@pytest.fixture(scope="session")
def text() -> TextConfig:
    released = json.loads((GOLDEN / "target" / "config.json").read_text())
    return TextConfig(**{name: released[name] for name in SIZES}, mrope_section=(4, 2, 2))
