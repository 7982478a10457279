import shutil

import pytest

torch = pytest.importorskip("torch", reason="needs the train extra")

from safetensors.torch import load_file, save_file  # noqa: E402

from specdrive_ros.draft.checkpoint import load_draft_network, save_draft  # noqa: E402
from specdrive_ros.errors import InputError  # noqa: E402


@pytest.mark.parametrize("kind", ["eagle3", "dflash"])
def test_speculators_files_hold_the_same_network(golden, text, kind):
    one = load_draft_network(golden / kind / "draft_fit", text).state_dict()
    other = load_draft_network(golden / "speculators_format" / kind, text).state_dict()
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("kind", ["eagle3", "dflash"])
def test_saved_and_loaded_again(golden, text, tmp_path, kind):
    draft = load_draft_network(golden / kind / "draft_fit", text)
    save_draft(draft, tmp_path)
    written = load_file(tmp_path / "model.safetensors")
    assert set(written) == set(load_file(golden / kind / "draft_fit/model.safetensors"))
    again = load_draft_network(tmp_path, text)
    assert again.config == draft.config
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in draft.state_dict().items())


def copy_with(golden, tmp_path, kind, change):
    folder = shutil.copytree(golden / kind / "draft_fit", tmp_path / "copy")
    weights = load_file(golden / kind / "draft_fit/model.safetensors")
    change(weights)
    save_file(weights, str(folder / "model.safetensors"))
    return folder


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda weights: weights.pop("fc.weight"), "1 missing \\(fc.weight\\)"),
        (lambda weights: weights.update(spare=torch.zeros(1)), "1 unexpected \\(spare\\)"),
        (lambda weights: weights.update({"d2t": torch.zeros(96, dtype=torch.int64)}), "d2t and t2d disagree"),
        (lambda weights: weights.update({"fc.weight": torch.zeros(64, 128)}),
         "fc.weight \\[64, 128\\] must be \\[64, 192\\]"),
    ],
)
def test_half_a_draft_is_refused(golden, text, tmp_path, change, message):
    with pytest.raises(InputError, match=message):
        load_draft_network(copy_with(golden, tmp_path, "eagle3", change), text)


def test_copies_of_the_targets_tensors_are_left_alone(golden, text, tmp_path):
    copies = {"embed_tokens.weight": torch.zeros(192, 64), "lm_head.weight": torch.zeros(192, 64)}
    folder = copy_with(golden, tmp_path, "dflash", lambda weights: weights.update(copies))
    assert "lm_head.weight" not in load_draft_network(folder, text).state_dict()
