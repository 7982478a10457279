"""The table and its comparisons from rows made by hand."""

import pytest

from specdrive_ros.errors import InputError
from specdrive_ros.evaluation.ablation.cells import Cell, all_cells, choose_cells
from specdrive_ros.evaluation.ablation.figures import best, comparisons, draft_overhead, table
from specdrive_ros.evaluation.ablation.measuring import Row, read_rows, write_rows


def rows(passes, *, identical=True, ms=2.0, plan_m=1e-6, split="held_out"):
    """Prompts of twelve tokens that took so many passes."""
    return [
        Row(split, "cruise", 400 + number, 16, 12, each, ms, 8.0, identical, plan_m)
        for number, each in enumerate(passes)
    ]


FLAT = {
    Cell("dflash", "flat", "distilled", seed): rows(passes)
    for seed, passes in enumerate([(2, 3, 2, 3), (3, 3, 2, 2), (2, 2, 3, 3)])
}
MIRROR = {
    Cell("dflash", "mirror", "distilled", seed): rows(passes)
    for seed, passes in enumerate([(4, 5, 4, 5), (5, 5, 4, 4), (4, 4, 5, 5)])
}
OVERHEAD = {(row, "held_out", 16): 0.25 for row in ("dflash-flat", "dflash-mirror", "dflash-flat+static")}


def test_a_row_by_hand():
    """Three seeds of four prompts: 144 tokens in 30 passes."""
    (record,) = table(FLAT, OVERHEAD)
    assert record["row"] == "dflash-flat" and record["seeds"] == [0, 1, 2] and record["prompts"] == 4
    assert record["accepted_length"]["mean"] == pytest.approx(144 / 30)
    assert record["accepted_length_by_seed"] == [4.8, 4.8, 4.8]
    assert record["routine_share"]["mean"] == pytest.approx(1 - 30 / 144, abs=1e-4)
    assert record["theoretical"]["mean"] == pytest.approx(144 / 30 / 1.25, abs=1e-4)
    assert record["measured"]["mean"] == 4.0 and record["ms_per_reasoning"] == {"plain": 8.0, "draft": 2.0}
    assert record["identical"] and record["mismatches"] == 0 and record["plan_m"] == 1e-6
    assert record["accepted_length"]["low"] < 4.8 < record["accepted_length"]["high"]


def test_a_mismatch_is_counted():
    cell = next(iter(FLAT))
    (record,) = table({cell: rows((2, 2)) + rows((2,), identical=False)[:1]}, OVERHEAD)
    assert not record["identical"] and record["mismatches"] == 1


def test_rows_that_differ_and_rows_that_do_not():
    """Flat takes 30 passes for mirror's 54; the post-trained one is the distilled one again."""
    static = {Cell("dflash", "flat", "static", cell.seed): found for cell, found in FLAT.items()}
    found = {each["comparison"]: each for each in comparisons(FLAT | MIRROR | static)}
    flat = found["dflash: flat less mirror"]
    assert flat["accepted_length"]["mean"] == pytest.approx(144 / 30 - 144 / 54, abs=1e-3) and flat["differs"]
    same = found["dflash: static less distilled"]
    assert same["accepted_length"] == {"mean": 0.0, "low": 0.0, "high": 0.0, "n": 4} and not same["differs"]
    assert best(table(FLAT | MIRROR, OVERHEAD), "held_out")["row"] == "dflash-flat"


def test_comparisons_take_the_seeds_both_have():
    one_seed = {Cell("dflash", "mirror", "static", 1): rows((2, 2, 2, 2))}
    (found,) = [each for each in comparisons(MIRROR | one_seed)]
    assert found["comparison"].endswith("mirror") and found["seeds"] == [1]
    assert found["accepted_length"]["mean"] == pytest.approx(6.0 - 48 / 18, abs=1e-3)


def test_seeds_on_other_prompts_are_no_pairs():
    with pytest.raises(ValueError, match="different prompts"):
        table(
            {Cell("dflash", "flat", "distilled", 0): rows((2, 2)), Cell("dflash", "flat", "distilled", 1): rows((2,))},
            OVERHEAD,
        )


def test_what_a_proposal_costs():
    assert draft_overhead("dflash", 16, 2, 8) == 0.5
    assert draft_overhead("eagle3", 16, 1, 8) == 15 / 8


def test_cells_of_the_paper():
    """Four distilled rows of three seeds; on flat both anchors of three, on mirror of one."""
    cells = all_cells(3)
    assert len(cells) == 2 * 2 * 3 + 2 * 2 * 3 + 2 * 2 * 1 and len(set(cells)) == len(cells)
    assert len({cell.row for cell in cells}) == 12
    chosen = choose_cells(cells, ["dflash-flat+self"])
    assert {cell.row for cell in chosen} == {"dflash-flat", "dflash-flat+self"} and len(chosen) == 6
    assert chosen.index(Cell("dflash", "flat", "distilled", 0)) < chosen.index(Cell("dflash", "flat", "self", 0))
    with pytest.raises(InputError, match="--rows dflash: no such row"):
        choose_cells(cells, ["dflash"])


def test_rows_on_disk_answer_one_question(tmp_path):
    path = tmp_path / "rows.jsonl"
    assert read_rows(path, {"seed": 1}) is None
    write_rows(path, {"seed": 1}, rows((2, 3), plan_m=None))
    assert read_rows(path, {"seed": 1}) == rows((2, 3), plan_m=None)
    assert read_rows(path, {"seed": 2}) is None
    path.write_text('{"seed": 1}\n{"split": 3}\n')
    with pytest.raises(InputError, match="holds no rows"):
        read_rows(path, {"seed": 1})
