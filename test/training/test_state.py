"""A run that is killed and resumed ends where an unbroken one does."""

import pytest
import torch
from torch import nn

from specdrive_ros.errors import InputError
from specdrive_ros.training.state import cosine_rate, load_state, save_state


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))


def train(model, optimizer, first, last):
    for step in range(first, last):
        torch.manual_seed(step)
        loss = model(torch.randn(8, 3)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def test_resumed_run_equals_unbroken_run(tmp_path):
    unbroken = network()
    train(unbroken, torch.optim.AdamW(unbroken.parameters(), lr=0.05), 0, 10)

    first = network()
    optimizer = torch.optim.AdamW(first.parameters(), lr=0.05)
    train(first, optimizer, 0, 4)
    save_state(tmp_path / "state.safetensors", first, optimizer, 4, {"loss": 1.0})

    resumed = network()
    optimizer = torch.optim.AdamW(resumed.parameters(), lr=0.05)
    step, record = load_state(tmp_path / "state.safetensors", resumed, optimizer)
    assert (step, record) == (4, {"loss": 1.0})
    train(resumed, optimizer, 4, 10)
    for a, b in zip(unbroken.parameters(), resumed.parameters()):
        assert torch.equal(a, b)


def test_no_state_starts_at_zero(tmp_path):
    model = network()
    assert load_state(tmp_path / "none.safetensors", model, torch.optim.AdamW(model.parameters())) == (0, {})


def test_truncated_state_is_one_clear_line(tmp_path):
    model = network()
    path = tmp_path / "state.safetensors"
    save_state(path, model, torch.optim.AdamW(model.parameters()), 1, {})
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(InputError, match="delete it to start anew") as caught:
        load_state(path, model, torch.optim.AdamW(model.parameters()))
    assert "\n" not in str(caught.value)


def test_state_of_another_model_is_refused(tmp_path):
    model = network()
    save_state(tmp_path / "state.safetensors", model, torch.optim.AdamW(model.parameters()), 1, {})
    other = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1))
    with pytest.raises(InputError, match="does not fit this model"):
        load_state(tmp_path / "state.safetensors", other, torch.optim.AdamW(other.parameters()))


def test_learning_rate_warms_up_and_falls():
    assert cosine_rate(0, 1000, 1.0) == pytest.approx(0.01)
    assert cosine_rate(100, 1000, 1.0) == pytest.approx(1.0)
    assert cosine_rate(1000, 1000, 1.0) == pytest.approx(0.02)
    rates = [cosine_rate(step, 1000, 1.0) for step in range(100, 1001)]
    assert all(a >= b for a, b in zip(rates, rates[1:]))
