"""A run begins with an earlier checkpoint's weights; words keep their rows when the vocabulary has changed."""

from types import SimpleNamespace

import pytest
import torch

from specdrive_ros.errors import InputError
from specdrive_ros.target.checkpoint import save_target
from specdrive_ros.target.tokens import TargetTokenizer
from specdrive_ros.training.mini import new_checkpoint_folder, new_target
from specdrive_ros.training.warm_start import warm_start

EMBEDDING = "vlm.model.language_model.embed_tokens.weight"


def checkpoint(folder, *texts, seed):
    shards = [SimpleNamespace(words=[{"text": text} for text in texts])]
    return new_target(new_checkpoint_folder(folder, shards), seed)


@pytest.fixture
def earlier(tmp_path):
    target = checkpoint(tmp_path / "earlier", "stop at the red light", seed=1)
    save_target(target, tmp_path / "earlier")
    return target


def row(target, word):
    token = TargetTokenizer.load(target.config).tokenizer.token_to_id(word)
    return target.get_parameter(EMBEDDING)[token]


def test_words_keep_their_rows_when_the_vocabulary_grows(tmp_path, earlier):
    target = checkpoint(tmp_path / "later", "a pedestrian crosses", "stop at the red light", seed=2)
    own_word = row(target, "Ġpedestrian").clone()
    assert warm_start(target, tmp_path / "earlier") == []
    assert torch.equal(row(target, "Ġred"), row(earlier, "Ġred"))
    assert torch.equal(row(target, "Ġpedestrian"), own_word)
    vision = "vlm.model.visual.patch_embed.proj.weight"
    assert torch.equal(target.get_parameter(vision), earlier.get_parameter(vision))


def test_an_expert_of_other_units_begins_anew(tmp_path, earlier):
    config = (tmp_path / "earlier" / "config.json").read_text()
    assert '"accel_std": 0.93' in config
    (tmp_path / "earlier" / "config.json").write_text(config.replace('"accel_std": 0.93', '"accel_std": 0.5'))
    target = checkpoint(tmp_path / "later", "stop at the red light", seed=2)
    untouched = target.action_out_proj.weight.clone()
    fresh = warm_start(target, tmp_path / "earlier")
    assert "action_out_proj.weight" in fresh and torch.equal(target.action_out_proj.weight, untouched)
    assert all(name.startswith(("expert.", "action_")) for name in fresh)


def test_networks_of_other_sizes_are_refused(tmp_path, checkout):
    target = checkpoint(tmp_path / "later", "stop", seed=0)
    with pytest.raises(InputError, match="cannot start from"):
        warm_start(target, checkout / "test" / "golden" / "alpamayo_A" / "checkpoint")
