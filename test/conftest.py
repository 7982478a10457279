"""Fixtures for every test: where the checkout is and where reference material lies beside it."""

import hashlib
import tempfile
from pathlib import Path

import pytest

try:
    from hypothesis import HealthCheck, settings
except ImportError:  # the tests that need it say so
    pass
else:  # how long an example takes says something of the machine only
    settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("any machine")

CHECKOUT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def checkout() -> Path:
    """The root of the repository."""
    return CHECKOUT


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of recordings and reference numbers; tests that need it skip where it is absent."""
    folder = CHECKOUT.parent / "shared"
    if not folder.is_dir():
        pytest.skip(f"no reference material: {folder} does not exist")
    return folder


@pytest.fixture(scope="session")
def exported(request) -> Path:
    """The reference checkpoint with its ONNX graphs.

    Made once per version of the code that makes them and kept in pytest's cache: tracing takes a while.
    """
    pytest.importorskip("onnxscript", reason="needs the train extra")
    package = CHECKOUT / "specdrive_ros"
    sources = [package / "target" / "network.py"]
    sources += [package / "runtime" / f"{name}.py" for name in ("bindings", "export", "graphs", "stored_weights")]
    version = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]
    folder = request.config.cache.mkdir("exported") / version
    if not folder.is_dir():
        from specdrive_ros.runtime.export import export_checkpoint

        with tempfile.TemporaryDirectory(dir=folder.parent) as unfinished:
            made = Path(unfinished) / "checkpoint"
            export_checkpoint(CHECKOUT / "test" / "golden" / "alpamayo_A" / "checkpoint", made)
            try:
                made.rename(folder)
            except OSError:  # another process of the same run was faster
                if not folder.is_dir():
                    raise
    return folder


TINY_TAPS = (1, 2, 3)
TINY_TOKENS = 14  # a reasoning has at most


@pytest.fixture(scope="session")
def tiny_scenes(tmp_path_factory) -> Path:
    """Four worlds to train on and four to validate on, a sample each."""
    pytest.importorskip("torch", reason="needs the train extra")
    from specdrive_ros.training import scenes

    folder = tmp_path_factory.mktemp("scenes")
    short = scenes.EpisodePlan(lead_in_s=(1.5, 1.6), samples=1, sample_every_s=0.5)
    for split, base in (("train", scenes.TRAIN_SEED_BASE), ("validation", scenes.VALIDATION_SEED_BASE)):
        (folder / split).mkdir()
        scenes.write_shard(folder / split / "shard-0.safetensors",
                           scenes.record_episodes(scenes.worlds(base, 4), short))
    return folder


@pytest.fixture(scope="session")
def tiny_target(tiny_scenes, tmp_path_factory) -> Path:
    """A very small target with chance weights, loud enough that text depends on the prompt and plans on the text."""
    import torch

    from specdrive_ros.target.checkpoint import save_target
    from specdrive_ros.target.network import AlpamayoTarget

    folder = tmp_path_factory.mktemp("target")
    torch.manual_seed(0)
    network = AlpamayoTarget(tiny_config(folder, tiny_scenes))
    with torch.no_grad():
        for parameter in (*network.language_model.parameters(), *network.expert.parameters()):
            if parameter.ndim > 1:
                parameter.mul_(5)
        network.vlm.lm_head.weight.mul_(30)  # else it says every word with the same probability
    save_target(network, folder)
    (folder / "model.yaml").write_text(f"max_new_tokens: {TINY_TOKENS}\n")
    return folder


def tiny_config(folder: Path, scenes: Path):
    """Tokenizer and configs of the tiny target, written to `folder`."""
    from dataclasses import replace

    from specdrive_ros.target.config import ExpertConfig, TextConfig, VisionConfig, mini_config
    from specdrive_ros.target.prompt import SYSTEM_TEXT, USER_TEXT
    from specdrive_ros.target.released_layout import write_configs
    from specdrive_ros.target.tokens import BASE_TOKENS, TargetTokenizer
    from specdrive_ros.training.scenes import open_shards
    from specdrive_ros.training.vocabulary import train_base_tokenizer

    texts = [words["text"] for shard in open_shards(scenes / "train") for words in shard.words]
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
    return config


@pytest.fixture(scope="session")
def quiet_progress():
    """`progress` of the command line that says nothing."""
    from contextlib import contextmanager
    from types import SimpleNamespace

    @contextmanager
    def progress(_name, _total, _done=0):
        yield SimpleNamespace(advance=lambda *_: None)

    return progress
