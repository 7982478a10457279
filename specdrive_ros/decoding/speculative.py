"""Speculative decoding: a draft writes ahead, and the target checks a whole tree of tokens in one pass.

The text is that of plain decoding, and so is the cache that the action head reads; only the number of passes differs
(Leviathan et al. 2023, Chen et al. 2023; trees: Miao et al. 2023, SpecInfer). Knows no draft by name.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from specdrive_ros.decoding.pace import UNHURRIED, Pace
from specdrive_ros.decoding.rules import ReasoningRules
from specdrive_ros.decoding.state import Carried, DecodingState, Reasoning
from specdrive_ros.decoding.token_tree import TokenTree
from specdrive_ros.decoding.verification import ChooseAmong, Verdict, greedy_among, verify
from specdrive_ros.draft.draft import Draft, DraftContext
from specdrive_ros.runtime.networks import TargetNetworks
from specdrive_ros.target.rope import text_positions

Answer = TypeVar("Answer")
log = logging.getLogger(__name__)


class SpeculativeDecoder:
    """nodes: tokens a draft may propose for one pass, beside the root; it may propose fewer.
    choose: how the target chooses: greedy, or `RejectionSampler`.
    carry:  whether the previous reasoning rides along in the next prefill, to be verified there.
    """

    def __init__(
        self,
        networks: TargetNetworks,
        rules: ReasoningRules,
        draft: Draft,
        *,
        nodes: int = 15,
        choose: ChooseAmong = greedy_among,
        carry: bool = False,
    ):
        self.networks, self.rules, self.draft = networks, rules, draft
        self.nodes, self.choose, self.carry = nodes, choose, carry
        self.forbidden = rules.forbidden if networks.chooses and choose is greedy_among else None
        self.previous: tuple[int, ...] = ()
        self._fault_logged = False

    @property
    def reads_taps(self) -> bool:
        """Whether the draft reads hidden states; assumed of a draft that does not say."""
        return getattr(self.draft, "reads_taps", True)

    @property
    def spare_rows(self) -> int:
        """Cache rows that a pass takes beyond those of the longest reasoning."""
        return self.nodes

    def carried(self) -> tuple[int, ...]:
        """The tokens that should ride along in the next prefill."""
        return self.previous if self.carry else ()

    def forget(self) -> None:
        """The scene has changed: the previous reasoning is no longer a proposal."""
        self.previous = ()

    def decode(self, state: DecodingState, pace: Pace = UNHURRIED) -> Reasoning:
        writing = _Writing(pace)
        self._asked(self.draft.begin, None, writing)
        verdict = self._hurry(self._accept(state, _prefill(state), writing), writing)
        while verdict.tokens:
            writing.token_ids += verdict.tokens
            tree = self._propose(state, writing)
            run = self._extend(state, verdict.tokens, tree, writing)
            verdict = self._hurry(self._accept(state, run, writing), writing)
        self.previous = tuple(writing.token_ids)
        return writing.reasoning()

    def _hurry(self, verdict: Verdict, writing: "_Writing") -> Verdict:
        """The verdict, or one that closes the reasoning if there is no time for another token."""
        ends = not verdict.tokens or self.rules.ended([*writing.token_ids, *verdict.tokens])
        if ends or not writing.pace.must_close():
            return verdict
        writing.truncated = True
        return Verdict((), tuple(self.rules.closing(writing.token_ids)), True)

    def _propose(self, state: DecodingState, writing: "_Writing") -> TokenTree:
        """The draft's tree; empty if the draft fails or the reasoning is already closed."""
        if self.rules.ended(writing.token_ids):
            return TokenTree.empty()
        room = state.cache.capacity - state.cache.length - 1
        nodes = max(0, min(writing.pace.nodes(self.nodes), room))
        context = self._context(state, writing.token_ids)
        tree = self._asked(lambda: self._checked(self.draft.propose(context, nodes), nodes), TokenTree.empty(), writing)
        writing.proposed += len(tree)
        return tree

    def _asked(self, ask: Callable[[], Answer], otherwise: Answer, writing: "_Writing") -> Answer:
        """The draft's answer; `otherwise` if it fails."""
        with writing.timed("draft"):
            try:
                return ask()
            except Exception as error:  # a proposal, whatever is wrong with it, must not end a drive
                self._log_fault(error)
                writing.faults += 1
                return otherwise

    def _context(self, state: DecodingState, written: Sequence[int]) -> DraftContext:
        arrays = [array.view() for array in (state.prompt_ids, state.taps, state.positions)]
        for array in arrays:
            array.setflags(write=False)
        prompt_ids, taps, positions = arrays
        return DraftContext(
            prompt_ids, tuple(written), written[-1], taps, positions, state.rope_delta, self.previous
        )

    def _checked(self, proposal: TokenTree, nodes: int) -> TokenTree:
        """A copy of the proposal that is safe to run. Raises if the proposal is invalid."""
        tree = TokenTree.copy_of(proposal, len(self.rules.forbidden))
        if len(tree) > nodes:
            raise ValueError(f"proposed {len(tree)} nodes, asked for {nodes}")
        return tree

    def _log_fault(self, error: Exception) -> None:
        if not self._fault_logged:
            log.warning("draft %s: no proposal (%s: %s)", self.draft.name, type(error).__name__, error)
        self._fault_logged = True

    def _extend(
        self, state: DecodingState, stem: Sequence[int], tree: TokenTree, writing: "_Writing"
    ) -> "_Pass":
        """One pass over the target's own newest tokens and the tree below them."""
        cached = state.cache.length
        root_slot = cached + len(stem) - 1
        positions = np.concatenate(
            [text_positions(cached, len(stem), state.rope_delta), tree.positions(root_slot, state.rope_delta)],
            axis=1,
        )
        tokens = np.concatenate([np.asarray(stem, np.int64), tree.tokens])
        begun = time.perf_counter()
        with writing.timed("verify"):
            output = self.networks.extend(
                self.networks.embed(tokens),
                positions,
                state.cache,
                mask=None if tree.is_chain else tree.attention_mask(cached, len(stem)),
                logit_rows=np.arange(len(stem) - 1, len(tokens)),
                forbidden=self.forbidden,
                taps=self.reads_taps,
            )
        writing.pace.note_pass(len(tokens), 1000 * (time.perf_counter() - begun))
        writing.passes += 1
        return _Pass(root_slot, len(stem), tree, output.logits, output.taps, positions, output.choices)

    def _accept(self, state: DecodingState, run: "_Pass", writing: "_Writing") -> Verdict:
        """Keeps what the target agrees with: tokens, cache rows and taps."""
        with writing.timed("verify"):
            verdict = verify(run.tree, run.logits, self.rules, writing.token_ids, self.choose, run.choices)
            state.cache.keep(run.root_slot + 1, np.array(verdict.path, np.int64))
            rows = [*range(run.stem), *(run.stem + node for node in verdict.path)]
            state.taps, state.positions = run.taps[rows], run.positions[:, rows]
            state.follow(run.logits, run.choices, verdict.path[-1] + 1 if verdict.path else 0)
            state.carried = None
        writing.accept(run.tree, verdict, self.draft.name)
        return verdict


@dataclass(frozen=True)
class _Pass:
    """A pass: what was run, and its outputs.

    root_slot: cache slot of the tree's root, the last of the `stem` rows the pass begins with
    logits:    [1 + n, vocabulary] of the root and the nodes, or `choices` [1 + n]
    taps:      [stem + n, n_taps E]; positions: [3, stem + n]
    """

    root_slot: int
    stem: int
    tree: TokenTree
    logits: np.ndarray | None
    taps: np.ndarray
    positions: np.ndarray
    choices: np.ndarray | None = None


def _prefill(state: DecodingState) -> _Pass:
    """The prefill as a pass: its root is the prompt's last token, its tree the text that rode along."""
    carried = state.carried or Carried(TokenTree.empty(), None)
    stem, root_slot = len(state.taps) - len(carried.tree), state.cache.length - len(carried.tree) - 1
    logits, choices = _joined(state.logits, carried.logits), _joined(state.choice, carried.choices)
    return _Pass(root_slot, stem, carried.tree, logits, state.taps, state.positions, choices)


def _joined(first: np.ndarray | int | None, behind: np.ndarray | None) -> np.ndarray | None:
    """The root's row, followed by the rows of what rode along."""
    if first is None:
        return None
    return np.asarray(first)[None] if behind is None else np.concatenate([np.asarray(first)[None], behind])


@dataclass
class _Writing:
    """A reasoning while it is being written."""

    pace: Pace
    token_ids: list[int] = field(default_factory=list)
    truncated: bool = False
    passes: int = 0
    proposed: int = 0
    faults: int = 0
    drafted: dict[str, int] = field(default_factory=dict)
    stage_ms: dict[str, float] = field(default_factory=lambda: {"draft": 0.0, "verify": 0.0})

    def accept(self, tree: TokenTree, verdict: Verdict, name: str) -> None:
        for node in verdict.path:
            self.token_ids.append(int(tree.tokens[node]))
            proposer = tree.proposers[node] if tree.proposers else name
            self.drafted[proposer] = self.drafted.get(proposer, 0) + 1
        self.truncated |= verdict.forced

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        begun = time.perf_counter()
        try:
            yield
        finally:
            self.stage_ms[stage] += 1000 * (time.perf_counter() - begun)

    def reasoning(self) -> Reasoning:
        return Reasoning(
            tuple(self.token_ids),
            self.truncated,
            self.passes,
            self.stage_ms,
            self.drafted,
            self.proposed,
            self.faults,
        )
