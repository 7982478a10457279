import json
import struct
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from specdrive_ros.errors import InputError
from specdrive_ros.runtime.weights_file import (
    TensorPlace,
    available_bytes,
    comparison_bytes,
    sha256,
    tensor_places,
    weights_files,
)


@pytest.fixture
def folder(tmp_path) -> Path:
    tensors = {
        "a": np.arange(6, dtype=np.float32).reshape(2, 3),
        "b": np.array([1, 2], np.float16),
        "c": np.array(7, np.float32),
    }
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "np"})
    return tmp_path


def test_places_are_those_of_the_library(folder):
    places = tensor_places(folder)
    for name, values in load_file(folder / "model.safetensors").items():
        np.testing.assert_array_equal(places[name].map(), values)
        assert places[name].shape == values.shape


def test_read_is_float32_whatever_is_stored(folder, tmp_path):
    places = tensor_places(folder)
    for name in "abc":
        assert places[name].read().dtype == np.float32
        np.testing.assert_array_equal(places[name].read(), places[name].map())
    (tmp_path / "half").write_bytes(np.array([0x3F80, 0xC000, 0x3E20], np.uint16).tobytes())
    stored = TensorPlace(tmp_path / "half", 0, 6, "BF16", (3,))
    np.testing.assert_array_equal(stored.read(), np.array([1.0, -2.0, 0.15625], np.float32))


def test_memory_of_a_comparison(folder):
    """Nine numbers, three times in float32; and a machine has some memory free."""
    assert comparison_bytes(folder) == 2 * 4 * (6 + 2 + 1)
    assert available_bytes() > 10e6


def test_shards(folder):
    save_file({"d": np.ones(3, np.float32)}, folder / "second.safetensors")
    (folder / "model.safetensors").rename(folder / "first.safetensors")
    index = {"weight_map": {"a": "first.safetensors", "d": "second.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert [path.name for path in weights_files(folder)] == ["first.safetensors", "second.safetensors"]
    assert tensor_places(folder)["d"].path.name == "second.safetensors"


@pytest.mark.parametrize("name", ["gone.safetensors", "../model.safetensors"])
def test_shard_that_is_not_in_the_folder(folder, name):
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}))
    with pytest.raises(InputError, match="which is not there"):
        weights_files(folder)


def with_header(header: str, data: int) -> bytes:
    """A file of this header and `data` bytes of zeros."""
    return len(header).to_bytes(8, "little") + header.encode() + bytes(data)


DAMAGED = {
    "empty": b"",
    "no length": b"\xff" * 100,
    "no mapping": with_header("[]", 0),
    "cut short": with_header('{"a":{"dtype":"F32","shape":[9],"data_offsets":[0,36]}}', 8),
    "too few bytes": with_header('{"a":{"dtype":"F32","shape":[9],"data_offsets":[0,32]}}', 64),
    "unknown type": with_header('{"a":{"dtype":"X32","shape":[9],"data_offsets":[0,36]}}', 64),
}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED.keys())
def test_damaged_file(folder, content):
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(InputError, match="damaged or no safetensors file"):
        tensor_places(folder)


HEADER = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}


@pytest.mark.parametrize("change", [
    *({"shape": shape} for shape in ([10**30], [-1, -1], "1", [1.0], [True], [float("inf")], None)),
    *({"data_offsets": offsets} for offsets in ([0.0, 4.0], [-4, 0], [4, 0], [0], [10**30, 10**30 + 4], None)),
    *({"dtype": dtype} for dtype in (["F32"], "F99", None)),
])  # fmt: skip
def test_a_header_that_cannot_be(tmp_path, change):
    header = json.dumps({"a": HEADER | change}).encode()
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))
    with pytest.raises(InputError, match="damaged or no safetensors file"):
        tensor_places(tmp_path)


@pytest.mark.parametrize("weight_map", [[], {"a": 5}, {"a": ["x"]}, {"a": None, "b": "x"}])
def test_an_index_that_is_none(tmp_path, weight_map):
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    with pytest.raises(InputError, match="no index of shards"):
        weights_files(tmp_path)


def test_empty_folder(tmp_path):
    with pytest.raises(InputError, match="no model.safetensors"):
        weights_files(tmp_path)


def test_sha256(tmp_path):
    (tmp_path / "x").write_bytes(b"abc")
    assert sha256(tmp_path / "x").startswith("ba7816bf8f01cfea")
