import json
import os
import shutil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from specdrive_ros.errors import InputError
from specdrive_ros.target.config import HistoryTokenizerConfig, TargetConfig
from specdrive_ros.target.tokens import (
    TargetTokenizer,
    extend_base_tokenizer,
    find_tokenizer,
    history_bins,
    history_positions,
    read_tokenizer,
)

HISTORY = HistoryTokenizerConfig()


@pytest.fixture(scope="module")
def base(golden) -> Tokenizer:
    return read_tokenizer(golden / "backbone" / "tokenizer.json")


def test_extending_the_base_tokenizer_gives_the_shipped_ids(base, tokenizer):
    extended = extend_base_tokenizer(base)
    assert extended.get_vocab(with_added_tokens=True) == tokenizer.tokenizer.get_vocab(with_added_tokens=True)
    assert base.token_to_id("<i0>") is None, "the base tokenizer itself must stay as it is"


def test_ids_are_those_of_the_reference(golden, tokenizer):
    listed = json.loads((golden / "special_tokens.json").read_text())
    assert tokenizer.ids == {name: entry["id"] for name, entry in listed["special_tokens"].items()}
    assert tokenizer.trajectory_ids == listed["traj_token_ids"]
    assert tokenizer.base_ids == listed["base_tokens"]
    assert (tokenizer.base_size, tokenizer.history_start, tokenizer.size) == (426, 3426, 4454)


def test_both_tokenizers_read_alike(base, tokenizer):
    ours = TargetTokenizer(base)
    text = "Slow down <|cot_end|><|traj_future_start|><i12> because the lead vehicle is braking."
    assert ours.encode(text) == tokenizer.encode(text)
    assert ours.decode(ours.encode(text)) == text


def test_the_trajectory_mask_covers_bins_and_nothing_else(tokenizer):
    mask = tokenizer.trajectory_mask()
    assert mask.sum() == 4000
    assert mask[426] and mask[4425]
    assert not mask[425] and not mask[tokenizer.traj_future_start]


def test_reasoning_ends_where_the_chain_of_causation_ends(tokenizer):
    ids = [*tokenizer.encode("Stop for the red light."), tokenizer.cot_end, tokenizer.traj_future_start, 426]
    assert tokenizer.reasoning(ids) == "Stop for the red light."
    assert tokenizer.reasoning(ids[:4]) in "Stop for the red light."


def test_offsets_point_into_the_text(tokenizer):
    text = "Yield to the pedestrian."
    ids, offsets = tokenizer.encode_with_offsets(text)
    assert len(ids) == len(offsets)
    assert "".join(text[start:end] for start, end in offsets) == text


def test_history_tokens_are_recognised(tokenizer):
    ids = tokenizer.history_tokens(np.zeros((16, 3)))
    assert ids.shape == (48,)
    assert tokenizer.is_history_token(ids).all()
    assert not tokenizer.is_history_token([tokenizer.cot_end, 425, 3425]).any()


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(*[st.floats(-3.9, 3.9)] * 3), min_size=16, max_size=16))
def test_positions_come_back_within_a_bin_a_step(steps):
    xyz = np.cumsum(np.array(steps), axis=0)
    back = history_positions(history_bins(xyz, HISTORY), HISTORY)
    half_bin = np.array([8, 8, 20]) / 999 / 2
    assert np.all(np.abs(back - xyz) <= half_bin * np.arange(1, 17)[:, None] + 1e-4)


def test_another_tokenizer_is_refused(golden, config, tmp_path):
    shorter = Tokenizer.from_file(str(golden / "backbone" / "tokenizer.json"))
    shorter.add_tokens(["unexpected"])
    TargetTokenizer(shorter).save(tmp_path / "tokenizer.json")
    other = TargetTokenizer(read_tokenizer(tmp_path / "tokenizer.json"))
    with pytest.raises(InputError, match="<i0> has id 427.*traj_token_start_idx 426"):
        other.check(config, tmp_path)


def test_the_backbone_tokenizer_serves_where_the_release_ships_none(golden, config, tmp_path):
    assert find_tokenizer(tmp_path, golden / "backbone") == golden / "backbone" / "tokenizer.json"
    with pytest.raises(InputError, match="no tokenizer.json"):
        find_tokenizer(tmp_path, tmp_path)


NO_TOKENIZERS = {
    "empty": b"",
    "object": b"{}",
    "another kind": b'{"architectures": ["Qwen3VL"], "version": 3}',
    "list": b"[]",
    "list of tokens": b'["a", "b"]',
    "null": b"null",
    "number": b"3",
    "text": b'"Slow down"',
    "no JSON": b"Slow down because",
    "binary": bytes(range(256)) * 8,
    "zeros": bytes(100),
    "deep": b"[" * 100_000,
    "negative id": b'{"version": "1.0", "added_tokens": [], "model": {"type": "WordLevel", "vocab": {"a": -1}}}',
}


@pytest.fixture
def checkpoint(golden, tmp_path):
    """The configs of the reference checkpoint and its backbone without tokenizers."""
    for folder in ("checkpoint", "backbone"):
        (tmp_path / folder).mkdir()
        shutil.copy(golden / folder / "config.json", tmp_path / folder)
    return tmp_path / "checkpoint"


def refusal(checkpoint) -> str:
    """What loading it raises: one line that names the file."""
    with pytest.raises(InputError) as caught:
        TargetTokenizer.load(checkpoint)
    assert str(checkpoint / "tokenizer.json") in str(caught.value) and "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("kind", NO_TOKENIZERS)
def test_what_is_no_tokenizer_is_one_line_even_where_the_backbone_has_one(kind, golden, checkpoint):
    shutil.copy(golden / "backbone" / "tokenizer.json", checkpoint.parent / "backbone")
    (checkpoint / "tokenizer.json").write_bytes(NO_TOKENIZERS[kind])
    assert "tokenizer.json is no tokenizer (" in refusal(checkpoint)


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo, lambda path: os.symlink("nowhere", path)])
def test_what_is_no_file_is_not_passed_over(make, golden, checkpoint):
    shutil.copy(golden / "backbone" / "tokenizer.json", checkpoint.parent / "backbone")
    make(checkpoint / "tokenizer.json")
    assert "tokenizer.json is no file" in refusal(checkpoint)


def test_no_tokenizer_at_all(checkpoint):
    with pytest.raises(InputError, match=f"no tokenizer.json in {checkpoint} nor in .*backbone"):
        TargetTokenizer.load(checkpoint)


def rewritten(golden, checkpoint, change) -> None:
    """The reference's tokenizer.json, its content changed by a function."""
    content = json.loads((golden / "checkpoint" / "tokenizer.json").read_text(encoding="utf-8"))
    change(content)
    (checkpoint / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")


def test_a_tokenizer_of_another_model(golden, checkpoint):
    rewritten(golden, checkpoint, lambda content: content.update(added_tokens=[]))
    assert "tokenizer has no '<|endoftext|>'" in refusal(checkpoint)


def test_an_id_that_the_target_has_no_embedding_for(golden, checkpoint):
    rewritten(golden, checkpoint, lambda content: content["model"]["vocab"].update({"!": 2**31}))
    assert f"ids up to {2**31}, config.json has vocab_size 4454" in refusal(checkpoint)


def test_texts_are_whole_whatever_the_file_says_of_their_length(golden, checkpoint, tokenizer):
    """Truncation with such a stride would end the process from inside the library."""
    short = {"max_length": 3, "stride": 5, "strategy": "LongestFirst", "direction": "Right"}
    wide = {"strategy": {"Fixed": 99}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0,
            "pad_type_id": 0, "pad_token": "!"}  # fmt: skip
    rewritten(golden, checkpoint, lambda content: content.update(truncation=short, padding=wide))
    text = "Slow down because the lead vehicle is braking."
    assert TargetTokenizer.load(checkpoint).encode(text) == tokenizer.encode(text)


def test_loading_by_folder_reads_its_config(golden):
    assert (
        TargetTokenizer.load(golden / "checkpoint").size
        == TargetConfig.load(golden / "checkpoint").text.vocab_size
    )
