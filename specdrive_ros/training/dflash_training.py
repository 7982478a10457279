"""What DFlash learns from: blocks at random anchors, filled in one pass, with near tokens weighted most.

A block holds the true token of its anchor, then masks; it sees the target's states strictly before the anchor and
itself in both directions, never another block. Slot k predicts the true token k positions after the anchor. The recipe
is SpecForge's (z-lab published none). Knows no optimiser and no file.

Letters: B sequences, S tokens, N anchors per sequence, K slots per block, E hidden size.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from specdrive_ros.draft.dflash_network import DFlash
from specdrive_ros.draft.layers import Attention, Rotary
from specdrive_ros.draft.rope import DraftRope
from specdrive_ros.training.frozen_target import FrozenTarget

HIDDEN = torch.finfo(torch.float32).min
GAMMA = {8: 4.0, 16: 7.0}  # published pairs of block size and decay


@dataclass(frozen=True)
class DFlashLoss:
    """total = weighted / weight; `right` of the `counted` slots with a weight were predicted right."""

    total: Tensor
    weighted: Tensor
    weight: Tensor
    right: Tensor
    counted: Tensor


@dataclass(frozen=True)
class Blocks:
    """token_ids and labels [B, N, K]; positions [B, N * K] in the sequence; supervised [B, N, K] 0 or 1; weights [B,
    N, K] (supervised times the decay); mask [B, 1, N * K, S + N * K], True where a slot attends."""

    token_ids: Tensor
    labels: Tensor
    positions: Tensor
    supervised: Tensor
    weights: Tensor
    mask: Tensor


def default_gamma(block_size: int) -> float:
    """The published decay; for other block sizes, in proportion to that of 16."""
    return GAMMA.get(block_size, 7.0 * block_size / 16)


def draw_anchors(loss_mask: np.ndarray, count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Anchors [B, count] ascending, and which of them are real (bool): they stand at the first of two supervised
    tokens in a row."""
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
    """token_ids, loss_mask [B, S]; anchors, keep [B, N]. gamma None: all slots weigh the same."""
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
    """[B, 1, N * K, S + N * K] bool: the context before the anchor, and the own block; blocks not kept see nothing."""
    context = torch.arange(size, device=anchors.device) < anchors[..., None]  # [B, N, S]
    own = torch.eye(anchors.shape[1], dtype=torch.bool, device=anchors.device)[None].expand(len(anchors), -1, -1)
    own = own.repeat_interleave(block_size, 2)
    seen = torch.cat([context, own], -1) & keep[..., None]
    return seen.repeat_interleave(block_size, 1)[:, None]


def block_states(
    draft: DFlash, embeddings: Tensor, taps: Tensor, context: Rotary, block: Rotary, mask: Tensor
) -> Tensor:
    """embeddings [B, N * K, E], taps [B, S, taps * E], rotary tables of the context [B, S, D] and of the blocks [B, N
    * K, D] -> [B, N * K, E] for the target's head."""
    additive = torch.zeros(mask.shape, device=mask.device).masked_fill(~mask, HIDDEN)[:, 0]
    return draft(embeddings, block, draft.context_rows(taps, context), additive)


def own_block_states(
    draft: DFlash, embeddings: Tensor, taps: Tensor, context: Rotary, block: Rotary, anchors: Tensor
) -> Tensor:
    """The same as `block_states` under the mask of `block_mask`, at half the cost: each block is a sequence of its
    own, so the other blocks, which it does not see, are never computed. anchors: [B, N] of blocks of one size."""
    size, hidden = embeddings.shape[1] // anchors.shape[1], embeddings
    seen = torch.arange(taps.shape[1], device=anchors.device) < anchors.flatten()[:, None]
    mask = torch.zeros(seen.shape, device=seen.device).masked_fill(~seen, HIDDEN)
    mask = F.pad(mask, (0, size))[:, None, None]  # [B * N, 1, 1, S + K]
    for layer, rows in zip(draft.layers, draft.context_rows(taps, context), strict=True):
        attention, normed = layer.self_attn, layer.input_layernorm(hidden)
        query, own = attention.queries(normed, block), attention.rows(normed, block)
        hidden = hidden + attention.o_proj(_own_blocks(attention, query, rows, own, mask, anchors.shape[1]))
        hidden = hidden + layer.mlp(layer.post_attention_layernorm(hidden))
    return draft.norm(hidden)


def _own_blocks(
    attention: Attention, query: Tensor, context: Tensor, own: Tensor, mask: Tensor, blocks: int
) -> Tensor:
    """Attention of query [B, N * K, Hq, D] over rows [B, S, 2, H, D] of the context and [B, N * K, 2, H, D] of the own
    block, mask [B * N, 1, 1, S + K] -> [B, N * K, Hq * D]. Heads that share keys form one longer query."""
    per_block = own.unflatten(1, (blocks, -1))
    rows = torch.cat([context[:, None].expand(-1, blocks, -1, -1, -1, -1), per_block], 2).flatten(0, 1)
    key, value = rows.permute(2, 0, 3, 1, 4)  # each [B * N, H, S + K, D]
    asked = query.unflatten(1, (blocks, -1)).flatten(0, 1).unflatten(2, (attention.heads, -1))
    slots, groups = asked.shape[1], asked.shape[3]
    asked = asked.permute(0, 2, 3, 1, 4).flatten(2, 3)  # [B * N, H, G * K, D]
    mixed = F.scaled_dot_product_attention(asked, key, value, attn_mask=mask.to(asked.dtype), scale=1.0)
    mixed = mixed.unflatten(2, (groups, slots)).permute(0, 3, 1, 2, 4).flatten(2)
    return mixed.unflatten(0, (len(query), blocks)).flatten(1, 2)


def dflash_loss(logits: Tensor, labels: Tensor, weights: Tensor) -> DFlashLoss:
    """logits [B, N, K, W], labels [B, N, K] (indices in the draft's vocabulary W), weights [B, N, K]."""
    each = F.cross_entropy(logits.flatten(0, 2), labels.flatten(), reduction="none").view_as(weights)
    weighted, weight = (each * weights).sum(), weights.sum()
    counted = weights > 0
    right = ((logits.argmax(-1) == labels) & counted).sum()
    return DFlashLoss(weighted / weight.clamp(min=math.ulp(1.0)), weighted, weight, right, counted.sum())


class DFlashStage(nn.Module):
    """A draft and the parts of the target it is trained against, in one forward pass.

    words: ids that the target may write; the others are left out of the output, as the decoding rules do.
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
        """batch: of `DraftFeatures`; anchors are drawn from `rng`. Returns means over the anchors."""
        anchors, keep = draw_anchors(batch["loss_mask"].cpu().numpy(), self.anchors, rng)
        used = max(int(keep.sum(1).max()), 1)  # short answers have fewer anchors: drop columns of padding
        drawn = (torch.from_numpy(part[:, :used]).to(batch["loss_mask"].device) for part in (anchors, keep))
        blocks, logits, labels = self._answered(batch, *drawn)
        asked = blocks.supervised > 0
        loss = dflash_loss(logits[None, None], labels[None, None], blocks.weights[asked][None, None])
        right = self._right(blocks, logits, labels)
        kept = asked[..., 1]
        return {
            "loss": loss.total,
            "first_word": right[..., 0][kept].float().mean(),
            "words_ahead": torch.cumprod(right.long(), -1).sum(-1)[kept].float().mean(),
        }

    def runs(self, batch: dict[str, Tensor], ahead: int) -> Tensor:
        """[B, A] number of right tokens after each token of the answers, `ahead` at most; none after the last one."""
        written = batch["loss_mask"].bool()
        count = torch.arange(int(written.sum(1).max()), device=written.device)
        anchors, keep = written.int().argmax(1, keepdim=True) + count, count < written.sum(1, keepdim=True)
        right = self._right(*self._answered(batch, torch.where(keep, anchors, 0), keep))
        return torch.cumprod(right[..., :ahead].long(), -1).sum(-1)

    def _answered(self, batch: dict[str, Tensor], anchors: Tensor, keep: Tensor) -> tuple[Blocks, Tensor, Tensor]:
        """The blocks of these anchors [B, N]; and, for the supervised slots only, flattened, logits [M, W] and labels
        [M]: the head is the most expensive part of a slot, and half of the slots lie beyond the answer's end."""
        config = self.draft.config
        blocks = make_blocks(batch["token_ids"], batch["loss_mask"], anchors, keep, config.block_size,
                             config.mask_token_id, self.gamma)  # fmt: skip
        states = own_block_states(
            self.draft, self.target.embed(blocks.token_ids.flatten(1)), batch["taps"],
            *block_rotary(self.rope, batch["positions"], blocks.positions), anchors,
        )  # fmt: skip
        asked = blocks.supervised > 0
        logits = states.unflatten(1, asked.shape[1:])[asked] @ self.target.head[self.words].T
        return blocks, logits, self.places[blocks.labels[asked]]

    @staticmethod
    def _right(blocks: Blocks, logits: Tensor, labels: Tensor) -> Tensor:
        """[B, N, K - 1] bool: slots predicted right."""
        right = torch.zeros_like(blocks.supervised, dtype=torch.bool)
        right[blocks.supervised > 0] = logits.argmax(-1) == labels
        return right[..., 1:]


def block_rotary(rope: DraftRope, positions: Tensor, blocks: Tensor) -> tuple[Rotary, Rotary]:
    """Rotary tables of the context at the target's positions [3, B, S], and of the blocks at sequence positions [B, N
    * K]."""
    rows = [rope.rows(0, positions[:, row].cpu().numpy()) for row in range(positions.shape[1])]
    last = positions[0].argmax(-1)  # a real token of the answer: everything after the prompt is text
    delta = positions[0].gather(1, last[:, None]) - last[:, None] if rope.mirrors else 0
    beyond = (blocks + delta)[None].expand(3, -1, -1).cpu().numpy()
    return tuple(tuple(torch.from_numpy(table).to(blocks.device) for table in rope.tables(at))
                 for at in (np.stack(rows, axis=1), beyond))
