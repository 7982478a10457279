"""`specdrive ablate` from nothing to the page, on a tiny target; what is there is not made again."""

import json
from xml.etree import ElementTree

import numpy as np
import pytest

from specdrive_ros.cli.main import main
from specdrive_ros.evaluation.ablation import making


@pytest.fixture(scope="module")
def small(tiny_target, tiny_scenes):
    """`small(folder)` -> arguments of an ablation that is as small as can be."""
    return lambda out: (
        f"ablate --model {tiny_target} --data {tiny_scenes} --out {out} --runtime torch --seeds 1 --prompts 2 "
        "--plans 1 --traced 2 --steps 2 --samples 4 --train-block 8 --blocks 4 8 --layers 1 --aarl-steps 1 "
        "--aarl-batch 1 --rollouts 2 --json"
    ).split()


@pytest.fixture(scope="module")
def ablated(small, tmp_path_factory, capfd_once):
    """(arguments, folder, document of the first run)."""
    out = tmp_path_factory.mktemp("ablation")
    argv = small(out)
    assert main(argv) == 0
    return argv, out, json.loads((out / "ablation.json").read_text())


@pytest.fixture(scope="module")
def capfd_once():
    """Progress and JSON of the module's one long run go nowhere."""
    import contextlib
    import io

    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield


def test_every_cell_is_in_the_table(ablated):
    _, out, document = ablated
    rows = {
        f"{kind}-{rope}{stage}"
        for kind in ("eagle3", "dflash")
        for rope in ("mirror", "flat")
        for stage in ("", "+static", "+self")
    }
    assert {record["row"] for record in document["table"]} == rows
    assert len(document["table"]) == 12 * 2 * 2  # splits, blocks
    for record in document["table"]:
        assert record["identical"] and record["prompts"] == 2 and record["plan_m"] < 0.05
        length = record["accepted_length"]
        assert 1 <= length["low"] <= length["mean"] <= length["high"] <= record["block"]
        assert record["routine_share"]["mean"] == pytest.approx(1 - 1 / length["mean"], abs=2e-3)
    assert len(document["comparisons"]) == 2 * 5 * 2 * 2
    assert set(document["curves"]) == {f"{row}/seed0" for row in rows if "+" in row}
    assert "--prompts 2" in document["command"] and document["best"]["held_out"]["row"] in rows


def test_attention_is_shared_out_and_mirror_and_flat_differ(ablated):
    *_, document = ablated
    for found in document["attention"].values():
        shares, entropy = np.array(found["share"]), np.array(found["entropy"])
        assert shares.shape == (1, 4, 7, 5) and shares.sum(-1) == pytest.approx(1, abs=1e-3)
        assert (entropy >= 0).all() and sum(found["rows"]) == pytest.approx(1, abs=1e-3)
    mirror, flat = (np.array(document["attention"][f"dflash-{rope}"]["share"]) for rope in ("mirror", "flat"))
    assert np.abs(mirror - flat).max() > 1e-3


def test_tokens_are_counted_by_need(ablated):
    *_, document = ablated
    for found in document["tokens"].values():
        assert set(found["first"]) == {"routine", "vision", "history"} and sum(found["tokens"].values()) > 0
        assert all(figure is None or 0 <= figure["mean"] <= 1 for figure in found["first"].values())


def test_the_page_stands_alone(ablated):
    _, out, document = ablated
    text = (out / "ablation.html").read_text()
    assert "http" not in text and all(record["row"] in text for record in document["table"])
    figures = [part.partition("</svg>")[0] for part in text.split("<svg")[1:]]
    assert len(figures) > 10
    for figure in figures:
        ElementTree.fromstring(f"<svg{figure}</svg>")
    assert "nan" not in text.lower().replace("finance", "")


def test_the_main_figures_are_files_that_stand_alone(ablated):
    _, out, _ = ablated
    files = {path.stem: path.read_text() for path in (out / "figures").glob("*.svg")}
    assert {"accepted-length-held-out", "differences", "eagle3-anchor-set", "dflash-accepted-length",
            "attention"} <= set(files)  # fmt: skip
    for text in files.values():
        root = ElementTree.fromstring(text)
        assert root.tag == "{http://www.w3.org/2000/svg}svg" and root[0].tag.endswith("style") and len(root) > 3
        assert "url(" not in text and text.count("http") == 1


def test_a_second_run_makes_nothing_again(ablated, monkeypatch, capsys):
    argv, out, document = ablated
    monkeypatch.setattr(making.Making, "run", lambda *_: pytest.fail("a draft was trained again"))
    kept = (out / "cells" / "dflash-flat" / "seed0" / "rows.jsonl").stat().st_mtime_ns
    assert main(argv) == 0
    assert json.loads(capsys.readouterr().out) == document
    assert (out / "cells" / "dflash-flat" / "seed0" / "rows.jsonl").stat().st_mtime_ns == kept


def test_another_recipe_needs_another_folder(ablated, capsys):
    argv, out, *_ = ablated
    assert main([*argv, "--steps", "5"]) == 2
    assert "holds an ablation with another distillation" in capsys.readouterr().err


def test_an_estimate_says_what_cells_take_and_leaves_nothing(small, tmp_path, capsys):
    assert main([*small(tmp_path), "--estimate", "--kinds", "dflash"]) == 0
    found = json.loads(capsys.readouterr().out)
    states, distilled, post = found["kinds"]
    assert [row["stage"] for row in found["kinds"]] == ["states", "distilled", "aarl"] and found["cells"] == 6
    assert all(row["cpu_s_per_step"] > 0 for row in found["kinds"]) and list(tmp_path.iterdir()) == []
    assert post["cpu_s_per_plan"] > 0 and post["cpu_minutes_at_most"] >= post["cpu_minutes"]


@pytest.mark.parametrize(
    "wrong", [["--seeds", "0"], ["--blocks", "1"], ["--rows", "medusa-flat"], ["--model", "nosuch"],
              ["--aarl-learning-rate", "nan"], ["--training-threads", "0"]]
)
def test_wrong_arguments_are_one_line_and_exit_2(tmp_path, capsys, wrong):
    assert main(["ablate", "--out", str(tmp_path / "out"), *wrong]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "out" / "settings.json").exists()


def test_states_that_are_there_are_not_made_again(ablated, small, tmp_path, capsys):
    _, first, _ = ablated
    argv = [*small(tmp_path / "out"), "--rows", "dflash-flat", "--features", str(first / "features")]
    kept = (first / "features" / "train" / "hs_0.safetensors").stat().st_mtime_ns
    assert main(argv) == 0
    assert f"--features {first / 'features'}" in json.loads(capsys.readouterr().out)["command"]
    assert not (tmp_path / "out" / "features").exists()
    assert (first / "features" / "train" / "hs_0.safetensors").stat().st_mtime_ns == kept
