"""A draft as a policy: it samples tokens ahead of given positions in a text and says how probable they are.

A state is a position in the target's own answer: the newest token and the target's states before it are the target's
own; the next n tokens are the draft's. EAGLE-3 writes them one after another on its own hidden states; DFlash fills
its slots at once, so its tokens are independent of each other. Knows no reward and no optimiser.

Letters: B samples, S tokens, A states per sample, R rollouts per state, n tokens ahead, W draft vocabulary.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from specdrive_ros.draft.dflash_network import DFlash
from specdrive_ros.draft.eagle3_network import Eagle3
from specdrive_ros.draft.layers import Rotary
from specdrive_ros.training.dflash_training import HIDDEN, block_rotary, make_blocks, own_block_states
from specdrive_ros.training.eagle3_training import ahead_weights, mix_ahead, shifted
from specdrive_ros.training.frozen_target import FrozenTarget

Pick = Callable[[Tensor, int], Tensor]  # log-probabilities [B, A, R, W] of step i -> vocabulary indices [B, A, R]


@dataclass(frozen=True)
class States:
    """anchors [B, A]: index of the newest token; keep [B, A]: False for padding; tokens [B, A, n]: the target's next
    tokens; real [B, A, n]: whether such a token exists."""

    anchors: Tensor
    keep: Tensor
    tokens: Tensor
    real: Tensor

    @classmethod
    def at(cls, token_ids: Tensor, loss_mask: Tensor, anchors: Tensor, keep: Tensor, ahead: int) -> "States":
        """token_ids, loss_mask [B, S] of `DraftFeatures`; anchors, keep [B, A]."""
        places = anchors[..., None] + 1 + torch.arange(ahead)
        where = places.clamp(max=token_ids.shape[1] - 1).flatten(1)
        written = loss_mask.bool().gather(1, where).view_as(places)
        real = written & (places < token_ids.shape[1]) & keep[..., None]
        return cls(anchors, keep, token_ids.gather(1, where).view_as(places), real)


class DraftPolicy(nn.Module):
    """The common base of both kinds of draft. word_ids: [W] target ids of the draft's vocabulary."""

    def __init__(self, draft: DFlash | Eagle3, target: FrozenTarget, word_ids: Tensor):
        super().__init__()
        self.draft, self.target = draft, [target]  # in a list, so that it is not trained
        self.rope, self.word_ids = draft.config.make_rope(), word_ids
        self.word_places = torch.full((draft.config.vocab_size,), -1)
        self.word_places[word_ids] = torch.arange(len(word_ids))

    def places(self, states: States) -> Tensor:
        """[B, A, n] indices of the target's tokens in the draft's vocabulary; -1 if there is none."""
        return torch.where(states.real, self.word_places[states.tokens], -1)

    def forward(self, batch: dict[str, Tensor], states: States, tokens: Tensor) -> Tensor:
        """Log-probabilities [B, A, R, n, W] along the tokens [B, A, R, n] written ahead."""
        raise NotImplementedError

    def sample(self, batch: dict[str, Tensor], states: States, rollouts: int, generator: torch.Generator) -> Tensor:
        """[B, A, R, n] token ids sampled from the policy."""
        raise NotImplementedError

    def first_choices(self, batch: dict[str, Tensor], states: States) -> Tensor:
        """[B, A, n] bool: whether the draft's first choice after the target's own tokens is the target's next one."""
        log_probs = self(batch, states, states.tokens[:, :, None])
        return log_probs[:, :, 0].argmax(-1) == self.places(states)


class DFlashPolicy(DraftPolicy):
    """words: ids that the target may write."""

    def __init__(self, draft: DFlash, target: FrozenTarget, words: np.ndarray):
        super().__init__(draft, target, torch.from_numpy(np.asarray(words)))

    def slots(self, batch: dict[str, Tensor], states: States) -> Tensor:
        """Log-probabilities [B, A, n, W]; if n is less than the block's slots, the last ones are left out."""
        config, count = self.draft.config, states.tokens.shape[-1]
        blocks = make_blocks(
            batch["token_ids"],
            batch["loss_mask"],
            states.anchors,
            states.keep,
            config.block_size,
            config.mask_token_id,
            None,
        )
        hidden = own_block_states(
            self.draft,
            self.target[0].embed(blocks.token_ids.flatten(1)),
            batch["taps"],
            *block_rotary(self.rope, batch["positions"], blocks.positions),
            states.anchors,
        ).unflatten(1, (-1, config.block_size))
        logits = hidden[:, :, 1 : 1 + count] @ self.target[0].head[self.word_ids].T
        return torch.log_softmax(logits, -1)

    def forward(self, batch, states, tokens):
        slots = self.slots(batch, states)
        return slots[:, :, None].expand(-1, -1, tokens.shape[2], -1, -1)

    def sample(self, batch, states, rollouts, generator):
        slots = self.slots(batch, states).exp()
        drawn = torch.multinomial(slots.flatten(0, 2), rollouts, replacement=True, generator=generator)
        return self.word_ids[drawn.view(*slots.shape[:3], rollouts).movedim(-1, 2)]


class Eagle3Policy(DraftPolicy):
    def __init__(self, draft: Eagle3, target: FrozenTarget):
        super().__init__(draft, target, draft.token_ids)

    def forward(self, batch, states, tokens):
        return torch.stack(
            self.run(
                batch,
                states,
                tokens.shape[2],
                tokens.shape[3],
                lambda _, step: self.word_places[tokens[..., step]],
                tokens,
            )[0],
            3,
        )

    def sample(self, batch, states, rollouts, generator):
        def draw(log_probs: Tensor, step: int) -> Tensor:
            return torch.multinomial(log_probs.exp().flatten(0, 2), 1, generator=generator).view(log_probs.shape[:3])

        return self.run(batch, states, rollouts, states.tokens.shape[-1], draw)[1]

    def run(
        self,
        batch: dict[str, Tensor],
        states: States,
        rollouts: int,
        ahead: int,
        pick: Pick,
        forced: Tensor | None = None,
    ) -> tuple[list[Tensor], Tensor]:
        """Log-probabilities of each step [B, A, R, W], and the token ids written [B, A, R, n]: those picked, or
        `forced`.
        """
        chain = Eagle3Chain(self, batch, states, rollouts)
        found, written = [], []
        for step in range(ahead):
            found.append(
                torch.log_softmax(self.draft.logits(chain.hidden), -1).unflatten(
                    1, states.anchors.shape[1:] + (rollouts,)
                )
            )
            written.append(self.word_ids[pick(found[-1], step)] if forced is None else forced[..., step])
            if step + 1 < ahead:
                chain.advance(written[-1].flatten(1))
        return found, torch.stack(written, 3)


class Eagle3Chain:
    """The draft running ahead from every state at once. hidden: [B, T, E] of the newest step, T = A * R; weights:
    attention weights of each step [B, H, G, T, S + step]."""

    def __init__(self, policy: Eagle3Policy, batch: dict[str, Tensor], states: States, rollouts: int):
        self.policy, self.layer = policy, policy.draft.midlayer
        self.rollouts, self.step, self.own, self.weights = rollouts, 0, [], []
        fused = policy.draft.fc(batch["taps"])
        joined = self.layer.joined(policy.target[0].embed(shifted(batch["token_ids"])), fused)
        self.rows = (
            (states.anchors - 1).clamp(min=0).repeat_interleave(rollouts, 1)
        )  # row of the token before the newest, [B, T]
        self.positions = batch["positions"]
        self.base = self.layer.self_attn.rows(joined, self._tables_of_all())
        self.mask = self._mask(joined.shape[1])
        self.hidden = self._attended(_rows(fused, self.rows), _rows(joined, self.rows))

    def advance(self, tokens: Tensor) -> None:
        """Advances one step, given the tokens [B, T] just written."""
        self.step += 1
        joined = self.layer.joined(self.policy.target[0].embed(tokens), self.hidden)
        self.own.append(self.layer.self_attn.rows(joined, self._tables()))
        self.hidden = self._attended(self.hidden, joined)

    def _attended(self, hidden: Tensor, joined: Tensor) -> Tensor:
        attention = self.layer.self_attn
        weights = ahead_weights(attention, attention.queries(joined, self._tables()), self.base, self.own, self.mask)
        self.weights.append(weights.detach())
        return self.layer.finish(hidden, mix_ahead(attention, weights, self.base, self.own))

    def _mask(self, size: int) -> Tensor:
        """[B, T, S] additive mask: rows up to that of the token before the newest are visible."""
        seen = torch.arange(size) <= self.rows[..., None]
        return torch.zeros(seen.shape).masked_fill(~seen, HIDDEN)

    def _tables_of_all(self) -> Rotary:
        rope = self.policy.rope
        rows = [rope.rows(0, self.positions[:, row].numpy()) for row in range(self.positions.shape[1])]
        self._all = np.stack(rows, axis=1)
        return _tables(rope, self._all)

    def _tables(self) -> Rotary:
        """Rotary tables of the rows that run ahead, `step` positions after their own."""
        chosen = np.take_along_axis(self._all, self.rows[None].numpy().repeat(3, 0), axis=2)
        return _tables(self.policy.rope, chosen + self.step)


def make_policy(draft: DFlash | Eagle3, target: FrozenTarget) -> DraftPolicy:
    if isinstance(draft, Eagle3):
        return Eagle3Policy(draft, target)
    return DFlashPolicy(draft, target, torch.nonzero(~target.forbidden).flatten().numpy())


def run_lengths(right: Tensor) -> Tensor:
    """[..., n] bool -> [...] number of leading True values: tokens of a proposal that are accepted."""
    return torch.cumprod(right.long(), -1).sum(-1)


def passes_of(runs: np.ndarray) -> int:
    """Target passes that decoding a text takes. runs [N]: draft tokens accepted after each of its tokens, were it the
    newest.

    The first token comes with the prefill; a pass accepts a run and adds the target's own token; a closing token that
    the target wrote itself takes one more pass, for its row in the cache.
    """
    newest, passes, end = 0, 0, len(runs) - 1
    while True:
        passes += 1
        accepted_to_the_end = newest + int(runs[newest]) >= end
        if newest == end or accepted_to_the_end:
            return passes
        newest += int(runs[newest]) + 1


def _rows(values: Tensor, rows: Tensor) -> Tensor:
    """values [B, S, E] at rows [B, T] -> [B, T, E]."""
    return values.gather(1, rows[..., None].expand(-1, -1, values.shape[-1]))


def _tables(rope, positions: np.ndarray) -> Rotary:
    return tuple(torch.from_numpy(table) for table in rope.tables(positions))
