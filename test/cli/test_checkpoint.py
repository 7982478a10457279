"""`specdrive checkpoint`: what is whole, what is missing, and drafts that come back from another layout as they were."""

import json
import shutil

import pytest

torch = pytest.importorskip("torch", reason="needs the train extra")

from safetensors.torch import load_file, save_file  # noqa: E402

from specdrive_ros.cli.main import main  # noqa: E402
from specdrive_ros.draft.checkpoint import load_draft_network, new_draft, save_draft  # noqa: E402
from specdrive_ros.draft.config import DFlashConfig, Eagle3Config  # noqa: E402
from specdrive_ros.draft.conversion import caveats, convert_draft, speculators_config  # noqa: E402
from specdrive_ros.draft.layout import read_draft_config  # noqa: E402
from specdrive_ros.target.config import TargetConfig, TextConfig  # noqa: E402


@pytest.fixture
def model(checkout):
    return checkout / "test" / "golden" / "alpamayo_A" / "checkpoint"


@pytest.fixture
def golden(checkout):
    return checkout / "test" / "golden" / "drafts_A"


@pytest.fixture
def text(golden):
    """The language model that the golden drafts are for."""
    released = json.loads((golden / "target" / "config.json").read_text())
    known = {name: released[name] for name in TextConfig.__dataclass_fields__ if name in released}
    return TextConfig(**known, mrope_section=(4, 2, 2))


def config_for(text, kind, **changes):
    sizes = {"hidden_size": text.hidden_size, "vocab_size": text.vocab_size, "target_layers": text.num_hidden_layers,
             "intermediate_size": 96, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2,
             "head_dim": 16, "rope_theta": 1e4, "tap_layers": (1, 2), **changes}  # fmt: skip
    if kind == "eagle3":
        return Eagle3Config(**sizes, draft_vocab_size=32)
    return DFlashConfig(**sizes, block_size=8, mask_token_id=7)


@pytest.fixture
def draft(model, tmp_path):
    """`draft(kind)`: folder of a draft with chance weights for `model`."""

    def make(kind, **changes):
        network = new_draft(config_for(TargetConfig.load(model).text, kind, **changes))
        if kind == "eagle3":  # the words of a draft without training are none
            network.d2t.zero_()
            network.t2d.copy_(torch.arange(len(network.t2d)) < 32)
        save_draft(network, tmp_path / kind)
        return tmp_path / kind

    return make


def look(capsys, path, *more, code=0):
    assert main(["checkpoint", "inspect", str(path), *map(str, more), "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_a_whole_model(model, capsys):
    document = look(capsys, model)
    assert (document["kind"], document["layout"], document["faults"]) == ("target", "released", [])
    weights = load_file(model / "model.safetensors")
    assert document["tensors"] == len(weights)
    assert document["numbers"] == sum(value.numel() for value in weights.values()) == sum(document["parts"].values())
    assert document["numbers"] == sum(document["types"].values())
    assert {"vlm.model.visual", "vlm.model.language_model", "vlm.lm_head", "expert"} <= set(document["parts"])
    assert "text.onnx" in document["absent"] and "drafts/phrasebook.safetensors" in document["absent"]


def test_a_model_by_name_with_its_graphs(capsys):
    document = look(capsys, "mini")
    assert document["faults"] == [] and not any(name.endswith(".onnx") for name in document["absent"])
    assert main(["checkpoint", "inspect", "mini"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "whole"


def test_what_a_model_lacks_is_named_and_exit_1(model, tmp_path, capsys):
    folder = shutil.copytree(model, tmp_path / "checkpoint")
    shutil.copytree(model.parent / "backbone", tmp_path / "backbone")
    weights = load_file(folder / "model.safetensors")
    del weights["vlm.lm_head.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "tokenizer.json").write_text("{}")
    faults = look(capsys, folder, code=1)["faults"]
    assert any("1 missing (vlm.lm_head.weight)" in fault for fault in faults)
    assert any("tokenizer.json" in fault for fault in faults) and len(faults) == 2
    (folder / "model.safetensors").write_bytes(b"half")
    document = look(capsys, folder, code=1)
    assert document["tensors"] == 0 and "damaged" in document["faults"][0]
    (folder / "model.safetensors").unlink()
    assert "no model.safetensors" in look(capsys, folder, code=1)["faults"][0]


@pytest.mark.parametrize("kind, layout", [("eagle3", "SafeAILab EAGLE-3"), ("dflash", "z-lab DFlash")])
def test_a_draft(draft, model, capsys, kind, layout):
    folder = draft(kind)
    document = look(capsys, folder, "--target", model)
    assert (document["kind"], document["layout"], document["faults"]) == (kind, layout, [])
    assert document["config"]["tap_layers"] == [1, 2] and len(document["absent"]) == 2
    faults = look(capsys, folder, "--target", "mini", code=1)["faults"]
    assert len(faults) == 1 and f"./specdrive train draft --kind {kind} --model" in faults[0]
    weights = load_file(folder / "model.safetensors")
    save_file({name: value for name, value in weights.items() if name != "fc.weight"}, folder / "model.safetensors")
    assert "1 missing (fc.weight)" in look(capsys, folder, "--target", model, code=1)["faults"][0]


@pytest.mark.parametrize("kind", ["eagle3", "dflash"])
def test_there_and_back_again(draft, model, tmp_path, capsys, kind):
    folder, other, back = draft(kind), tmp_path / "other", tmp_path / "back"
    convert = ["checkpoint", "convert", "--target", str(model)]
    assert main([*convert, str(folder), "--to", "speculators", "--out", str(other)]) == 0
    assert look(capsys_cleared(capsys), other, "--target", model)["layout"] == "speculators"
    assert main([*convert, str(other), "--out", str(back), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["layout"] == "published"
    text = TargetConfig.load(model).text
    assert read_draft_config(folder, text) == read_draft_config(other, text) == read_draft_config(back, text)
    first, last = load_file(folder / "model.safetensors"), load_file(back / "model.safetensors")
    assert first.keys() == last.keys() and all(torch.equal(first[name], last[name]) for name in first)


def capsys_cleared(capsys):
    capsys.readouterr()
    return capsys


@pytest.mark.parametrize("kind", ["eagle3", "dflash"])
def test_the_files_are_those_that_speculators_writes(golden, text, tmp_path, kind):
    """But for what says of its maker, and for defaults of transformers that change nothing when they are absent."""
    convert_draft(golden / kind / "draft_fit", tmp_path, text, "speculators", "target")
    theirs = golden / "speculators_format" / kind
    ours, wanted = load_file(tmp_path / "model.safetensors"), load_file(theirs / "model.safetensors")
    assert ours.keys() == wanted.keys() and all(torch.equal(ours[name], wanted[name]) for name in ours)
    one, other = (json.loads((folder / "config.json").read_text()) for folder in (tmp_path, theirs))
    one["speculators_config"]["verifier"]["architectures"] = ["Qwen3ForCausalLM"]
    for name in one.keys() - {"specdrive", "transformer_layer_config"}:
        assert one[name] == other[name], name
    layer, wanted_layer = one["transformer_layer_config"], other["transformer_layer_config"]
    for name in layer.keys() & wanted_layer.keys():
        assert layer[name] == wanted_layer[name], name
    assert layer.keys() - wanted_layer.keys() <= {"mlp_bias"}
    left_out = other.keys() - one.keys() - {"auto_map", "target_hidden_size", "transformers_version"}
    assert not left_out
    convert_draft(theirs, tmp_path / "back", text, "published", "target")
    own = load_draft_network(golden / kind / "draft_fit", text).state_dict()
    again = load_draft_network(tmp_path / "back", text).state_dict()
    assert all(torch.equal(own[name], again[name]) for name in own)


def test_numbers_keep_their_type(draft, model, tmp_path):
    folder, text = draft("dflash"), TargetConfig.load(model).text
    half = {name: value.bfloat16() for name, value in load_file(folder / "model.safetensors").items()}
    save_file(half, folder / "model.safetensors")
    for layout, key in (("speculators", "dtype"), ("published", "torch_dtype")):
        convert_draft(folder, tmp_path / layout, text, layout, "target")
        assert {value.dtype for value in load_file(tmp_path / layout / "model.safetensors").values()} == {torch.bfloat16}
        assert json.loads((tmp_path / layout / "config.json").read_text())[key] == "bfloat16"


def test_what_others_would_read_wrongly_is_said(draft, model, tmp_path, capsys):
    folder = draft("eagle3", rope="mirror", mrope_section=(4, 2, 2))
    argv = ["checkpoint", "convert", str(folder), "--target", str(model), "--out", str(tmp_path / "out"), "--json"]
    assert main(argv) == 0
    out, err = capsys.readouterr()
    assert len(json.loads(out)["caveats"]) == 2 and "as if it were flat" in err and "taps [1, 2]" in err
    text = TargetConfig.load(model).text
    assert caveats(config_for(text, "dflash"), text, "published") == []
    assert speculators_config(config_for(text, "dflash"), torch.zeros(1), "m")["aux_hidden_state_layer_ids"] == [1, 2]


def test_wrong_arguments_are_one_line_and_exit_2(draft, model, tmp_path, capsys):
    folder = draft("dflash")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text('{"model_type": "llama"}')
    onto_itself = ["convert", folder, "--target", model, "--out", folder]
    for argv, says in (
        (["inspect", "nosuch"], "neither a folder nor a name"),
        (["inspect", tmp_path], "no config.json"),
        (["inspect", tmp_path / "other"], "neither a model's"),
        (["convert", model, "--target", model, "--out", tmp_path / "out"], "is no draft"),
        (["convert", folder, "--target", "mini", "--out", tmp_path / "out"], "this target has 192"),
        (onto_itself, "is the draft itself"),
        (["convert", folder, "--to", "onnx", "--out", tmp_path / "out"], "invalid choice: 'onnx'"),
    ):
        assert main(["checkpoint", *map(str, argv)]) == 2
        out, err = capsys.readouterr()
        assert says in err and err.count("\n") == 1 and not out
