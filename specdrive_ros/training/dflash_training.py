"""What DFlash learns from: blocks at random anchors, filled in one pass, near words weighing most.

A block holds the true token of its anchor and masks; it sees the target's states strictly before the anchor and
itself both ways, never another block. Slot k is to say the true token k places behind the anchor. The recipe is
SpecForge's (z-lab published none). Knows no optimiser and no file.

Letters: B sequences, S tokens, N anchors a sequence, K slots a block, E hidden size.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from specdrive_ros.draft.dflash_network import DFlash
from specdrive_ros.draft.layers import Rotary
from specdrive_ros.draft.rope import DraftRope
from specdrive_ros.training.frozen_target import FrozenTarget

HIDDEN = torch.finfo(torch.float32).min
GAMMA = {8: 4.0, 16: 7.0}  # published pairs of block and decay


@dataclass(frozen=True)
class DFlashLoss:
    """total = weighted / weight; right of `counted` slots with a weight were said right."""

    total: Tensor
    weighted: Tensor
    weight: Tensor
    right: Tensor
    counted: Tensor


@dataclass(frozen=True)
class Blocks:
    """token_ids and labels [B, N, K], positions [B, N * K] in the sequence, supervised [B, N, K] 0 or 1 and weights
    [B, N, K] (the same times the decay), mask [B, 1, N * K, S + N * K] True where a slot looks."""

    token_ids: Tensor
    labels: Tensor
    positions: Tensor
    supervised: Tensor
    weights: Tensor
    mask: Tensor


def default_gamma(block_size: int) -> float:
    """The published decay, between and beyond the published blocks in proportion."""
    return GAMMA.get(block_size, 7.0 * block_size / 16)


def draw_anchors(loss_mask: np.ndarray, count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Anchors [B, count] ascending and which of them are real: two supervised tokens in a row stand there."""
    anchors, keep = np.zeros((len(loss_mask), count), np.int64), np.zeros((len(loss_mask), count), bool)
    for row, supervised in enumerate(loss_mask.astype(bool)):
        places = np.flatnonzero(supervised[:-1] & supervised[1:])
        chosen = np.sort(rng.permutation(places)[:count])
        anchors[row, : len(chosen)], keep[row, : len(chosen)] = chosen, True
    return anchors, keep


def make_blocks(
    token_ids: Tensor, loss_mask: Tensor, anchors: Tensor, keep: Tensor, block_size: int, mask_token_id: int,
    gamma: float | None,
) -> Blocks:  # fmt: skip
    """token_ids, loss_mask [B, S]; anchors, keep [B, N]. gamma None: every slot weighs the same."""
    size, slots = token_ids.shape[1], torch.arange(block_size, device=token_ids.device)
    places = anchors[..., None] + slots  # [B, N, K]
    inside, where = places < size, places.clamp(max=size - 1).flatten(1)
    labels = token_ids.gather(1, where).view_as(places)
    ids = torch.full_like(places, mask_token_id)
    ids[..., 0] = token_ids.gather(1, anchors)
    supervised = loss_mask.float().gather(1, where).view_as(places)
    supervised = supervised * inside * keep[..., None] * (slots > 0)
    weights = supervised if gamma is None else supervised * torch.exp((1 - slots).float() / gamma)
    return Blocks(ids, labels, places.flatten(1), supervised, weights, block_mask(anchors, keep, block_size, size))


def block_mask(anchors: Tensor, keep: Tensor, block_size: int, size: int) -> Tensor:
    """[B, 1, N * K, S + N * K]: the context before the anchor, and the own block; blocks not kept see nothing."""
    context = torch.arange(size, device=anchors.device) < anchors[..., None]  # [B, N, S]
    own = torch.eye(anchors.shape[1], dtype=torch.bool, device=anchors.device)[None].expand(len(anchors), -1, -1)
    own = own.repeat_interleave(block_size, 2)
    seen = torch.cat([context, own], -1) & keep[..., None]
    return seen.repeat_interleave(block_size, 1)[:, None]


def block_states(
    draft: DFlash, embeddings: Tensor, taps: Tensor, context: Rotary, block: Rotary, mask: Tensor
) -> Tensor:
    """embeddings [B, N * K, E], taps [B, S, taps * E], rotary tables of context [B, S, D] and blocks [B, N * K, D]
    -> [B, N * K, E] for the target's head."""
    additive = torch.zeros(mask.shape, device=mask.device).masked_fill(~mask, HIDDEN)[:, 0]
    return draft(embeddings, block, draft.context_rows(taps, context), additive)


def dflash_loss(logits: Tensor, labels: Tensor, weights: Tensor) -> DFlashLoss:
    """logits [B, N, K, words], labels [B, N, K] (places among the words), weights [B, N, K]."""
    each = F.cross_entropy(logits.flatten(0, 2), labels.flatten(), reduction="none").view_as(weights)
    weighted, weight = (each * weights).sum(), weights.sum()
    counted = weights > 0
    right = ((logits.argmax(-1) == labels) & counted).sum()
    return DFlashLoss(weighted / weight.clamp(min=math.ulp(1.0)), weighted, weight, right, counted.sum())


class DFlashStage(nn.Module):
    """A draft and what of the target it is trained against, under one forward.

    words: ids the target may write; what it never writes is left out of the output, as the decoding rules do.
    """

    def __init__(
        self, draft: DFlash, target: FrozenTarget, words: np.ndarray, anchors: int, gamma: float | None = None
    ):
        super().__init__()
        self.draft, self.anchors = draft, anchors
        self.gamma = gamma or default_gamma(draft.config.block_size)
        self.target, self.rope = target, draft.config.make_rope()
        self.register_buffer("words", torch.from_numpy(words), persistent=False)
        self.register_buffer("places", torch.zeros(draft.config.vocab_size, dtype=torch.int64), persistent=False)
        self.places[self.words] = torch.arange(len(words))

    def forward(self, batch: dict[str, Tensor], rng: np.random.Generator) -> dict[str, Tensor]:
        """batch: of `DraftFeatures`; anchors are drawn from `rng`."""
        config, mask = self.draft.config, batch["loss_mask"]
        anchors, keep = draw_anchors(mask.cpu().numpy(), self.anchors, rng)
        used = max(int(keep.sum(1).max()), 1)  # short answers have fewer places: what is padding everywhere is left out
        drawn = (torch.from_numpy(part[:, :used]).to(mask.device) for part in (anchors, keep))
        blocks = make_blocks(batch["token_ids"], mask, *drawn, config.block_size, config.mask_token_id, self.gamma)
        states = block_states(
            self.draft, self.target.embed(blocks.token_ids.flatten(1)), batch["taps"],
            *block_rotary(self.rope, batch["positions"], blocks.positions), blocks.mask,
        )  # fmt: skip
        logits = (states @ self.target.head[self.words].T).unflatten(1, blocks.labels.shape[1:])
        labels = self.places[blocks.labels]
        loss = dflash_loss(logits, labels, blocks.weights)
        right = (logits.argmax(-1) == labels)[..., 1:] & (blocks.supervised[..., 1:] > 0)
        kept = blocks.supervised[..., 1] > 0
        runs = torch.cumprod(right.long(), -1).sum(-1)[kept]
        return {
            "loss": loss.total,
            "first_word": right[..., 0][kept].float().mean(),
            "accepted_length": 1 + runs.float().mean(),
        }


def block_rotary(rope: DraftRope, positions: Tensor, blocks: Tensor) -> tuple[Rotary, Rotary]:
    """Tables of the context, where the target sees it [3, B, S], and of blocks at sequence places [B, N * K]."""
    rows = [rope.rows(0, positions[:, row].cpu().numpy()) for row in range(positions.shape[1])]
    last = positions[0].argmax(-1)  # a real token of the answer: what lies beyond the prompt is text
    delta = positions[0].gather(1, last[:, None]) - last[:, None] if rope.mirrors else 0
    beyond = (blocks + delta)[None].expand(3, -1, -1).cpu().numpy()
    return tuple(tuple(torch.from_numpy(table).to(blocks.device) for table in rope.tables(at))
                 for at in (np.stack(rows, axis=1), beyond))
