"""The heads that vision is trained through."""

import numpy as np
import torch

from specdrive_ros.sim.labels import SCENE_LABELS
from specdrive_ros.training.target_training import explained
from specdrive_ros.training.scene_numbers import NUMBERS
from specdrive_ros.training.vision_pretraining import SceneHeads


def heads_and_outputs(batch=6):
    torch.manual_seed(0)
    heads = SceneHeads(SCENE_LABELS, width=8, levels=2)
    return heads, heads([torch.randn(batch, 3, 8) for _ in range(2)])


def test_unknown_labels_and_numbers_cost_nothing():
    heads, outputs = heads_and_outputs()
    labels = torch.full((6, len(SCENE_LABELS)), -1)
    assert heads.loss(outputs, labels, torch.full((6, len(NUMBERS)), torch.nan)) == 0


def test_only_the_numbers_that_are_known_pull():
    heads, outputs = heads_and_outputs()
    labels = torch.full((6, len(SCENE_LABELS)), -1)
    numbers = torch.full((6, len(NUMBERS)), torch.nan)
    numbers[2, 3] = 5.0
    heads.loss(outputs, labels, numbers).backward()
    first_number = sum(SCENE_LABELS.values())
    pulled = heads.classify[0].weight.grad.abs().sum(1)
    assert pulled.nonzero().flatten().tolist() == [first_number + 3]
    assert pulled.isfinite().all()


def test_a_wrong_lamp_costs_more_than_another_wrong_label():
    heads, outputs = heads_and_outputs()
    numbers = torch.full((6, len(NUMBERS)), torch.nan)
    costs = {}
    for name in ("signal", "road_kind"):
        labels = torch.full((6, len(SCENE_LABELS)), -1)
        labels[:, list(SCENE_LABELS).index(name)] = 1
        even = [torch.zeros_like(level) for level in outputs]
        costs[name] = float(heads.loss(even, labels, numbers)) / np.log(SCENE_LABELS[name])
    assert costs["signal"] > 2 * costs["road_kind"]


def test_explained_variance_is_one_for_the_truth_and_zero_for_the_mean():
    rng = np.random.default_rng(0)
    true = rng.normal(size=(50, len(NUMBERS))).astype(np.float32)
    true[:10, 1] = np.nan
    perfect, blind = explained(true.copy(), true), explained(np.broadcast_to(np.nanmean(true, 0), true.shape), true)
    assert list(perfect) == [f"{name}_r2" for name in NUMBERS]
    assert np.allclose(list(perfect.values()), 1.0) and np.allclose(list(blind.values()), 0.0, atol=1e-6)
