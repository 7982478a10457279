"""From driving scenes to a drive with drafts, by the commands alone, on a very small target."""

import json
import shutil

import pytest

pytest.importorskip("onnxscript", reason="needs the train extra")

from specdrive_ros.cli.main import main  # noqa: E402
from specdrive_ros.draft.registry import draft_path  # noqa: E402

NETWORKS = ("eagle3-mirror", "dflash-flat")  # one of each kind and rotary setting; the other two: test_cycle.py
COMPANY = "carryover+phrasebook+eagle3-mirror+dflash"


def train(model, data, runs, kind, rope, *more):
    """Exit code of a training of three steps."""
    return main(["train", "draft", "--kind", kind, "--rope", rope, "--model", str(model), "--data", str(data),
                 "--run", str(runs / f"{kind}-{rope}"), "--samples", "4", "--steps", "3", "--batch", "2",
                 "--block", "8", "--threads", "1", *more])  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def model(target, data, runs, tmp_path_factory):
    """The target with its graphs, two networks and a phrasebook, and settings that name a company."""
    folder = shutil.copytree(target, tmp_path_factory.mktemp("model") / "tiny")
    (folder / "model.yaml").write_text(f"draft: {COMPANY}\nmax_new_tokens: 14\nscenarios: [cruise]\n")
    assert main(["export", str(folder), str(folder)]) == 0
    assert main(["train", "draft", "--kind", "phrasebook", "--model", str(folder), "--data", str(data)]) == 0
    for name in NETWORKS:
        kind, _, rope = name.partition("-")
        assert train(folder, data, runs, kind, rope) == 0
    return folder


def test_a_trained_draft_lies_where_it_is_looked_for(model, runs):
    for name in NETWORKS:
        files = {path.name for path in draft_path(model, name).iterdir()}
        assert {"config.json", "model.safetensors"} < files and sum(file.endswith(".onnx") for file in files) == 2
        config = json.loads((draft_path(model, name) / "config.json").read_text())
        assert config["specdrive"]["rope"] == name.partition("-")[2]
        assert not (draft_path(model, name) / "run").exists() and (runs / name / "state.safetensors").is_file()
    assert (runs / "features" / "train" / "features.json").is_file(), "one cache for every draft"


@pytest.mark.parametrize("runtime", ["onnxruntime", "torch"])
def test_every_draft_is_lossless(model, capsys, runtime):
    argv = ["bench", "decode", "--model", str(model), "--runtime", runtime, "--prompts", "3", "--threads", "1",
            "--json"]
    assert main([*argv, "--draft", *NETWORKS, COMPANY]) == 0
    document = json.loads(capsys.readouterr().out)
    rows = {row["draft"]: row for row in document["methods"]}
    assert list(rows) == ["none", *NETWORKS, COMPANY]
    assert all(row["identical"] and row["tokens"] == rows["none"]["tokens"] for row in rows.values())
    assert [rows[name]["rope"] for name in ("none", *NETWORKS, COMPANY)] == [None, "mirror", "flat", None]
    assert rows[COMPANY]["target_passes"] < rows["none"]["target_passes"]
    modelled = {row["draft"]: row for row in document["modelled_gpu"]["methods"]}
    assert set(modelled) == {*NETWORKS, COMPANY} and all(row["modelled"] for row in modelled.values())
    assert all(row["passes_with_drafts"] >= row["target_passes"] for row in modelled.values())


def test_costs_of_asking_are_measured_and_kept(model, tmp_path, capsys):
    folder = shutil.copytree(model, tmp_path / "model")
    argv = ["bench", "decode", "--model", str(folder), "--prompts", "1", "--threads", "1", "--no-modelled", "--json"]
    assert main([*argv, "--draft", COMPANY, "--measure-costs"]) == 0
    document = json.loads(capsys.readouterr().out)
    kept = json.loads((folder / "drafts" / "pass_costs.json").read_text())
    assert document["draft_costs_ms"] == kept["drafts"] and set(kept["drafts"]) == set(NETWORKS)
    assert all(cost["ms"] > 0 for cost in kept["drafts"].values()) and "modelled_gpu" not in document


def test_a_drive_takes_the_model_s_own_drafts(model, tmp_path):
    out = tmp_path / "drive"
    assert main(["drive", "--offline", "--model", str(model), "--seconds", "2", "--out", str(out)]) == 0
    summary = json.loads((out / "summary.json").read_text())
    assert summary["draft"] == "carryover+phrasebook+eagle3-mirror+dflash-flat"
    assert summary["reasoning"]["target_passes"] < summary["reasoning"]["tokens"]


def test_long_reasonings(model, tmp_path, capsys):
    out = tmp_path / "long"
    argv = ["bench", "long", "--model", str(model), "--prompts", "1", "--threads", "1", "--lengths", "6", "40",
            "--json"]
    assert main([*argv, "--draft", "phrasebook", "phrasebook+dflash", "--out", str(out)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [(row["draft"], row["length"], row["tokens"]) for row in document["rows"]] == [
        (draft, length, length) for draft in ("none", "phrasebook", "phrasebook+dflash") for length in (6, 40)
    ]
    assert all(row["identical"] and row["cpu_ms_per_token"] > 0 for row in document["rows"])
    assert document["rows"][1]["accepted_length_beyond"] == pytest.approx(34 / 34)
    assert len((out / "long.csv").read_text().splitlines()) == 7 and "<svg" in (out / "long.html").read_text()
    assert main([*argv, "--draft", "carryover"]) == 2
    assert "nothing to carry over" in capsys.readouterr().err


def test_whole_cycles(model, tmp_path, capsys):
    out = tmp_path / "cycle.json"
    argv = ["bench", "cycle", "--model", str(model), "--prompts", "2", "--threads", "1", "--json", "--out", str(out)]
    assert main(argv) == 0
    document = json.loads(capsys.readouterr().out)
    assert document == json.loads(out.read_text())
    rows = document["methods"]
    assert [row["draft"] for row in rows] == ["none", "carryover+phrasebook+eagle3-mirror+dflash-flat"]
    for row in rows:
        assert row["identical"] and row["latency_ms"]["verify"]["max"] > 0
        assert row["latency_ms"]["total"]["median"] >= row["latency_ms"]["vision"]["median"]


def test_a_finished_run_is_not_trained_again_and_another_is_refused(model, data, runs, capsys):
    weights = (draft_path(model, "dflash-flat") / "model.safetensors").read_bytes()
    assert train(model, data, runs, "dflash", "flat") == 0
    assert (draft_path(model, "dflash-flat") / "model.safetensors").read_bytes() == weights
    capsys.readouterr()
    assert train(model, data, runs, "dflash", "flat", "--learning-rate", "0.5") == 2
    assert "is a run with another learning_rate" in capsys.readouterr().err


def test_export_of_a_draft_for_its_target(model, tmp_path, capsys):
    draft = draft_path(model, "eagle3-mirror")
    assert main(["export", str(draft), str(tmp_path / "there"), "--target", str(model), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert set(document["graphs"]) == {"eagle3_newest.onnx", "eagle3_step.onnx"}
    assert all(one["error"] <= one["tolerance"] for one in document["outputs"])


@pytest.mark.parametrize(
    "change, says",
    [
        ({"vocab_size": 9999}, "vocabulary 9999, this target has"),
        ({"vocab_size": 77}, "mask_token_id: must be a token of the target"),
        ({"specdrive": {"target_layers": 3, "tap_layers": [1, 2, 3]}}, "number of layers 3, this target has 4"),
        ({"specdrive": {"target": "0123456789abcdef"}}, "was trained on the target 0123456789abcdef, this one is"),
        ({"specdrive": {"tap_layers": [0, 1, 3]}}, "reads the hidden states entering layers [0, 1, 3]"),
        ({"specdrive": {"rope": "mirror", "mrope_section": [4, 2, 2]}}, "holds the draft dflash-mirror"),
    ],
)
def test_a_draft_for_another_target_is_refused_by_name(model, tmp_path, capsys, change, says):
    folder = shutil.copytree(model, tmp_path / "model")
    path = draft_path(folder, "dflash-flat") / "config.json"
    config = json.loads(path.read_text())
    config["specdrive"] |= change.pop("specdrive", {})
    path.write_text(json.dumps(config | change))
    assert main(["bench", "decode", "--model", str(folder), "--draft", "dflash", "--prompts", "1"]) == 2
    fault = capsys.readouterr().err
    assert says in fault and str(path.parent) in fault and fault.count("\n") == 1


def test_what_is_missing_is_said_with_its_remedy(model, data, tmp_path, capsys):
    folder = shutil.copytree(model, tmp_path / "model")
    assert main(["bench", "decode", "--model", str(folder), "--draft", "eagle3", "--prompts", "1"]) == 2
    assert "no such draft; train it with: ./specdrive train draft --kind eagle3 --rope flat" in capsys.readouterr().err
    (draft_path(folder, "dflash-flat") / "dflash_block.onnx").unlink()
    assert main(["bench", "decode", "--model", str(folder), "--draft", "dflash", "--prompts", "1"]) == 2
    assert "no such graph; export it with: ./specdrive export" in capsys.readouterr().err
    assert main(["train", "draft", "--kind", "dflash", "--model", str(folder)]) == 2
    assert "needs --data" in capsys.readouterr().err
    assert train(folder, data, tmp_path, "dflash", "flat", "--tap-layers", "1", "9") == 2
    assert "--tap-layers 9: the target has 0 … 4" in capsys.readouterr().err
