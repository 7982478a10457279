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
    assert set(document["graphs"]) == {"vision.onnx", "text.onnx", "action.onnx", "action_step.onnx"}
    assert document["folder"] == os.fspath(exported)
