"""The reference prompt, prefilled on the PyTorch runtime; decoding itself knows no runtime."""

from pathlib import Path

import numpy as np
import pytest

from specdrive_ros.decoding.rules import ReasoningRules
from specdrive_ros.decoding.state import DecodingState
from specdrive_ros.runtime.registry import load_networks
from specdrive_ros.target.tokens import TargetTokenizer

GOLDEN = Path(__file__).parents[1] / "golden" / "alpamayo_A"


@pytest.fixture(scope="session")
def arrays():
    """`arrays("expected_greedy")` -> the arrays of that file."""

    def read(file: str) -> dict[str, np.ndarray]:
        with np.load(GOLDEN / f"{file}.npz") as archive:
            return {name: archive[name] for name in archive.files}

    return read


@pytest.fixture(scope="session")
def networks():
    pytest.importorskip("torch", reason="needs the train extra")
    return load_networks(GOLDEN / "checkpoint", "torch", threads=1)


@pytest.fixture(scope="session")
def tokenizer(networks):
    return TargetTokenizer.load(networks.config)


@pytest.fixture
def rules(networks, tokenizer):
    """`rules(max_new_tokens)`."""
    return lambda limit: ReasoningRules.of(tokenizer, networks.config.text.vocab_size, limit)


@pytest.fixture(scope="session")
def prompt_end(networks, arrays):
    """The reference prompt's rows, logits and taps."""
    inputs, expected = arrays("inputs"), arrays("expected_prefill")
    features = networks.encode_images(inputs["pixel_values"], inputs["image_grid_thw"])
    ids = inputs["input_ids"][0]
    image_rows = np.flatnonzero(ids == 412)
    embeddings = networks.embed(ids)
    embeddings[image_rows] = features.embeddings
    deepstack = np.zeros((2, *embeddings.shape), np.float32)
    deepstack[:, image_rows] = features.deepstack
    cache = networks.new_cache(len(ids))
    output = networks.extend(embeddings, expected["position_ids"][:, 0], cache, deepstack=deepstack)
    return cache.rows, output.logits[-1], output.taps


@pytest.fixture
def state(networks, arrays, prompt_end) -> DecodingState:
    """A state of its own for each test, with room for 40 tokens."""
    rows, logits, taps = prompt_end
    cache = networks.new_cache(rows.shape[1] + 40)
    cache.append(rows)
    expected = arrays("expected_prefill")
    return DecodingState(
        cache,
        logits.copy(),
        taps,
        int(expected["rope_deltas"][0, 0]),
        arrays("inputs")["input_ids"][0],
        expected["position_ids"][:, 0],
    )
