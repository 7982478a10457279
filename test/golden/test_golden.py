"""The reference numbers, array by array, through the same comparison as `./specdrive golden`.

The numbers were made by the public reference implementation (`alpamayo_A/README.md` says how); they are not
regenerated here. A failure names the array and how far it is off.
"""

import argparse
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the train extra")
pytest.importorskip("transformers", reason="needs the train extra")

from specdrive_ros.cli import golden as command
from specdrive_ros.errors import InputError
from specdrive_ros.evaluation.golden import GIVEN, STAGES, compare, compare_folder

FOLDER = Path(__file__).parent / "alpamayo_A"


def results() -> list[str]:
    """Every array of the folder that is a result."""
    names = ["meta/prompt_text", "special_tokens/ids"]
    for file in STAGES:
        with np.load(FOLDER / f"{file}.npz") as archive:
            names += [f"{file}/{name}" for name in archive.files]
    return names


@pytest.fixture(scope="module")
def comparisons():
    return {comparison.array: comparison for comparison in compare_folder(FOLDER)}


@pytest.mark.parametrize("array", results())
def test_array(comparisons, array):
    if array not in comparisons:
        assert array.rpartition(".")[2].rpartition("/")[2] in GIVEN, "neither compared nor an input"
        return
    comparison = comparisons[array]
    assert comparison.passed, f"error {comparison.error}, tolerance {comparison.tolerance} {comparison.note}"
    assert not comparison.note


@pytest.fixture
def copy(tmp_path):
    """A copy of the folder whose arrays a test may change: change(file, {name: array})."""
    folder = shutil.copytree(FOLDER, tmp_path / "copy")

    def change(file, arrays):
        with np.load(FOLDER / f"{file}.npz") as archive:
            content = {name: archive[name] for name in archive.files}
        np.savez(folder / f"{file}.npz", **{**content, **arrays})
        return folder

    return change


def run(folder, *options) -> int:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return command.run(parser.parse_args([str(folder), *options]))


def test_the_command_prints_a_line_an_array_and_fails_over_a_tolerance(copy, capsys):
    with np.load(FOLDER / "expected_prefill.npz") as archive:
        logits = archive["logits"].copy()
    logits[3, 7] += 2e-4
    folder = copy("expected_prefill", {"logits": logits, "rope_deltas": np.array([[-31]])})
    for file in STAGES:
        if file not in ("inputs", "expected_prefill"):
            (folder / f"{file}.npz").unlink()
    assert run(folder) == 1
    over = [line.split()[1] for line in capsys.readouterr().out.splitlines() if line.startswith("OVER")]
    assert over == ["expected_prefill/logits", "expected_prefill/rope_deltas"]
    assert run(folder, "--json") == 1
    document = json.loads(capsys.readouterr().out)
    assert document["passed"] is False
    assert {entry["array"] for entry in document["arrays"] if not entry["passed"]} == set(over)


def test_other_layouts_are_refused_by_name(tmp_path):
    with pytest.raises(InputError, match="unknown layout.*known are: alpamayo"):
        compare_folder(tmp_path)
    with pytest.raises(InputError, match="is no folder"):
        compare_folder(tmp_path / "nowhere")


def test_a_damaged_archive_is_one_line(copy):
    folder = copy("expected_vision", {})
    (folder / "expected_vision.npz").write_bytes(b"PK\x03\x04 not an archive")
    with pytest.raises(InputError, match="expected_vision.npz cannot be read"):
        compare_folder(folder)


def test_a_missing_array_is_named(copy):
    folder = copy("inputs", {})
    with np.load(FOLDER / "inputs.npz") as archive:
        np.savez(folder / "inputs.npz", **{name: archive[name] for name in archive.files if name != "noise"})
    with pytest.raises(InputError, match="'noise' is missing"):
        compare_folder(folder)


@pytest.mark.parametrize(
    "expected, ours, error",
    [
        (np.zeros((2, 3)), np.zeros((3, 2)), np.inf),
        (np.array([0.0, np.nan]), np.array([0.0, 1.0]), np.inf),
        (np.array([1.0, -np.inf]), np.array([1.5, -np.inf]), 0.5),
        (np.array([1.0, -np.inf]), np.array([1.5, np.inf]), np.inf),
        (np.array(["a", "b"]), np.array(["a", "c"]), 1.0),
        (np.array([True, False]), np.array([True, True]), 1.0),
    ],
)
def test_what_counts_as_an_error(expected, ours, error):
    assert compare("array", expected, ours, 0.0).error == error


DRAFTS = Path(__file__).parent / "drafts_A"


@pytest.fixture(scope="module")
def draft_comparisons():
    return compare_folder(DRAFTS)


def test_every_array_of_the_drafts_is_held(draft_comparisons):
    over = [(one.array, one.error, one.note) for one in draft_comparisons if not one.passed]
    assert not over
    assert len(draft_comparisons) > 400


def test_what_is_not_held_is_another_weighting(draft_comparisons):
    """D-PACE weighs a block's slots in another way, which no draft of ours is trained with."""
    skipped = {one.array for one in draft_comparisons if one.note}
    stem = "dflash/train_specforge_rand_dpace"
    assert skipped == {f"{stem}/{name}" for name in ("loss", "loss_num", "loss_den", "grad_norm")}


def test_a_changed_tree_is_seen(tmp_path):
    """One token of one proposal and one gradient: both are named, nothing else is."""
    from safetensors.numpy import load_file, save_file

    folder = tmp_path / "copy"
    for name in ("target", "eagle3/draft_fit", "eagle3/draft_rand"):
        shutil.copytree(DRAFTS / name, folder / name)
    shutil.copy(DRAFTS / "PARAMS.json", folder)
    tree = load_file(DRAFTS / "eagle3/tree_16_4_4_fit.safetensors")
    tree["round2/draft_tokens"][7] += 1
    save_file(tree, str(folder / "eagle3/tree_16_4_4_fit.safetensors"))
    trained = load_file(DRAFTS / "eagle3/ttt_rand.safetensors")
    trained["grad/fc.weight"][3, 5] += 2e-4
    save_file(trained, str(folder / "eagle3/ttt_rand.safetensors"))
    over = [one.array for one in compare_folder(folder) if not one.passed]
    assert over == ["eagle3/tree_16_4_4_fit/round2/draft_tokens", "eagle3/ttt_rand/grad/fc.weight"]


def test_drafts_without_a_target_are_another_layout(tmp_path):
    shutil.copy(DRAFTS / "PARAMS.json", tmp_path)
    with pytest.raises(InputError, match="unknown layout, it has no target/config.json"):
        compare_folder(tmp_path)
