import json
import pickle
import shutil

import pytest

torch = pytest.importorskip("torch", reason="needs the train extra")
from safetensors.torch import load_file, save_file  # noqa: E402

from specdrive_ros.errors import InputError  # noqa: E402
from specdrive_ros.target.checkpoint import load_target, save_target  # noqa: E402


@pytest.fixture
def folder(golden, tmp_path):
    """A copy of the reference checkpoint without its weights."""
    (tmp_path / "checkpoint").mkdir()
    shutil.copy(golden / "checkpoint" / "config.json", tmp_path / "checkpoint")
    shutil.copytree(golden / "backbone", tmp_path / "backbone")
    return tmp_path / "checkpoint"


@pytest.fixture
def weights(golden):
    return load_file(golden / "checkpoint" / "model.safetensors")


def refusal(folder) -> str:
    with pytest.raises(InputError) as caught:
        load_target(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_saved_weights_are_the_loaded_ones(target, folder, weights):
    save_target(target, folder)
    saved = load_file(folder / "model.safetensors")
    assert saved.keys() == weights.keys()
    assert all(torch.equal(saved[name], weights[name]) for name in weights)


def test_shards_are_one_checkpoint(target, folder, weights):
    names = sorted(weights)
    shards = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
    for file, part in shards.items():
        save_file({name: weights[name] for name in part}, folder / file)
    index = {"weight_map": {name: file for file, part in shards.items() for name in part}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    loaded = load_target(folder).state_dict()
    assert all(torch.equal(loaded[name], value) for name, value in target.state_dict().items())

    (folder / "model-00002-of-00002.safetensors").unlink()
    assert "model-00002-of-00002.safetensors" in refusal(folder)


def test_missing_unexpected_and_misshapen_names_are_listed(folder, weights):
    for layer in range(4):
        del weights[f"expert.layers.{layer}.self_attn.q_proj.weight"]
    weights["expert.embed_tokens.weight"] = torch.zeros(4, 48)
    weights["action_out_proj.bias"] = torch.zeros(3)
    save_file(weights, folder / "model.safetensors")
    message = refusal(folder)
    assert "4 missing (expert.layers.0.self_attn.q_proj.weight, " in message and "and 1 more" in message
    assert "1 unexpected (expert.embed_tokens.weight)" in message
    assert "1 of another shape (action_out_proj.bias [3] must be [2])" in message


@pytest.mark.parametrize("kept", [0, 5, 100, 5000, 2_000_000])
def test_a_truncated_file_is_one_line(folder, golden, kept):
    content = (golden / "checkpoint" / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(content[:kept])
    assert "model.safetensors is damaged" in refusal(folder)


def test_a_pickle_is_not_opened(folder):
    class Trap:
        def __reduce__(self):
            return (pytest.fail, ("the file was unpickled",))

    (folder / "model.safetensors").write_bytes(pickle.dumps(Trap()))
    assert "damaged" in refusal(folder)


def test_a_folder_without_weights_says_what_to_put_there(folder):
    assert "model.safetensors" in refusal(folder)
    (folder / "model.safetensors.index.json").write_text("[]")
    assert "weight_map" in refusal(folder)


def test_shards_outside_the_folder_are_refused(folder):
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": {"a": "../model.safetensors"}})
    )
    assert "not in" in refusal(folder)


def test_the_dtype_of_the_file_can_be_kept(golden, folder, weights):
    save_file({name: value.bfloat16() for name, value in weights.items()}, folder / "model.safetensors")
    assert load_target(folder, dtype=None).action_out_proj.weight.dtype == torch.bfloat16
    assert load_target(folder).action_out_proj.weight.dtype == torch.float32
