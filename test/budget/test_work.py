"""What is counted from a shape is what the networks have and do: parameters and operations of the real modules."""

import numpy as np
import pytest

from specdrive_ros.budget.device import find_precision
from specdrive_ros.budget.shape import find_shape, read_shape, with_cycle
from specdrive_ros.budget.work import Stages, Work
from specdrive_ros.errors import InputError
from specdrive_ros.model_settings import find_model
from specdrive_ros.shapes import PICTURE_SIZE


@pytest.fixture(scope="module")
def mini():
    return Stages(find_shape("mini"), find_precision("fp16"))


@pytest.fixture(scope="module")
def network():
    """Mini's network without weights."""
    torch = pytest.importorskip("torch", reason="needs the train extra")
    from specdrive_ros.target.config import TargetConfig
    from specdrive_ros.target.network import AlpamayoTarget

    with torch.device("meta"):
        return AlpamayoTarget(TargetConfig.load(find_model("mini").checkpoint)).eval()


def counted(run) -> int:
    """Operations of every product in a call."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter, torch.no_grad(), torch.device("meta"):
        run(torch)
    return counter.get_total_flops()


def numbers(module) -> int:
    return sum(parameter.numel() for parameter in module.parameters() if parameter.ndim > 1)


def test_parameters_are_those_of_the_network(mini, network):
    layers = mini.shape.text.layers * mini.text_layer_weights
    assert layers == numbers(network.language_model.layers)
    assert mini.head_weights == numbers(network.vlm.lm_head)
    assert mini.expert_weights == numbers(network.expert)
    assert mini.vision_weights == numbers(network.vlm.model.visual)


def test_the_released_model_has_ten_billion():
    stages = Stages(read_shape("alpamayo-r1"), find_precision("bf16"))
    text = stages.shape.text.layers * stages.text_layer_weights + 2 * stages.head_weights
    assert 8.15e9 < text + stages.vision_weights < 8.85e9  # the card says 8.2 without, 8.8 with all of vision
    assert 2.25e9 < stages.expert_weights < 2.35e9


@pytest.mark.parametrize(("tokens", "cached"), [(1, 141), (16, 141), (60, 300)])
def test_operations_of_a_text_pass(mini, network, tokens, cached):
    from specdrive_ros.runtime.graphs import TextGraph

    s, graph = mini.shape.text, TextGraph(network, (2, 4, 5)).to("meta")

    def run(torch):
        past = [torch.zeros(cached, 2, s.kv_heads, s.head) for _ in range(s.layers)]
        deepstack, rows = torch.zeros(2, tokens, s.hidden), torch.zeros(tokens, dtype=torch.int64)
        hidden, turned = torch.zeros(tokens, s.hidden), torch.zeros(tokens, s.head)
        graph(hidden, turned, turned, torch.zeros(tokens, cached + tokens), deepstack, rows, past)

    work = mini.text(tokens, cached, tokens)
    masked = 4 * s.layers * s.heads * s.head * tokens * (tokens - 1) / 2  # that graph computes what the mask hides, too
    assert counted(run) == work.products + work.other + masked


def test_operations_of_an_action_step(mini, network):
    from specdrive_ros.runtime.graphs import ActionStep

    s, e, cached = mini.shape.text, mini.shape.expert, 200

    def run(torch):
        past = [torch.zeros(s.kv_heads, cached, s.head) for _ in range(s.layers)]
        turned = torch.zeros(e.waypoints, s.head)
        ActionStep(network)(torch.zeros(e.waypoints, 2), torch.zeros(1, 1, 1), turned, turned, past, past)

    work = mini.action_step(cached)
    masked = 4 * s.layers * e.heads * s.head * e.waypoints * (e.waypoints - 1) / 2  # waypoints see each other both ways
    ends = 2 * e.waypoints * (numbers(network.action_in_proj) + numbers(network.action_out_proj))
    assert work.products == 0 and counted(run) == work.other + masked + ends


def test_operations_of_vision(mini, network):
    from specdrive_ros.runtime.graphs import VisionGraph

    v, images = mini.shape.vision, 3
    patches = mini.shape.cycle.patches

    def run(torch):
        rows, turned = torch.zeros(patches, 4, dtype=torch.int64), torch.zeros(patches, v.hidden // v.heads)
        values = torch.zeros(images, patches, v.patch_values)
        VisionGraph(network)(values, rows, torch.zeros(patches, 4), turned, turned)

    embedding = 2 * images * patches * v.patch_values * v.hidden
    assert counted(run) == mini.vision(images).other + embedding


def test_weights_are_read_once_a_pass_and_the_cache_once_a_row(mini):
    one, many, longer = mini.text(1, 100, 1), mini.text(16, 100, 1), mini.text(1, 200, 1)
    assert one.products * 16 == pytest.approx(many.products + 15 * 2 * mini.head_weights)
    assert many.bytes < 2 * one.bytes
    assert longer.bytes - one.bytes == 100 * mini.row_bytes(mini.shape.text.layers)


def test_narrow_weights_are_fewer_bytes_and_as_many_operations():
    shape = read_shape("alpamayo-r1")
    half, narrow = (Stages(shape, find_precision(name)) for name in ("bf16", "int4"))
    assert half.text(1, 0, 1).products == narrow.text(1, 0, 1).products
    assert 3.5 < half.text(1, 0, 1).bytes / narrow.text(1, 0, 1).bytes < 16 / 4.25
    assert half.action_step(10) == narrow.action_step(10) and half.vision(4) == narrow.vision(4)


def test_work_adds_up():
    assert Work(1, 2, 3, 4, 5) * 2 + Work(1, 1, 1, 1, 1) == Work(3, 5, 7, 9, 11)


def test_proposals_grow_with_what_they_run(mini):
    eagle, context = mini.eagle3_newest(8, 100), mini.dflash_context(8)
    assert mini.eagle3_proposal(8, 100) == eagle + mini.eagle3_step(10, 100) * 6
    assert mini.dflash_proposal(8, 100) == context + mini.dflash_block(100)
    assert mini.draft_weights("phrasebook") == 0 < mini.draft_weights("eagle3")


def test_draft_weights_are_those_of_the_networks(mini):
    torch = pytest.importorskip("torch", reason="needs the train extra")
    from specdrive_ros.draft.config import DFlashConfig, Eagle3Config
    from specdrive_ros.draft.dflash_network import DFlash
    from specdrive_ros.draft.eagle3_network import Eagle3

    s = mini.shape.text
    sizes = dict(
        hidden_size=s.hidden, intermediate_size=s.inner, num_attention_heads=s.heads, num_key_value_heads=s.kv_heads,
        head_dim=s.head, vocab_size=64000, target_layers=s.layers, rope_theta=1e4,
    )  # fmt: skip
    with torch.device("meta"):
        eagle = Eagle3(Eagle3Config(num_hidden_layers=1, tap_layers=(2, 4, 5), draft_vocab_size=32000, **sizes))
        blocks = dict(num_hidden_layers=5, tap_layers=(1, 2, 3, 4, 5), block_size=16, mask_token_id=0)
        dflash = DFlash(DFlashConfig(**blocks, **sizes))
    assert numbers(eagle) == mini.draft_weights("eagle3") and numbers(dflash) == mini.draft_weights("dflash")


def test_the_prompt_of_mini_is_the_one_it_drives_with():
    """Counted with its own tokenizer, for images of the size its config allows."""
    from specdrive_ros.target.config import TargetConfig
    from specdrive_ros.target.prompt import build_prompt
    from specdrive_ros.target.tokens import TargetTokenizer

    config = TargetConfig.load(find_model("mini").checkpoint)
    grids = np.array([[1, *(side // config.vision.patch_size for side in PICTURE_SIZE)]] * 4)
    prompt = build_prompt(config, TargetTokenizer.load(config), grids, np.zeros((16, 3)))
    assert find_shape("mini").cycle.prompt == len(prompt.token_ids)


def test_a_cycle_can_be_changed():
    longer = with_cycle(read_shape("alpamayo-r1"), reasoning=2000)
    assert longer.cycle.reasoning == 2000 and longer.cycle.capacity == 5027
    with pytest.raises(InputError, match="reasoning must be a whole number of at least 1, got 0"):
        with_cycle(read_shape("alpamayo-r1"), reasoning=0)
    with pytest.raises(InputError, match="Qwen3 8B: has no vision"):
        with_cycle(read_shape("qwen3-8b"))
