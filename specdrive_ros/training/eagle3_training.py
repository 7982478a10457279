"""What EAGLE-3 learns from: the training-time test (arXiv 2503.01840), its loss and its accuracy per step.

Step 0 reads the target's tapped states; each later step reads the layer's own output, as it must when the draft runs
ahead. Row t of step i predicts from token t + i + 1: it sees the rows of step 0 up to t, and its own earlier steps.
Knows no optimiser and no file.

Letters: B sequences, S tokens, T rows that predict (from `first` on), E hidden size, H, G, D as in `layers.py`.
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
    """steps, accuracies: [steps], unweighted; total: the sum of the steps' losses times decay^i."""

    total: Tensor
    steps: Tensor
    accuracies: Tensor


def shifted(values: Tensor, places: int = 1) -> Tensor:
    """[B, S, …] shifted `places` to the left, zeros at the end."""
    return F.pad(values[:, places:], (0, 0) * (values.ndim - 2) + (0, min(places, values.shape[1])))


class TrainingTimeTest:
    """The passes of all steps.

    embed:   token ids -> the target's embeddings
    rotary:  step -> tables [B, S, D] for the rows of a step, `step` positions after their own
    visible: [B, S] real tokens; None for all
    rows:    number of rows that predict in step 0, one fewer each later step, since its tokens lie one further on;
             None: all in every step
    """

    def __init__(self, draft: Eagle3, embed: Callable[[Tensor], Tensor], rotary: Callable[[int], Rotary],
                 visible: Tensor | None = None, first: int = 0, rows: int | None = None):
        self.draft, self.embed, self.rotary = draft, embed, rotary
        self.visible, self.first, self.rows = visible, first, rows

    def logits(self, token_ids: Tensor, taps: Tensor, steps: int = STEPS) -> list[Tensor]:
        """token_ids [B, S], taps [B, S, taps * E] -> logits per step [B, T, W]; steps without predicting rows are left
        out."""
        attention, layer = self.draft.midlayer.self_attn, self.draft.midlayer
        following, fused = shifted(token_ids), self.draft.fc(taps)
        joined = layer.joined(self.embed(following), fused)
        base = attention.rows(joined, self.rotary(0))
        mask, own, found = self._mask(token_ids), [], []
        hidden, joined = fused[:, self.first :], joined[:, self.first :]
        for step in range(steps if self.rows is None else min(steps, self.rows)):
            size = mask.shape[1] if self.rows is None else self.rows - step
            span = slice(self.first, self.first + size)
            hidden, joined, own = hidden[:, :size], joined[:, :size], [rows[:, :size] for rows in own]
            rotary = tuple(table[:, span] for table in self.rotary(step))
            if step:
                following = shifted(following)
                joined = layer.joined(self.embed(following[:, span]), hidden)
                own.append(attention.rows(joined, rotary))
            query = attention.queries(joined, rotary)
            weights = ahead_weights(attention, query, base, own, mask[:, :size])
            hidden = layer.finish(hidden, mix_ahead(attention, weights, base, own))
            found.append(self.draft.logits(hidden))
        return found

    def _mask(self, token_ids: Tensor) -> Tensor:
        """[1 or B, T, S] additive mask: causal, real tokens only."""
        size = token_ids.shape[1]
        seen = torch.ones(size, size, dtype=torch.bool, device=token_ids.device).tril()[None, self.first :]
        if self.visible is not None:
            seen = seen & self.visible[:, None].bool()
        return torch.zeros(seen.shape, device=seen.device).masked_fill(~seen, HIDDEN)


def ahead_weights(attention: Attention, query: Tensor, base: Tensor, own: list[Tensor], mask: Tensor) -> Tensor:
    """Attention weights [B, H, G, T, S + steps] of query [B, T, Hq, D] over base rows [B, S, 2, H, D], with additive
    mask [1 or B, T, S], and over own rows [B, T, 2, H, D] of each later step, each visible only to its own row of the
    query."""
    scores = attention.scores(query, base) + mask[:, None, None]  # [B, H, G, T, S]
    grouped = query.unflatten(-2, (attention.heads, attention.groups))
    diagonal = [(grouped * rows[:, :, 0, :, None]).sum(-1).permute(0, 2, 3, 1)[..., None] for rows in own]
    return torch.softmax(torch.cat([scores, *diagonal], -1), -1)


def mix_ahead(attention: Attention, weights: Tensor, base: Tensor, own: list[Tensor]) -> Tensor:
    """The values mixed by the weights of `ahead_weights` [B, H, G, T, S + steps]: [B, T, E]."""
    size = base.shape[1]
    mixed = weights[..., :size] @ base[:, :, 1].transpose(1, 2)[:, :, None]
    for index, rows in enumerate(own):
        mixed = mixed + weights[..., size + index, None] * rows[:, :, 1].permute(0, 2, 1, 3)[:, :, None]
    return attention.project(mixed)


def eagle3_loss(
    step_logits: list[Tensor], target_logits: Tensor, loss_mask: Tensor, t2d: Tensor,
    *, decay: float = DECAY, divisor: float | None = None,
) -> Eagle3Loss:  # fmt: skip
    """Soft cross-entropy with the target over the draft's vocabulary.

    step_logits:   per step [B, T, W]; a later step may have fewer rows, the last ones being left out
    target_logits: [B, T, vocabulary] of step 0: row t predicts the token after the next
    loss_mask:     [B, T] rows of step 0 that count; mask and target logits shift by one position per step
    divisor:       None: the number of all rows, counted or not, as published
    A row counts only if the target's own choice is in the draft's vocabulary.
    """
    wanted = target_logits[..., t2d.nonzero().flatten()]
    asked, known = loss_mask.bool(), t2d[target_logits.argmax(-1)] & loss_mask.bool()
    likely, first = torch.softmax(wanted, -1), wanted.argmax(-1)
    losses, accuracies = [], []
    for step, logits in enumerate(step_logits):
        rows = slice(step, step + logits.shape[1])  # the same positions, seen from `step` rows before
        size = known[:, rows].shape[1]
        each = -(likely[:, rows] * torch.log_softmax(logits[:, :size], -1)).sum(-1)
        losses.append((each * known[:, rows]).sum() / (known.numel() if divisor is None else divisor))
        right = (logits[:, :size].argmax(-1) == first[:, rows]) & known[:, rows]
        accuracies.append(right.sum() / (asked[:, rows].sum() + 1e-6))
    steps = torch.stack(losses)
    weights = decay ** torch.arange(len(losses), device=steps.device)
    return Eagle3Loss((steps * weights).sum(), steps.detach(), torch.stack(accuracies))


def right_ahead(step_logits: list[Tensor], token_ids: Tensor, written: Tensor, words: Tensor, first: int) -> Tensor:
    """[B, T] number of leading steps whose first choice is the true token: what a pass would accept after the newest
    token of each row. token_ids [B, S]; written [B, S]: 1 in the answer; words: target ids of the draft's vocabulary;
    first: row of the first logits."""
    right = []
    for step, logits in enumerate(step_logits):
        said, place = words[logits.argmax(-1)], first + step + 2
        true, real = (shifted(values, place)[:, : said.shape[1]] for values in (token_ids, written))
        right.append(F.pad((said == true) & real.bool(), (0, step_logits[0].shape[1] - said.shape[1])))
    return torch.cumprod(torch.stack(right, -1).long(), -1).sum(-1)


class Eagle3Stage(nn.Module):
    """A draft and the parts of the target it is trained against, in one forward pass."""

    def __init__(self, draft: Eagle3, target: FrozenTarget, steps: int = STEPS):
        super().__init__()
        self.draft, self.steps = draft, steps
        self.target = target
        self.rope = draft.config.make_rope()

    def forward(self, batch: dict[str, Tensor], rng: np.random.Generator | None = None) -> dict[str, Tensor]:
        """batch: of `DraftFeatures`. Returns means over the positions of an answer after which a draft is asked."""
        first, counts = self._asked(batch)
        logits = self._logits(batch, first, counts.shape[1], self.steps)
        with torch.no_grad():
            wanted, words = self.target.allowed_logits(shifted(batch["final"])[:, first : first + counts.shape[1]])
        loss = eagle3_loss(logits, wanted, counts, self.draft.t2d[words], divisor=float(counts.sum()))
        runs = right_ahead(logits, batch["token_ids"], batch["loss_mask"], self.draft.token_ids, first)
        ahead = runs[counts.bool()].float().mean()
        return {"loss": loss.total, "first_word": loss.accuracies[0], "words_ahead": ahead}

    def runs(self, batch: dict[str, Tensor], ahead: int) -> Tensor:
        """[B, A] number of right tokens after each token of the answers, `ahead` at most; none after the last one."""
        first, counts = self._asked(batch)
        logits = self._logits(batch, first, counts.shape[1], ahead)
        found = right_ahead(logits, batch["token_ids"], batch["loss_mask"], self.draft.token_ids, first) * counts
        places = counts.int().argmax(1, keepdim=True) + torch.arange(counts.shape[1], device=counts.device)
        return F.pad(found, (0, counts.shape[1] + 1)).gather(1, F.pad(places, (0, 1), value=counts.shape[1]))

    def _asked(self, batch: dict[str, Tensor]) -> tuple[int, Tensor]:
        """The first row whose newest and next tokens are both the target's own, and which rows from there are such,
        [B, T]: the first token comes with the prefill, so no draft is asked for it."""
        counts = shifted(batch["loss_mask"], 1) * shifted(batch["loss_mask"], 2)
        columns = counts.any(0).nonzero().flatten()
        return int(columns[0]), counts[:, int(columns[0]) : int(columns[-1]) + 1]

    def _logits(self, batch: dict[str, Tensor], first: int, rows: int, steps: int) -> list[Tensor]:
        rotary = partial(self._rotary, batch["positions"])
        passes = TrainingTimeTest(self.draft, self.target.embed, rotary, batch["visible"], first, rows)
        return passes.logits(batch["token_ids"], batch["taps"], steps)

    def _rotary(self, positions: Tensor, step: int) -> Rotary:
        """Tables [B, S, D] of rows `step` positions after the target's, [3, B, S]."""
        rows = [self.rope.rows(0, positions[:, row].cpu().numpy()) for row in range(positions.shape[1])]
        tables = self.rope.tables(np.stack(rows, axis=1) + step)
        return tuple(torch.from_numpy(table).to(positions.device) for table in tables)
