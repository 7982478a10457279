import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the train extra")
pytest.importorskip("transformers", reason="needs the train extra")

from specdrive_ros.target.config import mini_config  # noqa: E402
from specdrive_ros.target.network import AlpamayoTarget, draw_flow_times  # noqa: E402
from specdrive_ros.target.rope import text_positions  # noqa: E402


@pytest.fixture(scope="module")
def prompt(arrays, target):
    """The reference prompt's inputs as tensors and the target's pass over them."""
    inputs, expected = arrays("inputs"), arrays("expected_prefill")
    ids, patches = torch.from_numpy(inputs["input_ids"]), torch.from_numpy(inputs["pixel_values"])
    positions = torch.from_numpy(expected["position_ids"])
    image_mask = ids == 412
    vision = target.encode_images(patches, inputs["image_grid_thw"])
    embeddings = target.embed_prompt(ids, image_mask, vision.embeddings)
    output = target.text_forward(embeddings, positions, deepstack=vision.deepstack, image_mask=image_mask)
    return {
        "ids": ids,
        "patches": patches,
        "grid": torch.from_numpy(inputs["image_grid_thw"]),
        "positions": positions,
        "image_mask": image_mask,
        "vision": vision,
        "embeddings": embeddings,
        "output": output,
    }


def test_same_as_the_forward_of_transformers(target, prompt, monkeypatch):
    monkeypatch.setattr(target.vlm.config, "image_token_id", 412)
    theirs = target.vlm(
        input_ids=prompt["ids"],
        pixel_values=prompt["patches"],
        image_grid_thw=prompt["grid"],
        mm_token_type_ids=prompt["image_mask"].int(),
        use_cache=False,
    )
    torch.testing.assert_close(target.logits(prompt["output"].hidden), theirs.logits, atol=1e-4, rtol=0)


def test_images_of_different_sizes_go_through_together(target):
    random = torch.Generator().manual_seed(0)
    grids = np.array([[1, 4, 8], [1, 4, 8], [1, 2, 6], [1, 4, 8]])
    patches = torch.rand(int(grids.prod(1).sum()), 1536, generator=random) * 2 - 1
    together = target.encode_images(patches, grids)
    theirs = target.vlm.model.visual(patches, grid_thw=torch.from_numpy(grids))
    torch.testing.assert_close(together.embeddings, theirs.pooler_output, atol=1e-4, rtol=0)
    for ours, rows in zip(together.deepstack, theirs.deepstack_features):
        torch.testing.assert_close(ours, rows, atol=1e-4, rtol=0)


def test_a_pass_in_pieces_leaves_the_same_cache(target, prompt):
    split = 150
    first = target.text_forward(
        prompt["embeddings"][:, :split],
        prompt["positions"][..., :split],
        image_mask=prompt["image_mask"][:, :split],
        deepstack=prompt["vision"].deepstack,
    )
    second = target.text_forward(
        prompt["embeddings"][:, split:], prompt["positions"][..., split:], past=first.key_values
    )
    torch.testing.assert_close(second.hidden, prompt["output"].hidden[:, split:], atol=1e-4, rtol=0)
    for pieces, whole in zip(second.key_values, prompt["output"].key_values):
        torch.testing.assert_close(pieces, whole, atol=1e-4, rtol=0)


def test_a_tree_mask_hides_branches_from_each_other(target, prompt):
    """Two continuations of one token, verified in a pass, see what each alone would see."""
    past, length = prompt["output"].key_values, prompt["ids"].shape[1]
    tokens = torch.tensor([[30, 40, 50]])  # 40 and 50 both follow 30
    positions = torch.from_numpy(np.tile(length - 32 + np.array([0, 1, 1]), (3, 1, 1)))
    mask = torch.ones(1, 1, 3, length + 3, dtype=torch.bool)
    mask[0, 0, :, length:] = torch.tensor([[1, 0, 0], [1, 1, 0], [1, 0, 1]], dtype=torch.bool)
    tree = target.text_forward(target.embed(tokens), positions, mask, past=past)
    for row, branch in ((1, [30, 40]), (2, [30, 50])):
        alone = target.text_forward(target.embed(torch.tensor([branch])), positions[..., :2], past=past)
        torch.testing.assert_close(tree.hidden[0, row], alone.hidden[0, 1], atol=1e-4, rtol=0)


def test_padded_rows_of_a_batch_are_those_of_single_samples(target):
    random = torch.Generator().manual_seed(1)
    ids, lengths = torch.randint(0, 400, (2, 12), generator=random), torch.tensor([12, 7])
    real = torch.arange(12) < lengths[:, None]
    positions = torch.from_numpy(text_positions(0, 12, 0))[:, None].expand(3, 2, 12)
    batch = target.text_forward(target.embed(ids), positions, real)
    alone = target.text_forward(target.embed(ids[1:, :7]), positions[:, :1, :7])
    torch.testing.assert_close(batch.hidden[1, :7], alone.hidden[0], atol=1e-4, rtol=0)

    noise = torch.randn(1, 64, 2, generator=random)
    waypoints = torch.from_numpy(text_positions(7, 64, 0))[:, None]
    padded = target.sample(noise.expand(2, -1, -1), batch.key_values, waypoints.expand(3, 2, 64), real)
    single = target.sample(noise, alone.key_values, waypoints)
    torch.testing.assert_close(padded[1:], single, atol=1e-3, rtol=0)


def test_flow_matching_loss_vanishes_for_the_right_velocity(target, prompt, monkeypatch):
    action, noise = torch.randn(2, 64, 2), torch.randn(2, 64, 2)
    monkeypatch.setattr(target, "velocity", lambda x, t, *_: action - noise)
    assert target.flow_matching_loss(action, [], None, noise=noise).abs().max() == 0
    monkeypatch.setattr(
        target, "velocity", lambda x, t, *_: (x - noise) / t
    )  # from the state it is evaluated at
    loss = target.flow_matching_loss(action, [], None, noise=noise, t=torch.full((2, 1, 1), 0.3))
    assert loss.max() < 1e-8


def test_flow_times_lean_towards_the_noise():
    torch.manual_seed(0)
    times = draw_flow_times(20000)
    assert times.shape == (20000, 1, 1)
    assert times.min() >= 0 and times.max() <= 0.999
    assert times.mean() == pytest.approx(0.999 * (1 - 1.5 / 2.5), abs=0.01)  # Beta(1.5, 1) has the mean 0.6


def test_every_weight_of_mini_learns():
    """One step's gradients reach every parameter of vision, language model and expert."""
    torch.manual_seed(0)
    target = AlpamayoTarget(mini_config(vocab_size=4300, traj_token_start_idx=200))
    grid = np.array([[1, 6, 10]] * 2)
    vision = target.encode_images(torch.randn(120, 1536), grid)
    ids = torch.randint(0, 200, (2, 20))
    image_mask = torch.zeros_like(ids, dtype=torch.bool)
    image_mask[:, 2:17] = True
    positions = torch.from_numpy(text_positions(0, 20, 0))[:, None].expand(3, 2, 20)
    embeddings = target.embed_prompt(ids, image_mask, vision.embeddings)
    output = target.text_forward(embeddings, positions, deepstack=vision.deepstack, image_mask=image_mask)
    loss = target.logits(output.hidden).logsumexp(-1).mean()
    waypoints = torch.from_numpy(text_positions(20, 64, 0))[:, None].expand(3, 2, 64)
    loss = loss + target.flow_matching_loss(torch.randn(2, 64, 2), output.key_values, waypoints).mean()
    loss.backward()
    still = [
        name
        for name, weight in target.named_parameters()
        if weight.grad is None or not weight.grad.abs().any()
    ]
    assert still == []


@pytest.mark.parametrize("index", range(2))
def test_a_lost_deepstack_level_shows(target, prompt, index):
    """The comparison with the reference can fail: without one level the hidden states are far off."""
    deepstack = [rows * (level != index) for level, rows in enumerate(prompt["vision"].deepstack)]
    wrong = target.text_forward(
        prompt["embeddings"], prompt["positions"], deepstack=deepstack, image_mask=prompt["image_mask"]
    )
    assert (wrong.hidden - prompt["output"].hidden).abs().max() > 1e-2
