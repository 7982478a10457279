"""The device script: runs anywhere in its smallest shape, and says so where it cannot run."""

import json
import os
import subprocess
import sys

import pytest

from specdrive_ros.installation import data_roots

SCRIPT = data_roots()[0] / "engines" / "measure_gpu.sh"


def run(out, shape):
    variables = {**os.environ, "OUT": str(out), "SHAPE": shape, "PYTHON": sys.executable, "CUDA_VISIBLE_DEVICES": ""}
    variables["OMP_NUM_THREADS"] = "1"
    return subprocess.run(
        ["bash", SCRIPT, "--seconds", "0.01"], env=variables, capture_output=True, text=True, timeout=300
    )


def test_smallest_shape(tmp_path):
    pytest.importorskip("torch", reason="needs the train extra")
    done = run(tmp_path / "new" / "folder", "tiny")
    assert done.returncode == 0, done.stderr
    document = json.loads((tmp_path / "new" / "folder" / "measure_gpu.json").read_text())
    stages = {row["stage"]: row for row in document["stages"]}
    assert {"extend 1", "extend 4", "extend 60", "action 2 steps", "prefill 24", "dflash block 4"} <= stages.keys()
    assert all(row["median_ms"] > 0 and row["repetitions"] >= 5 and not row["cuda_graph"] for row in stages.values())
    plain = document["cycles"][0]
    assert plain["draft"] == "none" and plain["reasoning_ms"] == pytest.approx(20 * stages["extend 1"]["median_ms"])
    assert {one["accepted_length"] for one in document["cycles"]} == {1.0, 3.0, 5.0, 7.4}
    assert "| extend 60 |" in (tmp_path / "new" / "folder" / "measure_gpu.md").read_text()


def test_no_gpu(tmp_path):
    pytest.importorskip("torch", reason="needs the train extra")
    done = run(tmp_path, "10b")
    assert done.returncode == 2 and "no CUDA GPU that PyTorch can use" in done.stderr
    assert not list(tmp_path.iterdir())


def test_shape_of_the_released_model(monkeypatch):
    """36 layers of 4096 and the expert of 2048: about 8.2 and 2.3 billion parameters with vision and embeddings."""
    torch = pytest.importorskip("torch", reason="needs the train extra")
    import importlib

    monkeypatch.syspath_prepend(SCRIPT.parent)
    module = importlib.import_module("measure_gpu_networks")
    s = module.SHAPES["10b"]
    with torch.device("meta"):
        layer = module.Layer(s.hidden, s.inner, s.heads, s.kv_heads, s.head)
        expert = module.Layer(s.expert_hidden, s.expert_inner, s.expert_heads, s.kv_heads, s.head)
    text = s.layers * sum(weight.numel() for weight in layer.parameters()) + s.hidden * s.vocabulary
    assert 7.4e9 < text < 7.7e9
    assert 2.2e9 < s.layers * sum(weight.numel() for weight in expert.parameters()) < 2.4e9
