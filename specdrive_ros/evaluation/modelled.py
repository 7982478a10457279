"""What ways of decoding would gain where a wide pass costs the same as a narrow one, as on a large GPU. A model, not a
measurement: passes are counted here with trees as wide as pay off on such a machine; their time is not measured.

The unit is one pass of the target. A pass of n rows costs 1, tokens carried along in the prefill cost nothing, and a
network's proposal costs its passes times its share of the target's layers. Vision, prefill and action head are left
out.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from specdrive_ros.cycle import Planner, make_decoder
from specdrive_ros.decoding.statistics import accepted_length
from specdrive_ros.draft.company import PassCosts
from specdrive_ros.draft.network_draft import NetworkDraft
from specdrive_ros.draft.registry import NO_DRAFT
from specdrive_ros.observation.observation import Observation
from specdrive_ros.runtime.drafts import pass_share

ASSUMED = "a pass of n rows costs a pass of 1; a draft's own pass its share of the target's layers"
WIDEST = 128  # rows


@dataclass
class Modelled:
    """One way of decoding, counted over all prompts."""

    draft: str
    decoder: object
    tokens: int = 0
    target_passes: int = 0
    reasonings: int = 0
    proposals: dict[str, int] = field(default_factory=dict)

    def row(self) -> dict:
        passes = self.target_passes + sum(self.proposals[name] * share for name, share in self._shares().items())
        return {
            "draft": self.draft,
            "modelled": True,
            "tokens": self.tokens,
            "target_passes": self.target_passes,
            "accepted_length": round(accepted_length(self.tokens, self.target_passes, self.reasonings), 4),
            "passes_with_drafts": round(passes, 3),
            "speedup": round(self.tokens / passes, 3) if passes else None,
        }

    def _shares(self) -> dict[str, float]:
        drafts = self.decoder.draft.drafts if self.draft != NO_DRAFT else ()
        return {
            draft.name: pass_share(draft.inner)
            for draft in drafts
            if isinstance(draft, NetworkDraft) and draft.name in self.proposals
        }


class GpuModel:
    """Decodes every prompt again under flat pass costs. one_row_ms: time of a one-row pass here, used to weigh a
    draft's passes."""

    def __init__(self, planner: Planner, drafts: Sequence[str], one_row_ms: float):
        costs = PassCosts((1, WIDEST), (one_row_ms, one_row_ms))
        self.planner = planner
        folder = planner.settings.checkpoint
        self.ways = [
            Modelled(name, make_decoder(planner.networks, planner.rules, name, folder, planner.tokenizer, costs))
            for name in drafts
        ]

    def decode(self, observation: Observation) -> None:
        for way in self.ways:
            self.planner.decoder = way.decoder
            state = self.planner.perceive(observation, {}, way.decoder.carried())
            reasoning = way.decoder.decode(state)
            way.tokens += len(reasoning.token_ids)
            way.target_passes += reasoning.target_passes
            way.reasonings += 1
            if way.draft != NO_DRAFT:
                way.proposals = dict(way.decoder.draft.times_asked)

    def document(self) -> dict:
        return {"assumes": ASSUMED, "methods": [way.row() for way in self.ways]}
