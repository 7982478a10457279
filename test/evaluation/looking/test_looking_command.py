"""The command on known planners' pages, with wrong arguments, and once with the model that ships."""

import json
import re
from dataclasses import replace

import pytest

from specdrive_ros.errors import InputError
from specdrive_ros.evaluation.looking.__main__ import main
from specdrive_ros.evaluation.looking.figures import figures
from specdrive_ros.evaluation.looking.measuring import measure
from specdrive_ros.evaluation.looking.report import Shown, WorstCases, looking_html, terminal_table
from specdrive_ros.evaluation.looking.rows import read_rows
from specdrive_ros.evaluation.looking.samples import held_out_samples
from specdrive_ros.model_settings import find_model


@pytest.mark.parametrize("arguments, message", [
    (["--samples", "0"], "--samples 0"),
    (["--threads", "0"], "--threads 0"),
    (["--seed", "-1"], "--seed -1"),
    (["--seed", "1000000"], "--seed 1000000"),
    (["--scenario", "cruize"], "--scenario cruize: no such scenario"),
    (["--model", "absent"], "model 'absent'"),
])
def test_wrong_arguments_are_one_line_and_exit_code_2(arguments, message, capsys):
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert message in captured.err and captured.err.count("\n") == 1 and captured.out == ""


def test_help_has_an_example(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "example: python -m specdrive_ros.evaluation.looking" in " ".join(capsys.readouterr().out.split())


def test_seeds_run_out_with_a_reason():
    with pytest.raises(InputError, match=r"--seed 1000000: 0 of 1 samples of cruise"):
        list(held_out_samples("cruise", 1, 1_000_000))


@pytest.fixture
def measured(looking, make_sample):
    samples = [make_sample(k, family) for family in ("cruise", "<b>family</b>") for k in range(4)]
    return [[Shown(*each) for each in one] for _, one in measure(looking, looking.choices, samples)]


def test_the_page_is_self_contained_and_escapes_what_it_shows(measured):
    rows = [shown.row for case in measured for shown in case]
    result = {"model": "<script>", "runtime": "none", "seed": 1} | figures(rows)
    text = looking_html(result, measured[:2])
    assert not re.search(r"https?://|@import|url\(|<script>[^\n]|<b>family", text)
    assert text.count("<img") == 8 and "another scene&#x27;s cameras" in text
    assert "✓ as the label" in text
    lines = terminal_table(result).splitlines()
    assert lines[1].startswith("cruise") and lines[3].startswith("all") and "100%" in lines[1]


def test_the_worst_are_kept_and_come_first(measured):
    wrong = [replace(shown, row=replace(shown.row, reasoning="Mumble.")) for shown in measured[2]]
    worst = WorstCases(per_family=2)
    for case in (measured[0], measured[1], wrong, measured[3], measured[5]):
        worst.add(case)
    kept = worst.all()
    assert kept[0] is wrong and [case[0].row.family for case in kept].count("cruise") == 2 and len(kept) == 3


def test_the_model_that_ships_two_samples_a_family(tmp_path, capsys):
    assert main(["--samples", "2", "--seed", "410", "--out", str(tmp_path / "new" / "looking")]) == 0
    out = tmp_path / "new" / "looking"
    assert {path.name for path in out.iterdir()} == {"rows.jsonl", "looking.json", "looking.html"}
    rows = read_rows(out / "rows.jsonl")
    result = json.loads((out / "looking.json").read_text())
    assert {name: result[name] for name in ("model", "runtime", "seed")} == {"model": "mini", "runtime": "onnxruntime",
                                                                          "seed": 410}
    assert result["families"] == figures(rows)["families"]
    families = find_model("mini").scenarios
    assert list(result["families"]) == [*families, "all"] and len(rows) == 8 * len(families) > 0
    tokens = result["families"]["all"]["tokens"]
    assert tokens["unsteady"]["mean"] == 0.0, "teacher forcing on its own answer chooses that answer"
    assert 0.0 < tokens["vision"]["mean"] < 1.0 and 0.0 < tokens["routine"]["mean"] < 1.0
    for row in rows:
        assert row.other_family != row.family and row.token_ids and row.label
    captured = capsys.readouterr()
    assert "traffic_light" in captured.out and str(out / "looking.html") in captured.out and "plans" in captured.err
