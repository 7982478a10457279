import json

import pytest

from specdrive_ros.cli import bench, bench_long
from specdrive_ros.cli.main import main

LINES = [f"Slow down since the {colour} car {what}."
         for colour in ("red", "blue") for what in ("brakes", "turns", "stops")]
ROW_OF_A_METHOD = {"draft", "rope", "tokens", "target_passes", "accepted_length", "routine_share", "ms_per_reasoning",
                   "speedup", "identical", "mismatches"}  # fmt: skip


@pytest.fixture
def phrases(tmp_path):
    path = tmp_path / "phrases.txt"
    path.write_text("\n".join(LINES * 4) + "\n\n")
    return path


def test_phrases_as_json(phrases, capsys, tmp_path):
    out = tmp_path / "results" / "phrases.json"
    assert main(["bench", "decode", "--phrases", str(phrases), "--json", "--out", str(out)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document == json.loads(out.read_text())
    assert document["sentences"] == 24 and document["distinct"] == 6 and document["splits"] == 5
    assert [(row["shape"], row["nodes"]) for row in document["methods"]] == [
        ("chain", 16), ("tree", 16), ("tree", 60), ("tree", 128)
    ]
    for row in document["methods"]:
        assert row["accepted_length"] == pytest.approx(row["tokens"] / row["target_passes"], abs=1e-4)


def test_phrases_with_a_tokenizer_and_as_lines(phrases, capsys, checkout):
    tokenizer = checkout / "test" / "golden" / "alpamayo_A" / "checkpoint"
    assert main(["bench", "decode", "--phrases", str(phrases), "--tokenizer", str(tokenizer)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5 and "24 sentences, 6 different" in lines[0]


@pytest.mark.parametrize(
    "argv, says",
    [
        (["--phrases", "/no/such"], "/no/such: cannot be read"),
        (["--tokenizer", "x"], "--tokenizer: goes with --phrases"),
        (["--prompts", "0"], "--prompts"),
        (["--out", "/dev/null/out.json"], "cannot write to --out /dev/null: "),
        (["--out", "/"], "cannot write to --out /; name a file you may write to"),
        (["--draft", "fast"], "--draft fast: no such draft"),
        (["--model", "nosuch"], "nosuch"),
    ],
)
def test_wrong_arguments(capsys, argv, says):
    assert main(["bench", "decode", *argv]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    "argv, says",
    [
        (["--minutes", "nan"], "--minutes nan: must be above 0"),
        (["--runtime", "gpu"], "--runtime gpu: not known; there are onnxruntime, torch, tensorrt"),
        (["--draft", "fast"], "--draft fast: no such draft"),
        (["--model", "nosuch"], "model 'nosuch': neither a folder nor a name"),
        (["--log", "/dev/null/log"], "cannot write to --log /dev/null/log"),
        (["--out", "/"], "cannot write to --out /; name a file"),
    ],
)
def test_a_node_that_could_not_be_configured_is_not_started(capsys, argv, says):
    assert main(["bench", "node", *argv]) == 2
    assert says in capsys.readouterr().err


def test_what_cannot_be_written_is_said_before_anything_is_measured(phrases, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(bench, "phrases_document", lambda args: pytest.fail("it was measured"))
    monkeypatch.setattr(bench_long, "long_document", lambda args: pytest.fail("it was measured"))
    (tmp_path / "file").write_text("mine")
    assert main(["bench", "decode", "--phrases", str(phrases), "--out", str(tmp_path)]) == 2
    assert main(["bench", "long", "--out", str(tmp_path / "file")]) == 2
    assert capsys.readouterr().err.count("cannot write to --out") == 2
    assert (tmp_path / "file").read_text() == "mine"


def test_methods_on_a_model(exported, tmp_path, capsys):
    """The reference checkpoint with a phrasebook of its own: every method writes plain decoding's words."""
    import shutil

    model = shutil.copytree(exported, tmp_path / "model")
    text = tmp_path / "phrases.txt"
    text.write_text("Keep lane since the road is clear.\nSlow down since the lead vehicle is slowing.\n")
    learn = ["train", "draft", "--kind", "phrasebook", "--phrases", str(text), "--model", str(model), "--json"]
    assert main(learn) == 0
    assert json.loads(capsys.readouterr().out)["sentences"] == 2
    assert main([*learn, "--out", str(tmp_path)]) == 0  # a folder: there, under its usual name
    assert json.loads(capsys.readouterr().out)["phrasebook"] == str(tmp_path / "phrasebook.safetensors")
    argv = ["bench", "decode", "--model", str(model), "--prompts", "2", "--threads", "1", "--json"]
    assert main([*argv, "--draft", "carryover", "phrasebook", "carryover+phrasebook"]) == 0
    document = json.loads(capsys.readouterr().out)
    rows = document["methods"]
    assert document.keys() >= {"version", "model", "runtime", "threads", "prompts", "max_tokens"}
    assert all(row.keys() >= ROW_OF_A_METHOD for row in rows)
    assert [row["draft"] for row in rows] == ["none", "carryover", "phrasebook", "carryover+phrasebook"]
    assert all(row["identical"] and row["mismatches"] == 0 for row in rows)
    assert rows[0]["accepted_length"] == 1.0 and rows[0]["speedup"] == 1.0
    assert len({row["tokens"] for row in rows}) == 1
    assert set(rows[0]["ms_per_reasoning"]) >= {"median", "p99"}
