"""`specdrive train target`: what cannot be trained is said before anything starts."""

import pytest

from specdrive_ros.cli.main import main


@pytest.mark.parametrize("wrong", [["--steps", "0"], ["--batch", "0"], ["--vision-steps", "-3"]])
def test_wrong_numbers_are_one_line_and_exit_2(tmp_path, capsys, wrong):
    assert main(["train", "target", "--run", str(tmp_path), *wrong]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_missing_scenes_name_the_command_that_makes_them(tmp_path, capsys):
    assert main(["train", "target", "--data", str(tmp_path / "none"), "--run", str(tmp_path / "run")]) == 2
    assert "specdrive data generate" in capsys.readouterr().err
