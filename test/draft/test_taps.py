from pathlib import Path

import numpy as np
import pytest

from specdrive_ros.draft.taps import TapSelection, dflash_taps, eagle3_taps, from_outputs, to_outputs
from specdrive_ros.errors import InputError

ALPAMAYO = Path(__file__).parents[1] / "golden" / "alpamayo_A"


def test_published_choices():
    assert eagle3_taps(8) == (2, 4, 5) and eagle3_taps(36) == (2, 18, 33)
    assert to_outputs(dflash_taps(36, 5)) == [1, 9, 17, 25, 33]
    assert dflash_taps(8, 2) == (2, 6) and dflash_taps(8, 1) == (5,)
    assert from_outputs([1, 3, 4]) == eagle3_taps(8)  # SpecForge's way to write the same states


def test_a_tap_is_what_enters_the_layer_with_deepstack_added():
    """The setting that three repositories have in three ways: here against the reference's own hidden states."""
    pytest.importorskip("torch", reason="needs the train extra")
    import torch

    from specdrive_ros.target.checkpoint import load_target

    def arrays(file):
        with np.load(ALPAMAYO / f"{file}.npz") as archive:
            return {name: archive[name] for name in archive.files}

    target, inputs, expected = load_target(ALPAMAYO / "checkpoint"), arrays("inputs"), arrays("expected_prefill")
    mask = torch.from_numpy(inputs["input_ids"] == 412)
    levels = [torch.from_numpy(arrays("expected_vision")[f"deepstack_{k}"]) for k in range(2)]
    output = target.text_forward(
        torch.from_numpy(expected["inputs_embeds"]), torch.from_numpy(expected["position_ids"]),
        deepstack=levels, image_mask=mask,
    )
    entering = [expected["inputs_embeds"], *(layer.detach().numpy() for layer in output.layers)]
    for tap in (2, 3):
        np.testing.assert_allclose(entering[tap], expected[f"layer_in_{tap}"], atol=1e-4)
    added = np.abs(entering[1] - expected["layer_out_pre_deepstack_0"]).max(-1)
    assert (added[mask.numpy()] > 1e-2).all() and (added[~mask.numpy()] < 1e-4).all()


def test_selection_takes_the_columns_of_the_wanted_layers():
    taps = np.arange(2 * 9, dtype=np.float32).reshape(2, 9)  # layers 2, 4 and 5, hidden size 3
    assert TapSelection((2, 4, 5), (2, 4, 5), 3, "d")(taps) is taps
    picked = TapSelection((5, 2), (2, 4, 5), 3, "d")(taps)
    assert picked[0].tolist() == [6, 7, 8, 0, 1, 2]


def test_a_missing_tap_names_the_export_that_gives_it():
    with pytest.raises(InputError,
                       match="drafts/x: reads .*layers \\[2, 6\\].*give \\[2, 4, 5\\].*--tap-layers 2 4 5 6"):
        TapSelection((2, 6), (2, 4, 5), 3, "drafts/x")
