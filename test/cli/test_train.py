"""`specdrive train target`: what cannot be trained is said before anything starts."""

import pytest

from specdrive_ros.cli.main import main


@pytest.mark.parametrize(
    "wrong",
    [["--steps", "0"], ["--batch", "0"], ["--vision-steps", "-3"], ["--learning-rate", "nan"], ["--threads", "0"],
     ["--vision-learning-rate", "0"], ["--learning-rate", "inf"], ["--seed", "-1"]],
)
def test_wrong_numbers_are_one_line_and_exit_2(tmp_path, capsys, wrong):
    assert main(["train", "target", "--run", str(tmp_path), *wrong]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "driving scenes" not in said
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ([], "no driving scenes"),
        (["--block", "1"], "--block 1: must be at least 2"),
        (["--learning-rate", "-1"], "learning rate -1: must be above 0"),
        (["--threads", "0"], "--threads 0: must be 1 or more"),
        (["--seed", "-5"], "--seed -5: must be 0 or more"),
    ],
)
def test_a_draft_that_cannot_be_trained_leaves_no_run_behind(tmp_path, capsys, wrong, says):
    argv = ["train", "draft", "--kind", "dflash", "--data", str(tmp_path / "none"), "--run", str(tmp_path / "run")]
    assert main([*argv, *wrong]) == 2
    assert says in capsys.readouterr().err and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (["--learning-rate", "nan"], "learning rate nan"),
        (["--threads", "0"], "--threads 0"),
        (["--seed", "-1"], "--seed -1"),
        ([], "no driving scenes"),
    ],
)
def test_post_training_that_cannot_begin_leaves_no_run_behind(tmp_path, capsys, wrong, says):
    argv = ["train", "aarl", "--draft", "none", "--data", str(tmp_path / "none"), "--out", str(tmp_path / "out")]
    assert main([*argv, *wrong]) == 2
    said = capsys.readouterr().err
    assert says in said and said.count("\n") == 1 and not list(tmp_path.iterdir())


def test_a_draft_to_post_train_that_is_none_leaves_no_run_behind(tmp_path, tiny_scenes, capsys):
    argv = ["train", "aarl", "--draft", str(tmp_path), "--data", str(tiny_scenes), "--out", str(tmp_path / "out")]
    assert main(argv) == 2
    assert "config.json does not exist" in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_missing_scenes_name_the_command_that_makes_them(tmp_path, capsys):
    assert main(["train", "target", "--data", str(tmp_path / "none"), "--run", str(tmp_path / "run")]) == 2
    assert "specdrive data generate" in capsys.readouterr().err and not list(tmp_path.iterdir())
