"""`specdrive data generate`: shards appear, a second run makes only what is missing, wrong arguments say so."""

import os

import pytest

from specdrive_ros.cli.data import make_shards
from specdrive_ros.cli.main import main
from specdrive_ros.errors import WorkFailed


def generate(folder, *more):
    return main(["data", "generate", "--out", str(folder), "--episodes", "3", "--validation-episodes", "1",
                 "--samples", "1", "--workers", "1", *more])


def test_a_second_run_makes_only_what_is_missing(tmp_path, capsys):
    assert generate(tmp_path) == 0
    shards = sorted(path.relative_to(tmp_path) for path in tmp_path.glob("*/shard-*.safetensors"))
    assert [str(shard.parent) for shard in shards] == ["train", "validation"]
    kept, made_again = (tmp_path / shard for shard in shards)
    before, content = kept.stat().st_mtime_ns, made_again.read_bytes()
    made_again.unlink()
    assert generate(tmp_path) == 0
    assert kept.stat().st_mtime_ns == before
    assert made_again.read_bytes() == content
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("wrong", [["--workers", "0"], ["--samples", "0"], ["--scenario", "racing"],
                                   ["--sample-every", "0.1"], ["--sample-every", "nan"], ["--sample-every", "inf"],
                                   ["--twins", "1.1"], ["--twins", "nan"], ["--driver", "nosuch"],
                                   ["--episodes", "-1"], ["--first-seed", "-1"], ["--first-seed", "999999998"]])
def test_wrong_arguments_are_one_line_and_exit_2(tmp_path, capsys, wrong):
    assert generate(tmp_path, *wrong) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_process_that_is_killed_is_told_in_one_line():
    with pytest.raises(WorkFailed, match="was killed, .*; shards that are whole stay"):
        make_shards(os._exit, [(9,)], 1)


def test_a_folder_that_cannot_be_written_is_named(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert generate(tmp_path / "file") == 2
    assert "choose another --out" in capsys.readouterr().err
