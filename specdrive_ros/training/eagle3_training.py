"""What EAGLE-3 learns from: the training-time test (arXiv 2503.01840), its loss and its accuracy per step.

Step 0 reads the target's tapped states; each later step reads what the layer itself put out, as it will have to
when it runs ahead. Row t of step i stands for token t + i + 1: it sees the rows of step 0 up to t, and its own
earlier steps. Knows no optimiser and no file.

Letters: B sequences, S tokens, T rows that answer (from `first` on), E hidden size, H, G, D as in `layers.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from specdrive_ros.draft.eagle3_network import Eagle3
from specdrive_ros.draft.layers import Attention, Rotary
from specdrive_ros.training.frozen_target import FrozenTarget

STEPS, DECAY = 7, 0.8
HIDDEN = torch.finfo(torch.float32).min


@dataclass(frozen=True)
class Eagle3Loss:
    """steps, accuracies: [steps], not weighted; total: the sum of the steps' losses times decay^i."""

    total: Tensor
    steps: Tensor
    accuracies: Tensor


def shifted(values: Tensor, places: int = 1) -> Tensor:
    """[B, S, …] moved `places` to the left, zeros behind."""
    return F.pad(values[:, places:], (0, 0) * (values.ndim - 2) + (0, min(places, values.shape[1])))


class TrainingTimeTest:
    """The passes of all steps. embed: ids -> embeddings of the target; rotary: step -> tables [B, S, D] of the rows
    of a step, `step` places further than their own; visible: [B, S] real tokens, None for all."""

    def __init__(self, draft: Eagle3, embed: Callable[[Tensor], Tensor], rotary: Callable[[int], Rotary],
                 visible: Tensor | None = None, first: int = 0):
        self.draft, self.embed, self.rotary = draft, embed, rotary
        self.visible, self.first = visible, first

    def logits(self, token_ids: Tensor, taps: Tensor, steps: int = STEPS) -> list[Tensor]:
        """token_ids [B, S], taps [B, S, taps * E] -> per step [B, T, words]."""
        attention, layer = self.draft.midlayer.self_attn, self.draft.midlayer
        following = shifted(token_ids)
        joined = layer.joined(self.embed(following), self.draft.fc(taps))
        base = attention.rows(joined, self.rotary(0))
        hidden, joined = self.draft.fc(taps)[:, self.first :], joined[:, self.first :]
        mask, own, found = self._mask(token_ids), [], []
        for step in range(steps):
            rotary = tuple(table[:, self.first :] for table in self.rotary(step))
            if step:
                following = shifted(following)
                joined = layer.joined(self.embed(following)[:, self.first :], hidden)
                own.append(attention.rows(joined, rotary))
            hidden = layer.finish(hidden, self._attend(attention.queries(joined, rotary), base, own, mask))
            found.append(self.draft.logits(hidden))
        return found

    def _mask(self, token_ids: Tensor) -> Tensor:
        """[1 or B, T, S] additive: causal, real tokens."""
        size = token_ids.shape[1]
        seen = torch.ones(size, size, dtype=torch.bool, device=token_ids.device).tril()[None, self.first :]
        if self.visible is not None:
            seen = seen & self.visible[:, None].bool()
        return torch.zeros(seen.shape, device=seen.device).masked_fill(~seen, HIDDEN)

    def _attend(self, query: Tensor, base: Tensor, own: list[Tensor], mask: Tensor) -> Tensor:
        attention = self.draft.midlayer.self_attn
        return mix_ahead(attention, ahead_weights(attention, query, base, own, mask), base, own)


def ahead_weights(attention: Attention, query: Tensor, base: Tensor, own: list[Tensor], mask: Tensor) -> Tensor:
    """query [B, T, Hq, D]; base rows [B, S, 2, H, D]; own: rows [B, T, 2, H, D] of each later step, each of which only
    its own row of the query sees; additive mask [1 or B, T, S] -> [B, H, G, T, S + steps]."""
    scores = attention.scores(query, base) + mask[:, None, None]  # [B, H, G, T, S]
    grouped = query.unflatten(-2, (attention.heads, attention.groups))
    diagonal = [(grouped * rows[:, :, 0, :, None]).sum(-1).permute(0, 2, 3, 1)[..., None] for rows in own]
    return torch.softmax(torch.cat([scores, *diagonal], -1), -1)


def mix_ahead(attention: Attention, weights: Tensor, base: Tensor, own: list[Tensor]) -> Tensor:
    """What `ahead_weights` [B, H, G, T, S + steps] make of the values: [B, T, E]."""
    size = base.shape[1]
    mixed = weights[..., :size] @ base[:, :, 1].transpose(1, 2)[:, :, None]
    for index, rows in enumerate(own):
        mixed = mixed + weights[..., size + index, None] * rows[:, :, 1].permute(0, 2, 1, 3)[:, :, None]
    return attention.project(mixed)


def eagle3_loss(
    step_logits: list[Tensor], target_logits: Tensor, loss_mask: Tensor, t2d: Tensor,
    *, decay: float = DECAY, divisor: float | None = None,
) -> Eagle3Loss:  # fmt: skip
    """Soft cross-entropy to the target over the draft's words.

    step_logits:   per step [B, T, words]
    target_logits: [B, T, vocabulary] of step 0: row t foretells the token after the next
    loss_mask:     [B, T] rows of step 0 that count; it and the target move on a place a step
    divisor:       None is every row, counted or not, as published
    A row counts where the target's own choice is a word of the draft.
    """
    words = t2d.nonzero().flatten()
    losses, accuracies = [], []
    for logits in step_logits:
        known = t2d[target_logits.argmax(-1)] & loss_mask.bool()
        wanted = target_logits[..., words]
        each = -(torch.softmax(wanted, -1) * torch.log_softmax(logits, -1)).sum(-1)
        losses.append((each * known).sum() / (known.numel() if divisor is None else divisor))
        right = (logits.argmax(-1) == wanted.argmax(-1)) & known
        accuracies.append(right.sum() / (loss_mask.sum() + 1e-6))
        target_logits, loss_mask = shifted(target_logits), shifted(loss_mask)
    steps = torch.stack(losses)
    weights = decay ** torch.arange(len(losses), device=steps.device)
    return Eagle3Loss((steps * weights).sum(), steps.detach(), torch.stack(accuracies))


class Eagle3Stage(nn.Module):
    """A draft and what of the target it is trained against, under one forward."""

    def __init__(self, draft: Eagle3, target: FrozenTarget, steps: int = STEPS):
        super().__init__()
        self.draft, self.steps = draft, steps
        self.target = target
        self.rope = draft.config.make_rope()

    def forward(self, batch: dict[str, Tensor], rng: np.random.Generator | None = None) -> dict[str, Tensor]:
        """batch: of `DraftFeatures`. Losses and accuracies are means over rows that foretell an answer's token."""
        counts = shifted(batch["loss_mask"], 2)
        first = int(counts.any(0).nonzero()[0])
        rotary = partial(self._rotary, batch["positions"])
        passes = TrainingTimeTest(self.draft, self.target.embed, rotary, batch["visible"], first)
        logits = passes.logits(batch["token_ids"], batch["taps"], self.steps)
        with torch.no_grad():
            wanted = self.target.logits(shifted(batch["final"])[:, first:])
        counts = counts[:, first:]
        loss = eagle3_loss(logits, wanted, counts, self.draft.t2d, divisor=float(counts.sum()))
        length = 1 + torch.cumprod(loss.accuracies, 0).sum()
        return {"loss": loss.total, "first_word": loss.accuracies[0], "accepted_length": length}

    def _rotary(self, positions: Tensor, step: int) -> Rotary:
        """Tables [B, S, D] of rows `step` places further than where the target sees them, [3, B, S]."""
        rows = [self.rope.rows(0, positions[:, row].cpu().numpy()) for row in range(positions.shape[1])]
        tables = self.rope.tables(np.stack(rows, axis=1) + step)
        return tuple(torch.from_numpy(table).to(positions.device) for table in tables)
