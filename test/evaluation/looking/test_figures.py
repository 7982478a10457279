"""Figures of planners whose answers are known, and rows that are not what they should be."""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest

from specdrive_ros.errors import InputError
from specdrive_ros.evaluation.looking.figures import figures
from specdrive_ros.evaluation.looking.measuring import measure
from specdrive_ros.evaluation.looking.rows import read_rows, write_rows

TOKENS = 13  # of every sentence of the planners here; one of them differs


@pytest.fixture
def rows_of(make_sample):
    def rows(planner, families=("traffic_light", "cruise"), count=6):
        samples = [make_sample(k + shift, family) for shift, family in enumerate(families) for k in range(count)]
        measured = measure(planner, planner.choices, samples)
        return [row for _, conditions in measured for row, _, _ in conditions]

    return rows


def mean(block, group, measure):
    return (block.get(group) or block["conditions"][group])[measure]["mean"]


def test_a_planner_that_looks(rows_of, looking):
    block = figures(rows_of(looking))["families"]["all"]
    for measure in ("exact", "token_f1", "slots", "decision", "agrees", "known_phrase", "finished"):
        assert mean(block, "as_it_is", measure) == mean(block, "frozen", measure) == 1.0, measure
    assert mean(block, "black", "exact") == pytest.approx(1 / 3, abs=1e-3), "in the dark it always says clear"
    assert mean(block, "other_scene", "exact") < 0.5
    assert mean(block, "as_it_is", "ade_3s_m") == 0.0 < mean(block, "black", "ade_3s_m")
    assert mean(block, "tokens", "history") == mean(block, "tokens", "unsteady") == 0.0
    assert mean(block, "tokens", "vision_black") == pytest.approx(2 / 3 / TOKENS, abs=1e-3)
    assert mean(block, "tokens", "vision") + mean(block, "tokens", "routine") == pytest.approx(1.0, abs=1e-3)
    less = block["as_it_is_less"]
    assert less["black"]["exact"]["low"] > 0 and less["frozen"]["exact"]["mean"] == 0.0
    assert less["constant_velocity"]["ade_3s_m"]["high"] < 0
    assert less["constant_velocity"]["ade_3s_m"]["mean"] == -mean(block, "baselines", "constant_velocity_ade_3s_m")


def test_a_planner_that_never_looks(rows_of, remembering):
    block = figures(rows_of(remembering))["families"]["all"]
    assert mean(block, "as_it_is", "exact") == mean(block, "black", "exact") == pytest.approx(1 / 3, abs=1e-3)
    assert mean(block, "frozen", "exact") == pytest.approx(1 / 3, abs=1e-3), "now it says clear, a third is"
    assert mean(block, "tokens", "vision") == mean(block, "tokens", "both") == 0.0
    assert mean(block, "tokens", "history") == pytest.approx(1 / TOKENS, abs=1e-3)
    assert mean(block, "tokens", "routine") == pytest.approx(12 / TOKENS, abs=1e-3)
    assert mean(block, "as_it_is", "agrees") == 1.0, "it does what it says, wrong as that is"


def test_families_have_figures_of_their_own_whatever_their_names(rows_of, looking):
    result = figures(rows_of(looking, families=("one", "two", "three"), count=2))["families"]
    assert list(result) == ["one", "two", "three", "all"]
    assert [block["samples"] for block in result.values()] == [2, 2, 2, 6]


def test_a_plan_that_does_not_do_what_it_says(rows_of, looking):
    rows = [replace(row, plan=row.plan if "red" not in row.reasoning else [[8.0 * k, 0, 0] for k in range(64)])
            for row in rows_of(looking)]
    block = figures(rows)["families"]["all"]
    assert mean(block, "as_it_is", "agrees") == pytest.approx(2 / 3, abs=1e-3)
    assert mean(block, "baselines", "expert_agrees") == 1.0
    assert mean(block, "baselines", "agrees_by_chance") < 1.0


def test_what_cannot_be_judged_is_counted(rows_of, looking):
    rows = [replace(row, reasoning="Mumble.") if row.seed == 0 else row for row in rows_of(looking, count=3)]
    families = figures(rows)["families"]
    assert families["traffic_light"]["not_judged"] == {"no known phrase": 1} and families["cruise"]["not_judged"] == {}
    assert mean(families["traffic_light"], "as_it_is", "known_phrase") == pytest.approx(2 / 3, abs=1e-3)


def test_choices_that_change_with_nothing_changed_are_seen(rows_of, looking):
    rows = rows_of(looking)
    assert rows[0].condition == "as_it_is"
    rows[0] = replace(rows[0], choices=[99, *rows[0].choices[1:]])
    assert mean(figures(rows)["families"]["all"], "tokens", "unsteady") == pytest.approx(1 / (12 * TOKENS), abs=1e-3)


def test_errors_are_against_the_experts_own_future(rows_of, looking):
    beside = [replace(row, future=[[x, y + 2.0, yaw] for x, y, yaw in row.future]) for row in rows_of(looking)]
    block = figures(beside)["families"]["all"]
    for name in ("ade_3s_m", "fde_3s_m", "ade_6.4s_m", "fde_6.4s_m"):
        assert mean(block, "as_it_is", name) == 2.0
    shifted = [replace(row, history=[[x, y, 0.1 * k] for k, (x, y, _) in enumerate(row.history)]) for row in beside]
    baselines = figures(shifted)["families"]["all"]["baselines"]
    assert baselines["constant_turn_ade_3s_m"]["mean"] > baselines["constant_velocity_ade_3s_m"]["mean"] + 5.0


def test_figures_are_the_same_from_the_file(tmp_path, rows_of, looking):
    rows = rows_of(looking)
    write_rows(tmp_path / "rows.jsonl", rows)
    read = read_rows(tmp_path / "rows.jsonl")
    assert read == rows
    result = figures(rows)
    assert json.loads(json.dumps(figures(read), allow_nan=False)) == result


BROKEN = {
    "condition": "asleep", "plan": [[0, 0, 0]] * 63, "future": [[0, 0, float("nan")]] * 64, "history": "none",
    "lane": [], "label": None, "choices": [], "speed_mps": "fast", "seed": 1.5}


@pytest.mark.parametrize("field", BROKEN)
def test_a_broken_row_is_one_line_that_names_it(tmp_path, rows_of, looking, field):
    path = tmp_path / "rows.jsonl"
    row = asdict(rows_of(looking, count=1)[0])
    path.write_text(json.dumps(row) + "\n" + json.dumps(row | {field: BROKEN[field]}) + "\n")
    with pytest.raises(InputError, match="rows.jsonl, line 2: no row of `looking`") as error:
        read_rows(path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("line", ["{", "[]", "7", "{}", '{"family": "cruise"}', "\x00"])
def test_what_is_no_row_at_all(tmp_path, line):
    (tmp_path / "rows.jsonl").write_text(line + "\n")
    with pytest.raises(InputError, match="line 1"):
        read_rows(tmp_path / "rows.jsonl")


def test_a_file_that_is_not_there_or_no_text(tmp_path):
    (tmp_path / "rows.jsonl").write_bytes(b"\xff\xfe\x00")
    for name in ("rows.jsonl", "absent.jsonl"):
        with pytest.raises(InputError, match=f"cannot read .*{name}"):
            read_rows(tmp_path / name)


def test_rows_that_do_not_go_together(rows_of, looking):
    rows = rows_of(looking, count=2)
    with pytest.raises(InputError, match="none; run"):
        figures([])
    with pytest.raises(InputError, match="traffic_light seed 0 has no black"):
        figures([row for row in rows if row.condition != "black"])
    with pytest.raises(InputError, match="twice under as_it_is"):
        figures([*rows, rows[0]])
    with pytest.raises(InputError, match="choices of different lengths"):
        figures([replace(rows[0], choices=[1]), *rows[1:]])


def test_an_unfinished_answer_says_nothing_of_unsteady_choices(rows_of, looking):
    rows = [replace(row, truncated=True, choices=[5] * len(row.choices)) for row in rows_of(looking)]
    block = figures(rows)["families"]["all"]
    assert mean(block, "as_it_is", "finished") == 0.0 and np.isclose(mean(block, "tokens", "unsteady"), 0.0)
