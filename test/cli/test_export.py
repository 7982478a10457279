import json
import os

import pytest

from specdrive_ros.cli.main import main


def fault(capsys, *argv) -> str:
    assert main(["export", *map(str, argv)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_unknown_model(capsys, tmp_path):
    pytest.importorskip("onnxscript", reason="needs the train extra")
    assert "known names: mini" in fault(capsys, "no_such_model", tmp_path)


def test_tap_layer_out_of_range(capsys, tmp_path, exported):
    assert "tap layers [9]: each must be 0 … 4" in fault(
        capsys, exported, tmp_path / "out", "--tap-layers", 9
    )


def test_folder_that_cannot_be_written(capsys, tmp_path, exported):
    (tmp_path / "file").write_text("")
    assert "cannot be written" in fault(capsys, exported, tmp_path / "file" / "out")


def test_json_document(capsys, exported, monkeypatch):
    from specdrive_ros.runtime import export

    compared = [export.Comparison("token logits", 1e-6, 1e-4)]
    monkeypatch.setattr(export, "export_checkpoint", lambda *_, **__: compared)
    assert main(["export", str(exported), str(exported), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["outputs"] == [{"output": "token logits", "error": 1e-6, "tolerance": 1e-4}]
    assert set(document["graphs"]) == {"vision.onnx", "text.onnx", "action_step.onnx"}
    assert document["folder"] == os.fspath(exported)


def test_no_comparison_where_memory_is_short(capsys, exported, monkeypatch):
    from specdrive_ros.runtime import export, weights_file

    asked = []
    monkeypatch.setattr(export, "export_checkpoint", lambda *_, comparing, **__: asked.append(comparing) or [])
    monkeypatch.setattr(weights_file, "available_bytes", lambda: 1000)
    assert main(["export", str(exported), str(exported)]) == 0
    error = capsys.readouterr().err
    assert "no comparison with PyTorch: it needs about" in error and "--compare does it all the same" in error
    assert main(["export", str(exported), str(exported), "--compare"]) == 0
    monkeypatch.setattr(weights_file, "available_bytes", lambda: 10**12)
    assert main(["export", str(exported), str(exported)]) == 0
    assert main(["export", str(exported), str(exported), "--no-compare"]) == 0
    assert asked == [False, True, True, False]
