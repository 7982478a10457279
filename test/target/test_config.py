import json
import shutil
from dataclasses import replace

import pytest

from specdrive_ros.errors import InputError
from specdrive_ros.target.config import ImageLimits, TargetConfig, mini_config
from specdrive_ros.target.released_layout import write_configs


@pytest.fixture
def copied(golden, tmp_path):
    """Configs of the reference checkpoint that a test may damage: (edit(file, change), checkpoint folder)."""
    for folder in ("checkpoint", "backbone"):
        (tmp_path / folder).mkdir()
        shutil.copy(golden / folder / "config.json", tmp_path / folder / "config.json")

    def edit(file, change):
        path = tmp_path / file / "config.json"
        content = json.loads(path.read_text())
        change(content)
        path.write_text(json.dumps(content))

    return edit, tmp_path / "checkpoint"


def test_released_layout(config):
    assert (config.text.num_hidden_layers, config.text.head_dim, config.text.vocab_size) == (4, 16, 4454)
    assert config.text.mrope_section == (4, 2, 2)
    assert config.vision.deepstack_visual_indexes == (1, 2)
    assert config.expert.hidden_size == 48
    assert config.history_token_start == 3426
    assert config.action_space.curvature_bounds == (-0.33, 0.33)


def test_written_configs_are_read_back(tmp_path):
    config = mini_config(vocab_size=6000, traj_token_start_idx=1500)
    tokens = (
        "<|image_pad|>",
        "<|video_pad|>",
        "<|vision_start|>",
        "<|vision_end|>",
        "<|endoftext|>",
        "<|im_end|>",
    )
    write_configs(tmp_path, config, {"history": 5517}, 1500, dict.fromkeys(tokens, 7))
    loaded = TargetConfig.load(tmp_path)
    assert loaded.backbone_folder == tmp_path / "backbone"
    assert replace(loaded, folder=None, backbone_folder=None) == config


def test_written_keys_are_those_of_the_release(golden, config, tokenizer, tmp_path):
    write_configs(tmp_path, config, tokenizer.trajectory_ids, tokenizer.base_size, tokenizer.base_ids)
    for ours, released in (("", "checkpoint"), ("backbone", "backbone")):
        ours, released = (
            json.loads((path / "config.json").read_text()) for path in (tmp_path / ours, golden / released)
        )
        different = {name for name in released if ours.get(name) != released[name]}
        assert different <= {"transformers_version"}


def test_newer_backbones_keep_the_angle_in_rope_parameters(copied):
    edit, folder = copied

    def modernise(backbone):
        text = backbone["text_config"]
        text["rope_parameters"] = {**text.pop("rope_scaling"), "rope_theta": text.pop("rope_theta")}

    edit("backbone", modernise)
    assert TargetConfig.load(folder).text.rope_theta == 5e6


@pytest.mark.parametrize(
    "file, change, message",
    [
        ("checkpoint", lambda c: c.pop("action_space_cfg"), "'action_space_cfg' is missing"),
        ("checkpoint", lambda c: c["action_space_cfg"].pop("v_ridge"), "'v_ridge' is missing"),
        ("checkpoint", lambda c: c["action_space_cfg"].update(dt="fast"), "dt: must be a number, got 'fast'"),
        ("checkpoint", lambda c: c["expert_cfg"].update(head_dim=8), "must be 16, the text model's"),
        ("checkpoint", lambda c: c["expert_cfg"].update(num_hidden_layers=3), "num_hidden_layers: must be 4"),
        ("checkpoint", lambda c: c["expert_cfg"].update(num_attention_heads=3), "must be a multiple of 2"),
        ("checkpoint", lambda c: c.update(tokens_per_history_traj=16), "must be 48"),
        ("checkpoint", lambda c: c.update(traj_vocab_size=768), "must be 4000"),
        ("checkpoint", lambda c: c.update(vocab_size=4000), "must be at least 4426"),
        ("checkpoint", lambda c: c.update(min_pixels=99999), "must be at most 12288"),
        ("checkpoint", lambda c: c.update(expert_non_causal_attention=False), "must be true"),
        ("checkpoint", lambda c: c.update(vlm_name_or_path="nvidia/Cosmos-Reason2-8B"), "Cosmos-Reason2-8B"),
        ("checkpoint", lambda c: c.update(vocab_size=True), "must be a whole number"),
        (
            "backbone",
            lambda c: c["text_config"]["rope_scaling"].update(mrope_section=[4, 4, 4]),
            "add up to 8",
        ),
        (
            "backbone",
            lambda c: c["text_config"]["rope_scaling"].update(mrope_interleaved=False),
            "must be True",
        ),
        ("backbone", lambda c: c.update(tie_word_embeddings=True), "must be False"),
        ("backbone", lambda c: c["text_config"].update(hidden_act="gelu"), "must be 'silu'"),
        ("backbone", lambda c: c["text_config"].update(num_key_value_heads=3), "must be a multiple of 3"),
        (
            "backbone",
            lambda c: c["vision_config"].update(num_position_embeddings=60),
            "must be a square number",
        ),
        (
            "backbone",
            lambda c: c["vision_config"].update(deepstack_visual_indexes=[1, 4]),
            "different blocks below 4",
        ),
        ("backbone", lambda c: c["vision_config"].update(out_hidden_size=32), "must be 64"),
        ("backbone", lambda c: c.pop("vision_config"), "'vision_config' is missing"),
    ],
)
def test_a_wrong_config_is_refused_with_rule_and_value(copied, file, change, message):
    edit, folder = copied
    edit(file, change)
    with pytest.raises(InputError) as caught:
        TargetConfig.load(folder)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_hub_name_says_which_folder_to_fill(copied):
    edit, folder = copied
    edit("checkpoint", lambda c: c.update(vlm_name_or_path="Qwen/Qwen3-VL-8B-Instruct"))
    with pytest.raises(InputError, match=str(folder.parent / "Qwen3-VL-8B-Instruct")):
        TargetConfig.load(folder)
    (folder.parent / "backbone").rename(folder.parent / "Qwen3-VL-8B-Instruct")
    assert TargetConfig.load(folder).backbone_folder.name == "Qwen3-VL-8B-Instruct"


@pytest.mark.parametrize("content", ["", "{", "[1]", "\udcff"])
def test_a_damaged_config_is_one_line(tmp_path, content):
    (tmp_path / "config.json").write_text(content, errors="surrogateescape")
    with pytest.raises(InputError, match="config.json"):
        TargetConfig.load(tmp_path)


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(InputError, match="nowhere.*does not exist"):
        TargetConfig.load(tmp_path / "nowhere")


def test_no_pixels_are_refused():
    with pytest.raises(InputError, match="min_pixels"):
        ImageLimits(min_pixels=0, max_pixels=10)
