"""The optimiser: what an orthogonal step is, who gets one, and that a resumed run goes on as an unbroken one."""

import copy

import pytest
import torch
from torch import nn

from specdrive_ros.training.muon import LARGEST, optimizer_of, orthogonal
from specdrive_ros.training.state import load_state, save_state


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.wide, self.out = nn.Embedding(7, 12), nn.Linear(12, 40), nn.Linear(40, 3)
        self.huge = nn.Linear(LARGEST // 12 + 1, 12, bias=False)

    def forward(self, ids):
        return self.out(torch.tanh(self.wide(self.embed(ids)))).square().mean()


def small():
    torch.manual_seed(0)
    return Small()


def train(model, optimizer, steps, first=0):
    for step in range(first, first + steps):
        for group in optimizer.param_groups:
            group["lr"] = 0.01
        optimizer.zero_grad(set_to_none=True)
        model(torch.randint(7, (5,), generator=torch.Generator().manual_seed(step))).backward()
        optimizer.step()


@pytest.mark.parametrize("shape", [(30, 80), (80, 30), (40, 90)])
def test_every_direction_gets_about_the_same_length(shape):
    torch.manual_seed(0)
    matrix = torch.randn(shape) * torch.logspace(0, -2, shape[1])  # some directions a hundred times weaker
    left, _, right = torch.linalg.svd(matrix, full_matrices=False)
    lengths = torch.linalg.svdvals(orthogonal(matrix))
    assert 0.5 < lengths.min() and lengths.max() < 1.25
    assert torch.nn.functional.cosine_similarity(orthogonal(matrix).flatten(), (left @ right).flatten(), dim=0) > 0.95


def test_a_gradient_of_zero_is_no_step():
    assert orthogonal(torch.zeros(4, 6)).abs().max() == 0


def test_muon_takes_the_matrices_that_are_neither_named_nor_huge():
    model = small()
    muon, matrices, vectors = (group["params"] for group in optimizer_of(model, 0.1, adamw=("embed",)).param_groups)
    assert [p is q for p, q in zip(muon, [model.wide.weight, model.out.weight], strict=True)] == [True, True]
    assert {id(p) for p in matrices} == {id(model.embed.weight), id(model.huge.weight)}
    assert {id(p) for p in vectors} == {id(model.wide.bias), id(model.out.bias)}


def test_all_else_is_plain_adamw():
    ours, plain = small(), small()
    optimizer = optimizer_of(ours, 0.1, adamw=("embed", "wide", "out"))
    reference = torch.optim.AdamW([
        {"params": [p for p in plain.parameters() if p.dim() > 1], "weight_decay": 0.1},
        {"params": [p for p in plain.parameters() if p.dim() == 1], "weight_decay": 0.0}], betas=(0.9, 0.98))
    train(ours, optimizer, 5)
    train(plain, reference, 5)
    for a, b in zip(ours.parameters(), plain.parameters()):
        assert torch.equal(a, b)


def test_the_first_step_has_the_length_of_its_formula():
    model = small()
    before = model.wide.weight.detach().clone()
    optimizer = optimizer_of(model, 0.0, adamw=("embed",))
    train(model, optimizer, 1)
    step = torch.linalg.svdvals(model.wide.weight.detach() - before) / (0.01 * 0.2 * 40**0.5)
    assert step.max() < 1.25 and step[0] > 0.5  # ranks that no sample touched stay


def test_a_resumed_run_goes_on_as_an_unbroken_one(tmp_path):
    whole, broken = small(), small()
    first = optimizer_of(whole, 0.1, adamw=("embed",))
    train(whole, first, 6)
    second = optimizer_of(broken, 0.1, adamw=("embed",))
    train(broken, second, 3)
    save_state(tmp_path / "state.safetensors", broken, second, 3, {})
    resumed = copy.deepcopy(small())
    third = optimizer_of(resumed, 0.1, adamw=("embed",))
    assert load_state(tmp_path / "state.safetensors", resumed, third) == (3, {})
    train(resumed, third, 3, first=3)
    for a, b in zip(whole.parameters(), resumed.parameters()):
        assert torch.equal(a, b)
