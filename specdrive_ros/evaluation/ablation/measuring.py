"""One cell on the driving path: every prompt decoded plainly and with the cell's draft, in turn, from one prefill.

A draft is asked for a chain of block - 1 tokens, so that a pass of the target has `block` rows. DFlash keeps the block
it was trained with, and the first slots are used. Times are wall times of drafting and verification; other load on the
machine affects plain decoding of the same prompt alike. Rows are kept per cell, so that an ablation can be resumed.
"""

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from specdrive_ros.cycle import Planner
from specdrive_ros.decoding.autoregressive import AutoregressiveDecoder, Decoder
from specdrive_ros.decoding.speculative import SpeculativeDecoder
from specdrive_ros.decoding.state import DecodingState, Reasoning
from specdrive_ros.decoding.token_tree import TokenTree
from specdrive_ros.draft.dflash import DFlashDraft
from specdrive_ros.draft.draft import DraftContext
from specdrive_ros.draft.eagle3 import Eagle3Draft
from specdrive_ros.errors import InputError
from specdrive_ros.evaluation.looking.samples import HeldOutSample
from specdrive_ros.runtime.drafts import load_draft
from specdrive_ros.target.rope import text_positions
from specdrive_ros.target.unicycle import action_to_trajectory, speed_at_t0

ROWS = "rows.jsonl"
WARM_UP = 2  # times the first prompt is decoded before anything is recorded


@dataclass(frozen=True)
class Row:
    """One prompt at one block size. ms and plain_ms: time of its reasoning without the prefill; plan_m: the largest
    distance of two waypoints of the plans after both texts, None if not compared; seed: of the world.
    """

    split: str
    family: str
    seed: int
    block: int
    tokens: int
    passes: int
    ms: float
    plain_ms: float
    identical: bool
    plan_m: float | None


class Chain:
    """A single draft, as a chain."""

    def __init__(self, inner: Eagle3Draft | DFlashDraft):
        self.inner, self.name = inner, inner.name

    def begin(self) -> None:
        self.inner.begin()

    def propose(self, context: DraftContext, nodes: int) -> TokenTree:
        return TokenTree(*self.inner.propose(context, nodes))


def load_chain(folder: Path, planner: Planner, runtime: str, threads: int, longest_block: int) -> Chain:
    words, end = np.flatnonzero(~planner.rules.forbidden), planner.rules.future_start
    chain = {"depth": max(longest_block - 2, 0), "top_k": 1, "end_token": end}
    return Chain(load_draft(folder, planner.networks, runtime, words=words, threads=threads, **chain))


class Start:
    """The target's state after a prompt, to decode from more than once: what was written is dropped each time."""

    def __init__(self, planner: Planner, sample: HeldOutSample):
        self.planner, self.sample = planner, sample
        self.state = planner.perceive(sample.observation, {})
        self.length = self.state.cache.length
        self._parts = (self.state.logits, self.state.taps, self.state.positions)

    def fresh(self) -> DecodingState:
        self.state.cache.truncate(self.length)
        self.state.logits, self.state.taps, self.state.positions = self._parts
        return self.state

    def plan(self, steps: int | None = None) -> np.ndarray:
        """[W, 2] metres in the ego frame at t0: the plan that follows what has just been decoded. steps: of the action
        head, the model's own if None."""
        planner, state, history = self.planner, self.state, self.sample.observation.history
        positions = text_positions(state.cache.length, len(planner.noise), state.rope_delta)
        action = planner.networks.act(
            planner.noise, positions, state.cache, visible=state.cache.length, steps=steps
        )
        space = planner.config.action_space
        return action_to_trajectory(space, action, float(speed_at_t0(space, history.xyz, history.rotation))).xyz[:, :2]


def measure(
    planner: Planner, draft: Chain, split: str, samples: Sequence[HeldOutSample], blocks: Sequence[int], plans: int
) -> Iterator[Row]:
    """Rows of every prompt and block. plans: number of prompts, spread over all, whose plans are compared as well."""
    plain = AutoregressiveDecoder(planner.networks, planner.rules)
    ahead = {block: SpeculativeDecoder(planner.networks, planner.rules, draft, nodes=block - 1) for block in blocks}
    planner.decoder = ahead[max(blocks)]  # its cache has room for the widest passes
    compared = set(np.linspace(0, len(samples) - 1, min(plans, len(samples))).astype(int).tolist())
    for number, sample in enumerate(samples):
        start = Start(planner, sample)
        for decoder in (plain, *ahead.values()) * (WARM_UP if number == 0 else 0):
            decoder.decode(start.fresh())
        yield from _rows(start, split, plain, ahead, number in compared)


def _rows(start: Start, split: str, plain: Decoder, ahead: dict[int, Decoder], compare: bool) -> Iterator[Row]:
    expected = plain.decode(start.fresh())
    plan = start.plan() if compare else None
    for block, decoder in ahead.items():
        found = decoder.decode(start.fresh())
        apart_m = float(np.linalg.norm(start.plan() - plan, axis=-1).max()) if compare else None
        yield Row(
            split,
            start.sample.family,
            start.sample.seed,
            block,
            len(found.token_ids),
            found.target_passes,
            round(_ms(found), 4),
            round(_ms(expected), 4),
            found.token_ids == expected.token_ids,
            None if apart_m is None else float(f"{apart_m:.3g}"),
        )


def _ms(reasoning: Reasoning) -> float:
    return sum(reasoning.stage_ms.values())


def write_rows(path: Path, asked: dict, rows: Sequence[Row]) -> None:
    """Writes the rows of one question; asked: what was measured."""
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text("\n".join(map(json.dumps, [asked, *map(asdict, rows)])) + "\n", encoding="utf-8")
    os.replace(unfinished, path)


def read_rows(path: Path, asked: dict) -> list[Row] | None:
    """The rows; None if there are none yet or they answer another question. Raises InputError if unreadable."""
    if not path.exists():
        return None
    try:
        first, *lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
        return [Row(**line) for line in lines] if first == asked else None
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"{path}: holds no rows of `ablate` ({error}); delete it to measure again") from None
