"""A handful of driving scenes and a very small target with chance weights, for drafts to learn from."""

from dataclasses import replace

import pytest

from specdrive_ros.target.config import ExpertConfig, TextConfig, VisionConfig, mini_config
from specdrive_ros.target.prompt import SYSTEM_TEXT, USER_TEXT
from specdrive_ros.target.released_layout import write_configs
from specdrive_ros.target.tokens import BASE_TOKENS, TargetTokenizer
from specdrive_ros.training.scenes import (
    TRAIN_SEED_BASE,
    VALIDATION_SEED_BASE,
    EpisodePlan,
    open_shards,
    record_episodes,
    worlds,
    write_shard,
)


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    short = EpisodePlan(lead_in_s=(1.5, 1.6), samples=1, sample_every_s=0.5)
    for split, base in (("train", TRAIN_SEED_BASE), ("validation", VALIDATION_SEED_BASE)):
        (folder / split).mkdir()
        write_shard(folder / split / "shard-0.safetensors", record_episodes(worlds(base, 4), short))
    return folder


@pytest.fixture(scope="session")
def target(data, tmp_path_factory):
    """A very small target with chance weights, large enough that its text depends on the prompt."""
    torch = pytest.importorskip("torch", reason="needs the train extra")
    from specdrive_ros.target.checkpoint import save_target
    from specdrive_ros.target.network import AlpamayoTarget
    from specdrive_ros.training.vocabulary import train_base_tokenizer

    folder = tmp_path_factory.mktemp("target")
    texts = [words["text"] for shard in open_shards(data / "train") for words in shard.words]
    base = train_base_tokenizer([SYSTEM_TEXT, USER_TEXT, "system\n", "user\n", "assistant\n", *texts])
    (folder / "backbone").mkdir()
    base.save(str(folder / "backbone" / "tokenizer.json"))
    tokenizer = TargetTokenizer(base)
    tokenizer.save(folder / "tokenizer.json")
    config = replace(
        mini_config(tokenizer.size, base.get_vocab_size()),
        text=TextConfig(
            hidden_size=64, intermediate_size=96, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
            head_dim=16, vocab_size=tokenizer.size, mrope_section=(4, 2, 2), rope_theta=1e4,
        ),
        vision=VisionConfig(
            hidden_size=32, intermediate_size=64, depth=2, num_heads=2, out_hidden_size=64,
            num_position_embeddings=100, deepstack_visual_indexes=(0,),
        ),
        expert=ExpertConfig(hidden_size=32, intermediate_size=32, num_attention_heads=2, head_dim=16),
    )  # fmt: skip
    write_configs(folder, config, tokenizer.trajectory_ids, base.get_vocab_size(),
                  {token: base.token_to_id(token) for token in BASE_TOKENS})  # fmt: skip
    torch.manual_seed(0)
    network = AlpamayoTarget(config)
    with torch.no_grad():
        for parameter in network.language_model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(5)
        network.vlm.lm_head.weight.mul_(30)  # else it says every word with the same probability
    save_target(network, folder)
    return folder
