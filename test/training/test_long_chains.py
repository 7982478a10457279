"""From scenes to a target that thinks at length and the benchmark of it, by the commands of the recipe, few steps."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file

pytest.importorskip("torch", reason="needs the train extra")

from specdrive_ros.cli.main import main  # noqa: E402
from specdrive_ros.errors import InputError  # noqa: E402
from specdrive_ros.model_settings import find_model  # noqa: E402
from specdrive_ros.training.long_chains import shards_to_lengthen  # noqa: E402
from specdrive_ros.training.scenes import open_shards  # noqa: E402


@pytest.fixture(scope="module")
def long_data(data, tmp_path_factory):
    out = tmp_path_factory.mktemp("long") / "scenes"
    assert main(["data", "lengthen", "--data", str(data), "--out", str(out), "--workers", "1"]) == 0
    return out


def test_only_the_words_are_new(data, long_data):
    for split in ("train", "validation"):
        (short,), (long,) = open_shards(data / split), open_shards(long_data / split)
        for name in ("scene", "geometry", "sample_frame", "sample_history", "sample_future", "sample_speed"):
            np.testing.assert_array_equal(getattr(short, name), getattr(long, name))
        np.testing.assert_array_equal(short.all_frames(), long.all_frames())
        for before, after, spans in zip(short.words, long.words, long.sample_spans, strict=True):
            assert after["text"].endswith(before["text"]) and len(after["text"]) > 5 * len(before["text"])
            assert {**after, "text": ""} == {**before, "text": ""}
            assert all(after["text"][begin:end].strip() for begin, end in spans if begin >= 0)
    assert shards_to_lengthen(data, long_data) == [], "what is there is kept"


def test_bad_folders_are_one_clear_line(data, tmp_path, capsys):
    with pytest.raises(InputError, match="a folder of their own"):
        shards_to_lengthen(data, data)
    with pytest.raises(InputError, match=f"make some with `specdrive data generate --out {tmp_path}`"):
        shards_to_lengthen(tmp_path, tmp_path / "out")
    assert main(["data", "lengthen", "--data", str(tmp_path), "--out", str(tmp_path / "out")]) == 2
    assert "no driving scenes" in capsys.readouterr().err


@pytest.fixture(scope="module")
def thinker(long_data, checkout, tmp_path_factory):
    """mini, fine-tuned on long chains with its vision kept: what the recipe does, two steps of it."""
    run = tmp_path_factory.mktemp("thinker")
    argv = ["train", "target", "--data", str(long_data), "--run", str(run), "--drive-worlds", "0", "--threads", "1"]
    argv += ["--start-from", str(checkout / "models" / "mini"), "--vision-steps", "0", "--steps", "2", "--batch", "2"]
    assert main(argv) == 0
    return run / "checkpoint"


def test_a_kept_vision_is_not_trained_and_the_rest_is(thinker, checkout):
    start, tuned = (load_file(folder / "model.safetensors") for folder in (checkout / "models" / "mini", thinker))
    vision = [name for name in start if ".visual." in name]
    assert vision and all((start[name] == tuned[name]).all() for name in vision)
    assert any((start[name] != tuned[name]).any() for name in start if ".layers." in name and name not in vision)


def test_it_may_write_long_chains_and_is_measured_where_it_ends_them(long_data, thinker, capsys):
    longest = max(len(words["text"].split()) for words in open_shards(long_data / "train")[0].words)
    assert find_model(thinker).max_new_tokens >= 128 and find_model(thinker).max_new_tokens > longest
    assert main(["train", "draft", "--kind", "phrasebook", "--model", str(thinker), "--data", str(long_data)]) == 0
    argv = ["bench", "long", "--model", str(thinker), "--runtime", "torch", "--prompts", "1", "--threads", "1"]
    capsys.readouterr()
    assert main([*argv, "--draft", "phrasebook", "--lengths", "6", "20", "40", "--own-ends", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["own_ends"] and all(row["identical"] for row in document["rows"])
    assert all(row["tokens"] <= row["length"] for row in document["rows"])
    beyond = [(row["accepted_length_beyond"], row["ms_per_token_beyond"]) for row in document["rows"]]
    assert all((length is None) == (ms is None) for length, ms in beyond)


def test_the_vision_of_nothing_cannot_be_kept(long_data, tmp_path, capsys):
    argv = ["train", "target", "--data", str(long_data), "--run", str(tmp_path), "--vision-steps", "0", "--steps", "1"]
    assert main(argv) == 2
    assert "name it with --start-from" in capsys.readouterr().err
