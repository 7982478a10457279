import json

import numpy as np

from specdrive_ros.target.prompt import build_prompt, placeholder_ids, prompt_text


def test_text_is_the_reference_chat_template(golden):
    assert prompt_text(8, 48) == json.loads((golden / "meta.json").read_text())["prompt_text"]


def test_prompt_of_the_reference(config, tokenizer, arrays):
    inputs, expected = arrays("inputs"), arrays("expected_prefill")
    prompt = build_prompt(config, tokenizer, inputs["image_grid_thw"], inputs["ego_history_xyz"][0, 0])
    np.testing.assert_array_equal(prompt.token_ids, inputs["input_ids"][0])
    np.testing.assert_array_equal(prompt.position_ids, expected["position_ids"][:, 0])
    assert prompt.rope_delta == -32
    assert len(prompt.image_rows) == 64
    assert (prompt.token_ids[prompt.image_rows] == tokenizer.ids["image_pad"]).all()


def test_placeholders_follow_the_grids(config, tokenizer):
    ids = placeholder_ids(config, tokenizer, np.array([[1, 6, 10], [1, 2, 2]]))
    assert (ids == tokenizer.ids["image_pad"]).sum() == 15 + 1
    assert (ids == tokenizer.ids["traj_history"]).sum() == 48
    assert ids[-1] == tokenizer.ids["cot_start"]
