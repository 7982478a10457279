"""Several drafts together: their trees merged into one, as wide as pays off on the machine at hand.

A wider pass of the target costs more time, and how much more depends on the machine: on a CPU, 16 rows cost nearly
twice as much as one, on a GPU hardly more. So the width follows measured costs (`PassCosts`): the tree keeps the number
of its most probable nodes that gives the most tokens per millisecond. A draft that costs more than it is expected to
bring is not asked, except now and then, in case it has become better. A network that is asked also rates the words of
the cheaper drafts before it, which are then ranked by both opinions. Everything here depends on tokens and on the cost
table, never on the clock: repeating a drive repeats its passes.
"""

import json
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np

from specdrive_ros.decoding.token_tree import TokenTree, merge
from specdrive_ros.draft.asking import AskingCost, pays
from specdrive_ros.draft.draft import Draft, DraftContext
from specdrive_ros.errors import InputError
from specdrive_ros.json_file import parse_json

COSTS_FILE = "drafts/pass_costs.json"  # in a checkpoint's folder
WORTH_ASKING = 2.5
LARGEST_PASS = 128  # rows
LARGEST_ROWS = 2**20  # of a table
log = logging.getLogger(__name__)
LEARNING = 0.1  # weight of the newest pass in a draft's expected tokens
ASKED_AGAIN = 32  # passes after which a draft that does not pay off gets another try
FREE = AskingCost()

Proposals = list[tuple[str, TokenTree]]  # name of a draft, what it proposed


@dataclass(frozen=True)
class PassCosts:
    """rows: [K] widths of a pass, rising; ms: [K] their times, interpolated linearly, extrapolated from the last two.
    drafts: what asking a draft costs, by its name; the costs of others are estimated.

    The default was measured on mini's size on one CPU core (ONNX Runtime, float32).
    """

    rows: tuple[int, ...] = (1, 8, 16, 60)
    ms: tuple[float, ...] = (1.23, 1.80, 2.28, 7.7)
    drafts: Mapping[str, AskingCost] = field(default_factory=dict)

    def __post_init__(self):
        if len(self.rows) != len(self.ms) or len(self.rows) < 2:
            raise InputError("pass costs: needs two widths or more and a time for each")
        if not all(type(rows) is int and rows <= LARGEST_ROWS for rows in self.rows):
            raise InputError(f"pass costs: widths must be whole numbers up to {LARGEST_ROWS}, got {self.rows}")
        if any(later <= earlier for earlier, later in zip(self.rows, self.rows[1:])) or self.rows[0] < 1:
            raise InputError(f"pass costs: widths must rise from 1 or more, got {self.rows}")
        if not all(np.isfinite(ms) and ms > 0 for ms in self.ms):
            raise InputError(f"pass costs: milliseconds must be over 0, got {self.ms}")

    @classmethod
    def load(cls, checkpoint: Path) -> "PassCosts":
        """The costs measured for a checkpoint on this machine (`bench decode --measure-costs`), else the default."""
        path = Path(checkpoint) / COSTS_FILE
        if not path.is_file():
            return cls()
        try:
            content = parse_json(path.read_text(encoding="utf-8"))
            drafts = {name: AskingCost(**cost) for name, cost in content.get("drafts", {}).items()}
            return cls(tuple(content["rows"]), tuple(content["ms"]), drafts)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{path}: is no table of pass costs ({error}); delete it or measure again") from None

    def save(self, checkpoint: Path) -> None:
        """Writes them beside a checkpoint's weights. Raises `InputError` where that is not possible."""
        path = Path(checkpoint) / COSTS_FILE
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            drafts = {name: vars(cost) for name, cost in self.drafts.items()}
            content = {"rows": self.rows, "ms": self.ms, "drafts": drafts}
            path.write_text(json.dumps(content) + "\n", encoding="utf-8")
        except OSError as error:
            raise InputError(f"{path}: cannot be written ({error.strerror or error})") from None

    @property
    def most_nodes(self) -> int:
        """Nodes of the widest tree worth asking for: its pass takes at most `WORTH_ASKING` times that of one row."""
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


@dataclass
class _Unread:
    """Rows that a draft which was not asked has not seen yet."""

    taps: list[np.ndarray] = field(default_factory=list)
    positions: list[np.ndarray] = field(default_factory=list)

    def __len__(self) -> int:
        return sum(map(len, self.taps))

    def add(self, context: DraftContext) -> None:
        self.taps.append(context.taps)
        self.positions.append(context.positions)

    def take(self) -> tuple[np.ndarray, np.ndarray]:
        taps, positions = np.concatenate(self.taps), np.concatenate(self.positions, axis=1)
        self.taps, self.positions = [], []
        return taps, positions


class Company:
    """drafts: the cheapest first: a later one is asked only if it pays off on top of them
    asking: what asking a draft costs, by its name; free if left out
    vocabulary: the target's size: a draft that proposes a token outside of it loses its own proposal, not the others'
    """

    def __init__(
        self, drafts: Sequence[Draft], costs: PassCosts | None = None,
        asking: Mapping[str, AskingCost] | None = None, vocabulary: int | None = None,
    ):  # fmt: skip
        self.drafts, self.costs, self.asking = tuple(drafts), costs or PassCosts(), dict(asking or {})
        self.vocabulary = vocabulary
        self.name = "+".join(draft.name for draft in self.drafts)
        self.reads_taps = any(getattr(draft, "reads_taps", True) for draft in self.drafts)
        self.expected: dict[str, float] = {}  # tokens a pass a draft is expected to bring by itself
        self.times_asked: Counter[str] = Counter()
        self.proposals = 0.0  # expected in a reasoning
        self._counted = 0  # in this one
        self._unread = {draft.name: _Unread() for draft in self.drafts}
        self._passed_over = {draft.name: 0 for draft in self.drafts}
        self._asked: list[tuple[str, TokenTree, int]] = []
        self._last: list[tuple[str, TokenTree, int]] = []  # asked last in the reasoning before
        self._faulty: set[str] = set()

    def begin(self) -> None:
        if self._counted:
            before = self.proposals or self._counted
            self.proposals = before + LEARNING * (self._counted - before)
        self._unread = {draft.name: _Unread() for draft in self.drafts}
        self._last, self._counted, self._asked = self._asked or self._last, 0, []
        for draft in self.drafts:
            self._guarded(draft, draft.begin, None)

    def propose(self, context: DraftContext, nodes: int) -> TokenTree:
        self._learn(self._asked, context.written)
        self._learn(self._last, context.previous)
        self._asked, self._last, self._counted = [], [], self._counted + 1
        proposals, tree = [], TokenTree.empty()
        for draft in self.drafts:
            self._unread[draft.name].add(context)
            if self._worth_asking(draft.name, tree):
                own = self._ask(draft, context, nodes)
                self._asked.append((draft.name, own, len(context.written)))
                proposals = [*self._as_seen_by(draft, proposals), (draft.name, own)]
                tree = _together([each for each in proposals if len(each[1])], nodes)
        width, _ = best_width(tree.probabilities, self.costs)
        return tree.pruned(width)

    def _ask(self, draft: Draft, context: DraftContext, nodes: int) -> TokenTree:
        taps, positions = self._unread[draft.name].take()
        self._passed_over[draft.name] = 0
        self.times_asked[draft.name] += 1
        fields = {**vars(context), "taps": taps, "positions": positions}
        ask = partial(draft.propose, DraftContext(**fields), nodes)
        return self._guarded(draft, lambda: TokenTree.copy_of(ask(), self.vocabulary).pruned(nodes), TokenTree.empty())

    def _as_seen_by(self, draft: Draft, proposals: Proposals) -> Proposals:
        """The cheaper drafts' proposals, re-ranked with a network's opinion of their words."""
        if not hasattr(draft, "edges"):
            return proposals
        return [
            (name, self._guarded(draft, lambda tree=tree: reranked(tree, draft.edges(tree)), tree))
            for name, tree in proposals
        ]

    def _guarded(self, draft: Draft, ask: Callable, otherwise):
        """What `ask` returns, `otherwise` if it raises: one broken draft must not take the others down."""
        try:
            return ask()
        except Exception as error:  # a proposal, whatever is wrong with it, must not end a drive
            if draft.name not in self._faulty:
                log.warning("draft %s: no proposal (%s: %s)", draft.name, type(error).__name__, error)
            self._faulty.add(draft.name)
            return otherwise

    def _worth_asking(self, name: str, tree: TokenTree) -> bool:
        draft_ms = self.asking.get(name, FREE).of(len(self._unread[name]), self.proposals)
        self._passed_over[name] += 1
        if not draft_ms or name not in self.expected or self._passed_over[name] > ASKED_AGAIN:
            return True
        probabilities = tree.probabilities
        width, _ = best_width(probabilities, self.costs)
        tokens = 1.0 + float(np.sort(probabilities)[::-1][:width].sum())
        ms = float(self.costs.of(1 + width))
        ms_with = float(self.costs.of(1 + max(width, round(self.expected[name]))))
        return pays(max(tokens, 1.0 + self.expected[name]), ms_with, tokens, ms, draft_ms)

    def _learn(self, asked: list[tuple[str, TokenTree, int]], written: Sequence[int]) -> None:
        """Updates how many tokens each asked draft would have brought by itself, now that the words are known.

        The words after the last pass of a reasoning become known when the next reasoning begins; when a draft is at
        its best, that is the only pass there is.
        """
        for name, tree, start in asked:
            brought = agreeing(tree, written[start:])
            before = self.expected.get(name, float(brought))
            self.expected[name] = before + LEARNING * (brought - before)


def reranked(tree: TokenTree, edges: np.ndarray) -> TokenTree:
    """The tree with each step's probability averaged between its proposer and a network.

    edges: [n] the network's log-probability of each node given its parent; NaN where it has no opinion.
    """
    own = tree.log_probs - np.append(tree.log_probs, 0.0)[tree.parents]
    own, edges = np.exp(np.minimum(own, 0.0)), np.exp(np.minimum(edges, 0.0))
    steps = np.log(np.where(np.isnan(edges), own, (own + edges) / 2))
    paths = np.zeros(len(tree) + 1)  # the last is the root's, which index -1 reads
    for node, parent in enumerate(tree.parents.tolist()):
        paths[node] = paths[parent] + steps[node]
    return replace(tree, log_probs=paths[:-1])


def _together(proposals: Proposals, nodes: int) -> TokenTree:
    """One tree of all proposals, each node credited."""
    if len(proposals) == 1:
        (name, tree), = proposals
        return tree if tree.proposers else replace(tree, proposers=(name,) * len(tree))
    return merge([tree for _, tree in proposals], nodes, [name for name, _ in proposals])


def agreeing(tree: TokenTree, words: Sequence[int]) -> int:
    """How many of the words the tree has along a path from its root."""
    return len(tree.following(words))
