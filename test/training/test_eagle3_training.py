"""What moves a place a step and which rows count; passes, losses and gradients are held by test/golden."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch.nn import functional as F

from specdrive_ros.draft.checkpoint import load_draft_network
from specdrive_ros.target.config import TextConfig
from specdrive_ros.training.eagle3_training import Eagle3Stage, TrainingTimeTest, eagle3_loss, right_ahead, shifted
from specdrive_ros.training.frozen_target import FrozenTarget

GOLDEN = Path(__file__).parents[1] / "golden" / "drafts_A"
SIZES = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
         "head_dim", "vocab_size", "rope_theta", "rms_norm_eps")  # fmt: skip


@pytest.fixture(scope="module")
def draft():
    released = json.loads((GOLDEN / "target" / "config.json").read_text())
    text = TextConfig(**{name: released[name] for name in SIZES}, mrope_section=(4, 2, 2))
    return load_draft_network(GOLDEN / "eagle3/draft_fit", text).requires_grad_(False)


@pytest.fixture(scope="module")
def target():
    weights = load_file(GOLDEN / "target/model.safetensors")
    return FrozenTarget(weights["model.embed_tokens.weight"], weights["model.norm.weight"], weights["lm_head.weight"],
                        1e-6)


def test_shifted():
    assert shifted(torch.tensor([[1, 2, 3]])).tolist() == [[2, 3, 0]]
    assert shifted(torch.ones(1, 3, 2), 2).sum(-1).tolist() == [[2, 0, 0]]
    assert shifted(torch.ones(1, 1), 2).tolist() == [[0]]


def test_a_later_step_does_not_see_what_it_is_to_say(draft, target):
    """Changing a token changes no logit of a row that stands before it, in any step."""
    random = torch.Generator().manual_seed(0)
    ids = torch.randint(3, 190, (1, 12), generator=random)
    taps = torch.randn(1, 12, 192, generator=random)
    passes = TrainingTimeTest(draft, target.embed, lambda step: tables(draft, step))
    one = passes.logits(ids, taps, 4)
    changed = ids.clone()
    changed[0, 9] = 3
    other = passes.logits(changed, taps, 4)
    for step in range(4):  # row t of step i has read tokens up to t + i + 1
        differs = (one[step] - other[step]).abs().amax((0, 2)) > 1e-6
        assert int(differs.nonzero()[0]) == 9 - step - 1


def tables(draft, step):
    rope = draft.config.make_rope()
    return tuple(torch.from_numpy(table)[None] for table in rope.tables(rope.beyond(step, 12, 0)))


def test_rows_count_where_the_target_says_a_word_of_the_draft():
    t2d = torch.tensor([True, False, True])
    wanted = torch.tensor([[[9.0, 0, 0], [0, 9.0, 0], [0, 0, 9.0]]])
    logits = [torch.tensor([[[9.0, 0], [9.0, 0], [9.0, 0]]])]
    loss = eagle3_loss(logits, wanted, torch.ones(1, 3), t2d, divisor=1.0)
    only_third = eagle3_loss(logits, wanted, torch.tensor([[0.0, 0, 1]]), t2d, divisor=1.0)
    assert loss.total > only_third.total > 8  # the second row's own choice is no word of the draft
    assert loss.accuracies[0] == pytest.approx(1 / 3, abs=1e-5)


def test_the_stage_counts_rows_that_foretell_the_answer(draft, target):
    """Prompt rows, padding and the end of the text leave the loss as it is."""
    random = torch.Generator().manual_seed(1)
    batch = {
        "token_ids": torch.randint(3, 190, (2, 14), generator=random),
        "taps": torch.randn(2, 14, 192, generator=random),
        "final": torch.randn(2, 14, 64, generator=random),
        "loss_mask": torch.tensor([[0] * 6 + [1] * 8, [0] * 6 + [1] * 5 + [0] * 3]),
        "visible": torch.tensor([[True] * 14, [True] * 11 + [False] * 3]),
        "positions": torch.arange(14).expand(3, 2, 14),
    }
    stage = Eagle3Stage(draft, target, steps=3)
    loss = stage(batch)["loss"]
    padded = {name: value.clone() for name, value in batch.items()}
    padded["token_ids"][1, 11:], padded["taps"][1, 11:], padded["final"][1, 11:] = 5, 1.0, 1.0
    padded["final"][:, :5] = -1.0  # what follows prompt tokens is not asked for
    assert torch.allclose(stage(padded)["loss"], loss, atol=1e-6)
    padded["final"][0, 9] = -1.0
    assert not torch.allclose(stage(padded)["loss"], loss, atol=1e-4)
    assert np.isfinite(float(loss))


def test_rows_that_no_longer_answer_are_left_out(draft, target):
    """Three rows from the sixth on: each step has one less, and what is left is what all of them would have said."""
    random = torch.Generator().manual_seed(2)
    ids, taps = torch.randint(3, 190, (1, 12), generator=random), torch.randn(1, 12, 192, generator=random)
    every = TrainingTimeTest(draft, target.embed, lambda step: tables(draft, step)).logits(ids, taps, 4)
    few = TrainingTimeTest(draft, target.embed, lambda step: tables(draft, step), None, 5, 3).logits(ids, taps, 4)
    assert [logits.shape[1] for logits in few] == [3, 2, 1]
    for step, logits in enumerate(few):
        assert torch.allclose(logits, every[step][:, 5 : 8 - step], atol=1e-5)


def test_the_first_word_is_not_learnt_since_the_prefill_writes_it(draft, target):
    """An answer from place 6 on: the row that foretells its second token is that of place 5, the first asked one."""
    batch = {"loss_mask": torch.tensor([[0] * 6 + [1] * 4, [0] * 6 + [1] * 3 + [0]])}
    first, counts = Eagle3Stage(draft, target)._asked(batch)
    assert first == 5 and counts.tolist() == [[1, 1, 1], [1, 1, 0]]


def test_words_right_ahead_are_those_before_the_first_wrong_one():
    """Words 4 … 7 of the target; the answer 5 6 7 behind a prompt of two tokens; rows from the second on."""
    words, ids = torch.tensor([4, 5, 6, 7]), torch.tensor([[9, 9, 5, 6, 7]])
    said = [torch.tensor([[6, 7]]), torch.tensor([[7]])]  # by the rows that know 9 9 5 and 9 9 5 6
    logits = [F.one_hot(each - 4, 4).float() for each in said]
    written = torch.tensor([[0, 0, 1, 1, 1]])
    assert right_ahead(logits, ids, written, words, 1).tolist() == [[2, 1]]
    logits[0][0, 0] = torch.tensor([1.0, 0, 0, 0])
    assert right_ahead(logits, ids, written, words, 1).tolist() == [[0, 1]]
