"""Several drafts in company: their trees merged into one, as wide as pays on the machine at hand.

A pass of the target over more rows costs more time, and how much more differs: on a CPU 16 rows cost nearly twice a
single one, on a GPU hardly more. So the width follows measured costs (`PassCosts`): the tree keeps as many of its most
probable nodes as make the most tokens per millisecond, and a draft that costs more than it is expected to bring is not
asked. Everything here is a function of tokens and of the cost table, never of the clock: the same drive again makes
the same passes.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from specdrive_ros.decoding.token_tree import TokenTree, merge
from specdrive_ros.draft.draft import Draft, DraftContext
from specdrive_ros.errors import InputError

COSTS_FILE = "drafts/pass_costs.json"  # in a checkpoint's folder
WORTH_ASKING = 2.5
LARGEST_PASS = 128  # rows
log = logging.getLogger(__name__)
LEARNING = 0.1  # weight of the newest pass in what a draft is expected to bring


@dataclass(frozen=True)
class PassCosts:
    """rows: [K] widths of a pass, rising; ms: [K] what it takes. In between linear, beyond as the last two go on.

    The default was measured on mini's size on one CPU core (ONNX Runtime, float32).
    """

    rows: tuple[int, ...] = (1, 8, 16, 60)
    ms: tuple[float, ...] = (1.23, 1.80, 2.28, 7.7)

    def __post_init__(self):
        if len(self.rows) != len(self.ms) or len(self.rows) < 2:
            raise InputError("pass costs: needs two widths or more and a time for each")
        if any(later <= earlier for earlier, later in zip(self.rows, self.rows[1:])) or self.rows[0] < 1:
            raise InputError(f"pass costs: widths must rise from 1 or more, got {self.rows}")
        if not all(np.isfinite(ms) and ms > 0 for ms in self.ms):
            raise InputError(f"pass costs: milliseconds must be over 0, got {self.ms}")

    @classmethod
    def load(cls, checkpoint: Path) -> "PassCosts":
        """What was measured for a checkpoint on this machine (`bench decode --measure-costs`), else the default."""
        path = Path(checkpoint) / COSTS_FILE
        if not path.is_file():
            return cls()
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            return cls(tuple(content["rows"]), tuple(content["ms"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path}: is no table of pass costs ({error}); delete it or measure again") from None

    def save(self, checkpoint: Path) -> None:
        path = Path(checkpoint) / COSTS_FILE
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps({"rows": self.rows, "ms": self.ms}) + "\n", encoding="utf-8")
        except OSError as error:
            raise InputError(f"{path}: cannot be written ({error.strerror or error})") from None

    @property
    def most_nodes(self) -> int:
        """Nodes of the widest tree worth asking for: its pass takes up to `WORTH_ASKING` times that of one row."""
        widths = np.arange(1, LARGEST_PASS + 1)
        return int(widths[self.of(widths) <= WORTH_ASKING * self.of(1)].max()) - 1

    def of(self, rows: np.ndarray | int) -> np.ndarray:
        """Milliseconds of passes of these widths."""
        slope = (self.ms[-1] - self.ms[-2]) / (self.rows[-1] - self.rows[-2])
        beyond = np.maximum(np.asarray(rows) - self.rows[-1], 0) * max(slope, 0.0)
        return np.interp(rows, self.rows, self.ms) + beyond


def best_width(probabilities: Sequence[float], costs: PassCosts) -> tuple[int, float]:
    """(nodes to keep, expected tokens per millisecond) of a tree whose nodes are accepted with these probabilities.

    A pass writes its root and, in expectation, the sum of the kept nodes' probabilities.
    """
    ranked = np.sort(np.asarray(probabilities, np.float64))[::-1]
    tokens = 1.0 + np.concatenate([[0.0], np.cumsum(ranked)])
    rates = tokens / costs.of(np.arange(1, len(tokens) + 1))
    nodes = int(np.argmax(rates))
    return nodes, float(rates[nodes])


def pays(tokens_with: float, ms_with: float, tokens_without: float, ms_without: float, draft_ms: float) -> bool:
    """Whether a pass with a draft's nodes writes more tokens per millisecond, the draft's own time counted."""
    return tokens_with / (ms_with + draft_ms) > tokens_without / ms_without


@dataclass
class _Unread:
    """Rows that a draft which was not asked has not seen yet."""

    taps: list[np.ndarray] = field(default_factory=list)
    positions: list[np.ndarray] = field(default_factory=list)

    def add(self, context: DraftContext) -> None:
        self.taps.append(context.taps)
        self.positions.append(context.positions)

    def take(self) -> tuple[np.ndarray, np.ndarray]:
        taps, positions = np.concatenate(self.taps), np.concatenate(self.positions, axis=1)
        self.taps, self.positions = [], []
        return taps, positions


class Company:
    """drafts:   the cheap ones first: a later one is asked only if it pays on top of them
    draft_ms: time of a proposal by a draft's name, where it is worth counting
    """

    def __init__(
        self, drafts: Sequence[Draft], costs: PassCosts | None = None, draft_ms: Mapping[str, float] | None = None
    ):
        self.drafts, self.costs, self.draft_ms = tuple(drafts), costs or PassCosts(), dict(draft_ms or {})
        self.name = "+".join(draft.name for draft in self.drafts)
        self.expected: dict[str, float] = {}  # tokens a pass a draft is expected to bring by itself
        self._unread = {draft.name: _Unread() for draft in self.drafts}
        self._asked: list[tuple[str, TokenTree, int]] = []
        self._faulty: set[str] = set()

    def begin(self) -> None:
        self._unread = {draft.name: _Unread() for draft in self.drafts}
        self._asked = []
        for draft in self.drafts:
            draft.begin()

    def propose(self, context: DraftContext, nodes: int) -> TokenTree:
        self._learn(context.written)
        self._asked, tree = [], TokenTree.empty()
        for draft in self.drafts:
            self._unread[draft.name].add(context)
            if self._worth_asking(draft.name, tree):
                proposal = self._ask(draft, context, nodes)
                self._asked.append((draft.name, proposal, len(context.written)))
                tree = _together([(name, each) for name, each, _ in self._asked if len(each)], nodes)
        width, _ = best_width(np.exp(tree.log_probs), self.costs)
        return tree.pruned(width)

    def _ask(self, draft: Draft, context: DraftContext, nodes: int) -> TokenTree:
        """One broken draft leaves the others' words."""
        taps, positions = self._unread[draft.name].take()
        fields = {**vars(context), "taps": taps, "positions": positions}
        try:
            tree = draft.propose(DraftContext(**fields), nodes)
            return tree.pruned(nodes)
        except Exception as error:  # a proposal, whatever is wrong with it, must not end a drive
            if draft.name not in self._faulty:
                log.warning("draft %s: no proposal (%s: %s)", draft.name, type(error).__name__, error)
            self._faulty.add(draft.name)
            return TokenTree.empty()

    def _worth_asking(self, name: str, tree: TokenTree) -> bool:
        draft_ms = self.draft_ms.get(name, 0.0)
        if not draft_ms or name not in self.expected:
            return True
        probabilities = np.exp(tree.log_probs)
        width, _ = best_width(probabilities, self.costs)
        tokens = 1.0 + float(np.sort(probabilities)[::-1][:width].sum())
        ms = float(self.costs.of(1 + width))
        ms_with = float(self.costs.of(1 + max(width, round(self.expected[name]))))
        return pays(max(tokens, 1.0 + self.expected[name]), ms_with, tokens, ms, draft_ms)

    def _learn(self, written: Sequence[int]) -> None:
        """What each draft asked before the last pass would have brought by itself, now that the words are known."""
        for name, tree, start in self._asked:
            brought = agreeing(tree, written[start:])
            before = self.expected.get(name, float(brought))
            self.expected[name] = before + LEARNING * (brought - before)


def _together(proposals: list[tuple[str, TokenTree]], nodes: int) -> TokenTree:
    """One tree of all proposals, each node credited."""
    if len(proposals) == 1:
        (name, tree), = proposals
        return tree if tree.proposers else replace(tree, proposers=(name,) * len(tree))
    return merge([tree for _, tree in proposals], nodes, [name for name, _ in proposals])


def agreeing(tree: TokenTree, words: Sequence[int]) -> int:
    """How many of the words the tree has, one below the other from its root."""
    node, depth = -1, 0
    for word in words:
        below = [child for child in tree.children.get(node, ()) if tree.tokens[child] == word]
        if not below:
            break
        node, depth = below[0], depth + 1
    return depth
