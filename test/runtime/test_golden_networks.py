"""Both runtimes against the reference's numbers."""

import numpy as np
import pytest

from specdrive_ros.target.rope import rotary_tables, text_positions

WITHIN = 1e-4


@pytest.fixture
def prefilled(networks, arrays):
    """The cache and output of the reference prompt."""
    inputs, expected = arrays("inputs"), arrays("expected_prefill")
    features = networks.encode_images(inputs["pixel_values"], inputs["image_grid_thw"])
    ids = inputs["input_ids"][0]
    rows = np.flatnonzero(ids == 412)
    embeddings = networks.embed(ids)
    embeddings[rows] = features.embeddings
    deepstack = np.zeros((2, *embeddings.shape), np.float32)
    deepstack[:, rows] = features.deepstack
    cache = networks.new_cache(256)
    output = networks.extend(embeddings, expected["position_ids"][:, 0], cache, deepstack=deepstack)
    return cache, output


def test_vision(networks, arrays):
    inputs, expected = arrays("inputs"), arrays("expected_vision")
    features = networks.encode_images(inputs["pixel_values"], inputs["image_grid_thw"])
    np.testing.assert_allclose(features.embeddings, expected["image_embeds"], atol=WITHIN)
    for level in (0, 1):
        np.testing.assert_allclose(features.deepstack[level], expected[f"deepstack_{level}"], atol=WITHIN)


def test_prefill_logits_taps_and_rows(networks, arrays, prefilled):
    cache, output = prefilled
    expected = arrays("expected_prefill")
    np.testing.assert_allclose(output.logits[expected["logit_positions"]], expected["logits"], atol=WITHIN)
    assert networks.tap_layers == (2, 2, 1)  # 2, n // 2 and n - 3 of four layers
    np.testing.assert_allclose(output.taps[:, :64], expected["layer_in_2"][0], atol=WITHIN)
    for layer in (0, 3):
        for which, name in enumerate(("key", "value")):
            rows = cache.rows[layer, : cache.length, which].transpose(1, 0, 2)
            np.testing.assert_allclose(rows, expected[f"{name}_{layer}"][0], atol=WITHIN)


def test_greedy_steps(networks, arrays, prefilled):
    cache, output = prefilled
    expected = arrays("expected_greedy")
    logits = output.logits[-1]
    for token, step_logits, position in zip(
        expected["tokens"], expected["logits"], expected["position_of_token"], strict=True
    ):
        np.testing.assert_allclose(logits, step_logits, atol=WITHIN)
        output = networks.extend(networks.embed(np.array([token])), text_positions(position, 1, 0), cache)
        logits = output.logits[0]


@pytest.fixture
def reasoned(networks, arrays, prefilled):
    """The cache as the action head finds it."""
    cache, _ = prefilled
    written = arrays("expected_greedy")["sequence_with_stop"][0, 205:220]
    delta = int(arrays("expected_action")["rope_deltas"][0, 0])
    networks.extend(networks.embed(written), text_positions(205, len(written), delta), cache)
    return cache


def test_rows_at_the_action_head(arrays, reasoned):
    assert reasoned.length == arrays("expected_action")["offset"][0]
    expected = arrays("expected_kv")
    for layer in (0, 3):
        for which, name in enumerate(("key", "value")):
            rows = reasoned.rows[layer, : reasoned.length, which].transpose(1, 0, 2)
            np.testing.assert_allclose(rows, expected[f"{name}_{layer}"][0], atol=WITHIN)


def test_action(networks, arrays, reasoned):
    expected = arrays("expected_action")
    positions = expected["expert_position_ids"][:, 0]
    action = networks.act(arrays("inputs")["noise"][0], positions, reasoned, visible=reasoned.length)
    np.testing.assert_allclose(action, expected["action"][0], atol=1e-3)


@pytest.mark.parametrize("steps", (1, 3, 10))
def test_another_number_of_steps_is_the_same_field(networks, arrays, reasoned, torch_networks, steps):
    """Against Euler steps written out with the reference's velocity."""
    torch = pytest.importorskip("torch")
    positions = arrays("expected_action")["expert_position_ids"][:, 0]
    noise = arrays("inputs")["noise"][0]
    cos, sin = map(torch.from_numpy, rotary_tables(positions, networks.config.text))
    past = [list(part) for part in torch.from_numpy(torch_networks.laid_out(reasoned.rows[:, : reasoned.length]))]
    x = torch.from_numpy(noise)
    with torch.inference_mode():
        for k in range(steps):
            time = torch.full((1, 1, 1), k / steps)
            x = x + torch_networks.action_step.velocity(x, time, cos, sin, *past) / steps
    action = networks.act(noise, positions, reasoned, visible=reasoned.length, steps=steps)
    np.testing.assert_allclose(action, x.numpy(), atol=1e-3)


def test_velocity_field(networks, arrays, reasoned):
    if not hasattr(networks, "action_step"):
        pytest.skip("an exported action head has its steps inside")
    torch = pytest.importorskip("torch")
    inputs, expected = arrays("inputs"), arrays("expected_action")
    tables = rotary_tables(expected["expert_position_ids"][:, 0], networks.config.text)
    cos, sin, x = map(torch.from_numpy, (*tables, inputs["x_probe"][0]))
    past = [list(part) for part in torch.from_numpy(networks.laid_out(reasoned.rows[:, : reasoned.length]))]
    for time in inputs["t_probe"]:
        velocity = networks.action_step.velocity(x, torch.full((1, 1, 1), float(time)), cos, sin, *past)
        np.testing.assert_allclose(velocity.detach(), expected[f"v_at_t{time:g}"][0], atol=WITHIN)
