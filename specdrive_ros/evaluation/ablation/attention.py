"""Where a draft attends while it writes ahead: the share of its attention on each source, and its entropy.

Per layer, head and step ahead, from every position of the target's own answers, given the target's own tokens.
Compares two settings of the rotary embedding: a mirrored one sees the rows of an image at nearly the same position, a
flat one at consecutive positions. `rows` is what uniform attention would give.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from specdrive_ros.draft.taps import TapSelection
from specdrive_ros.evaluation.ablation.traces import AHEAD, SOURCES, WRITTEN, Trace
from specdrive_ros.training.aarl_policy import DFlashPolicy, DraftPolicy, Eagle3Chain, Eagle3Policy, States
from specdrive_ros.training.aarl_training import every_state
from specdrive_ros.training.dflash_training import HIDDEN, block_rotary, make_blocks


@torch.no_grad()
def attention_figures(policy: DraftPolicy, traces: Sequence[Trace], select: TapSelection, ahead: int) -> dict:
    """share [layers][heads][steps][sources], entropy [layers][heads][steps] in nats, rows [sources]."""
    shares, entropies, counted, rows = 0.0, 0.0, 0.0, np.zeros(len(SOURCES))
    for each in traces:
        batch = each.batch(select)
        states = every_state(batch, ahead)
        looked = weights_of(policy, batch, states)
        real = states.real[0].T.double().numpy()  # [steps, places]
        share, entropy = shares_of(looked, each.sources, real, own_rows_of(policy))
        shares, entropies, counted = shares + share, entropies + entropy, counted + real.sum(1)
        rows += np.bincount(each.sources, minlength=len(SOURCES)) / len(traces)
    known = np.maximum(counted, 1)
    return {
        "sources": list(SOURCES),
        "places": int(np.max(counted)),
        "rows": (rows / rows.sum()).round(4).tolist(),
        "share": (shares / known[:, None]).round(4).tolist(),
        "entropy": (entropies / known).round(4).tolist(),
        "mean_share": dict(zip(SOURCES, (shares.sum(2) / known.sum()).mean((0, 1)).round(4).tolist())),
        "mean_entropy": round(float((entropies.sum(2) / known.sum()).mean()), 4),
    }


def own_rows_of(policy: DraftPolicy) -> tuple[int, ...]:
    """Sources of a draft's own rows before those of `AHEAD`: a block begins with the newest token, a true one, which
    EAGLE-3 reads in a row of the text."""
    return (WRITTEN,) if isinstance(policy, DFlashPolicy) else ()


def shares_of(
    looked: Iterable[Tensor], sources: np.ndarray, real: np.ndarray, first: tuple[int, ...] = ()
) -> tuple[np.ndarray, np.ndarray]:
    """Sums over the positions that count: [layers, heads, steps, sources] and [layers, heads, steps].

    looked: per step, weights [layers, heads, places, rows]; rows beyond `sources` [S] are the draft's own
    real:   [steps, places] 0 or 1
    first:  sources of the first of the draft's own rows; the others are `AHEAD`
    """
    shares, entropies = [], []
    for weights, counts in zip(looked, real):
        ahead = np.full(weights.shape[-1] - len(sources) - len(first), AHEAD)
        member = np.eye(len(SOURCES))[np.concatenate([sources, first, ahead]).astype(int)]
        values = weights.double().numpy()
        entropy = -(values * np.log(np.maximum(values, 1e-300))).sum(-1)
        shares.append((values @ member * counts[:, None]).sum(2))
        entropies.append((entropy * counts).sum(2))
    return np.stack(shares, 2), np.stack(entropies, 2)


def weights_of(policy: DraftPolicy, batch: dict[str, Tensor], states: States) -> list[Tensor]:
    """Attention weights per step ahead, of the row of each position: [layers, heads, places, S + own rows]. For a
    batch of one."""
    return _of_eagle3(policy, batch, states) if isinstance(policy, Eagle3Policy) else _of_dflash(policy, batch, states)


def _of_eagle3(policy: Eagle3Policy, batch: dict[str, Tensor], states: States) -> list[Tensor]:
    chain = Eagle3Chain(policy, batch, states, 1)
    for step in range(states.tokens.shape[-1] - 1):
        chain.advance(states.tokens[..., step])
    return [weights[0].flatten(0, 1)[None] for weights in chain.weights]


def _of_dflash(policy: DFlashPolicy, batch: dict[str, Tensor], states: States) -> list[Tensor]:
    """A block attends to the context and its own slots; other blocks, which it does not see, are left out."""
    draft, config = policy.draft, policy.draft.config
    blocks = make_blocks(
        batch["token_ids"],
        batch["loss_mask"],
        states.anchors,
        states.keep,
        config.block_size,
        config.mask_token_id,
        None,
    )
    context, block = block_rotary(policy.rope, batch["positions"], blocks.positions)
    mask = torch.zeros(blocks.mask.shape).masked_fill(~blocks.mask, HIDDEN)[:, 0]
    hidden, found = policy.target[0].embed(blocks.token_ids.flatten(1)), []
    for layer, rows in zip(draft.layers, draft.context_rows(batch["taps"], context)):
        attention, normed = layer.self_attn, layer.input_layernorm(hidden)
        every = torch.cat([rows, attention.rows(normed, block)], -4)
        scores = attention.scores(attention.queries(normed, block), every) + mask[:, None, None]
        found.append(torch.softmax(scores, -1)[0].flatten(0, 1))
        hidden = layer(hidden, block, rows, mask)
    return _own_slots(torch.stack(found), batch["token_ids"].shape[1], config.block_size, states.tokens.shape[-1])


def _own_slots(weights: Tensor, size: int, block: int, ahead: int) -> list[Tensor]:
    """[layers, heads, places * block, S + places * block] -> per step [layers, heads, places, S + block]."""
    per_place = weights.unflatten(2, (-1, block))
    places = torch.arange(per_place.shape[2])
    own = per_place[..., size:].unflatten(-1, (-1, block))[:, :, places, :, places].movedim(0, 2)
    whole = torch.cat([per_place[..., :size], own], -1)
    return [whole[:, :, :, step] for step in range(1, min(ahead, block - 1) + 1)]
