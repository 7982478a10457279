import json
import shutil
from dataclasses import replace

import pytest

from specdrive_ros.draft.config import DFlashConfig, Eagle3Config
from specdrive_ros.draft.layout import read_draft_config, write_draft_config
from specdrive_ros.errors import InputError


@pytest.fixture
def changed(golden, tmp_path):
    """`changed("eagle3/draft_fit", name=value)`: a folder with that config, changed; None takes a key out."""

    def make(path, section=None, **values):
        config = json.loads((golden / path / "config.json").read_text())
        place = config[section] if section else config
        for name, value in values.items():
            place.pop(name, None) if value is None else place.update({name: value})
        (tmp_path / "config.json").write_text(json.dumps(config))
        return tmp_path

    return make


@pytest.mark.parametrize("kind, own", [("eagle3", "eagle3/draft_fit"), ("dflash", "dflash/draft_fit")])
def test_both_layouts_say_the_same(golden, text, kind, own):
    assert read_draft_config(golden / own, text) == read_draft_config(golden / "speculators_format" / kind, text)


def test_what_the_public_files_mean(golden, text):
    eagle3 = read_draft_config(golden / "eagle3/draft_rand", text)
    assert isinstance(eagle3, Eagle3Config) and (eagle3.tap_layers, eagle3.draft_vocab_size) == ((2, 4, 5), 96)
    dflash = read_draft_config(golden / "dflash/draft_rand", text)
    assert isinstance(dflash, DFlashConfig) and (dflash.tap_layers, dflash.mask_token_id) == ((2, 6), 191)
    assert eagle3.rope == dflash.rope == "flat"


@pytest.mark.parametrize("path", ["eagle3/draft_fit", "dflash/draft_fit"])
def test_what_is_written_is_read_again(golden, text, tmp_path, path):
    config = replace(
        read_draft_config(golden / path, text), rope="mirror", mrope_section=(4, 2, 2), tap_layers=(1, 3), target="ab12"
    )
    write_draft_config(tmp_path, config)
    assert read_draft_config(tmp_path, text) == config


@pytest.mark.parametrize(
    "change, message",
    [
        ({"hidden_size": 128}, "hidden size 64, this target has 128"),
        ({"vocab_size": 155697}, "vocabulary 192, this target has 155697"),
        ({"num_hidden_layers": 36}, "number of layers 8, this target has 36"),
    ],
)
def test_a_draft_of_another_target_is_refused_by_name(golden, text, change, message):
    with pytest.raises(InputError,
                       match=f"dflash/draft_fit: is a draft for a target with {message}; train one") as caught:
        read_draft_config(golden / "dflash/draft_fit", replace(text, **change))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "path, change, message",
    [
        ("eagle3/draft_fit", {"rms_norm_eps": None}, "rms_norm_eps: must be a number"),
        ("eagle3/draft_fit", {"rope_scaling": {"rope_type": "yarn"}}, "rope_type: must be 'default', got 'yarn'"),
        ("eagle3/draft_fit", {"draft_vocab_size": 193}, "draft_vocab_size: must be 1 … 192, got 193"),
        ("eagle3/draft_fit", {"draft_vocab_size": None}, "is no draft; it must have draft_vocab_size"),
        ("dflash/draft_fit", {"rope_theta": None}, "rope_theta: must be a number"),
        ("dflash/draft_fit", {"attention_bias": True}, "attention_bias: must be False"),
        ("dflash/draft_fit", {"block_size": 1}, "block_size: must be at least 2"),
        ("speculators_format/eagle3", {"norm_before_residual": True}, "norm_before_residual: must be false"),
        ("speculators_format/dflash", {"aux_hidden_state_layer_ids": None},
         "aux_hidden_state_layer_ids: must be a list"),
    ],
)
def test_what_would_change_results_in_silence_is_said(changed, text, path, change, message):
    with pytest.raises(InputError, match=message):
        read_draft_config(changed(path, **change), text)


def test_family_of_a_speculators_layer_is_not_guessed(changed, text):
    with pytest.raises(InputError, match="model_type: must be one of llama, qwen3"):
        read_draft_config(changed("speculators_format/eagle3", "transformer_layer_config", model_type=None), text)


def test_a_mask_token_outside_the_vocabulary(changed, text):
    with pytest.raises(InputError, match="mask_token_id: must be a token of the target, 0 … 191, got 192"):
        read_draft_config(changed("dflash/draft_fit", "dflash_config", mask_token_id=192), text)


HOSTILE = (True, -1, 1.5, 10**30, float("nan"), float("inf"), "x", [], [None], [[]], ["x"], [10**30], {}, {"x": 1})


def places(values: dict, above=()):
    for name, value in values.items():
        yield (*above, name)
        if isinstance(value, dict):
            yield from places(value, (*above, name))


@pytest.mark.parametrize(
    "path", ["eagle3/draft_fit", "dflash/draft_fit", "speculators_format/eagle3", "speculators_format/dflash"]
)
def test_whatever_stands_in_any_place_is_taken_or_refused(golden, text, tmp_path, path):
    """Nothing but `InputError` comes out, and it names the file."""
    source = json.loads((golden / path / "config.json").read_text())
    own = {"rope": "flat", "mrope_section": [4, 2, 2], "tap_layers": [1, 2], "target_layers": 8, "target": ""}
    refused = 0
    for place in places(source := source | {"specdrive": own}):
        for value in HOSTILE:
            content = at = json.loads(json.dumps(source))
            for name in place[:-1]:
                at = at[name]
            at[place[-1]] = value
            (tmp_path / "config.json").write_text(json.dumps(content))
            try:
                read_draft_config(tmp_path, text)
            except InputError as error:
                refused += 1
                assert str(tmp_path) in str(error) and "\n" not in str(error)
    assert refused > 100


def test_no_config_at_all(text, tmp_path):
    shutil.rmtree(tmp_path)
    with pytest.raises(InputError, match="config.json does not exist; it must be a draft's config"):
        read_draft_config(tmp_path, text)
