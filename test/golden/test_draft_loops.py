"""Our loop with public drafts on their target: the public loops' tokens and, round for round, their accepted drafts."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the train extra")

from specdrive_ros.decoding.autoregressive import AutoregressiveDecoder  # noqa: E402
from specdrive_ros.decoding.rules import ReasoningRules  # noqa: E402
from specdrive_ros.decoding.speculative import SpeculativeDecoder  # noqa: E402
from specdrive_ros.decoding.state import DecodingState  # noqa: E402
from specdrive_ros.decoding.token_tree import TokenTree  # noqa: E402
from specdrive_ros.draft.company import Company, PassCosts  # noqa: E402
from specdrive_ros.draft.dflash import DFlashDraft  # noqa: E402
from specdrive_ros.draft.eagle3 import Eagle3Draft  # noqa: E402
from specdrive_ros.draft.network_draft import NetworkDraft  # noqa: E402
from specdrive_ros.draft.taps import TapSelection  # noqa: E402
from specdrive_ros.evaluation.golden_drafts_reference import DraftReference  # noqa: E402
from specdrive_ros.runtime.networks import KeyValueCache, TextOutput  # noqa: E402
from specdrive_ros.runtime.torch_drafts import TorchDFlash, TorchEagle3  # noqa: E402
from specdrive_ros.target.rope import text_positions  # noqa: E402

GOLDEN = Path(__file__).parent / "drafts_A"
EOS, UNUSED, LIMIT = 2, 191, 60
RULES = ReasoningRules(np.zeros(192, bool), cot_end=UNUSED, future_start=EOS, end_of_turn=-1, max_new_tokens=LIMIT)


class ReferenceTarget:
    """The references' target as the loop wants it. Its cache holds ids and positions, and every pass begins anew."""

    chooses = False

    def __init__(self, reference: DraftReference, taps: tuple[int, ...]):
        self.reference, self.taps, self.config = reference, taps, SimpleNamespace()

    def embed(self, token_ids):
        return np.asarray(token_ids, np.float32)[:, None]

    def extend(
        self, embeddings, position_ids, cache, *, mask=None, deepstack=None, logit_rows=None, forbidden=None, taps=True
    ):
        tokens, cached = len(embeddings), cache.length
        new = np.stack([embeddings[:, 0], position_ids[0].astype(np.float32)], -1)
        cache.append(np.broadcast_to(new[None, :, None, None], (1, tokens, 2, 1, 2)))
        seen = np.tri(cached + tokens, dtype=bool)
        if mask is not None:
            seen[cached:] = mask
        ids, positions = cache.rows[0, : cached + tokens, 0, 0].astype(np.int64).T
        logits, states = self.reference.run_target(ids[None], seen[None], positions[None])
        rows = np.arange(tokens) if logit_rows is None else logit_rows
        taps = np.concatenate([states[tap][0, cached:].numpy() for tap in self.taps], axis=-1)
        return TextOutput(logits[0, cached:].numpy()[rows], taps)

    def state(self, prompt) -> DecodingState:
        cache, positions = KeyValueCache(1, 1, 2, len(prompt) + 2 * LIMIT), text_positions(0, len(prompt), 0)
        output = self.extend(self.embed(prompt), positions, cache)
        return DecodingState(cache, output.logits[-1], output.taps, 0, np.array(prompt), positions)


class Counting:
    """A draft, and how many of its words the target took in each round."""

    def __init__(self, begin, propose):
        self.name, self._begin, self._propose, self.written = "counting", begin, propose, []

    def begin(self):
        self._begin()
        self.written = []

    def propose(self, context, nodes):
        self.written.append(len(context.written))
        return self._propose(context, nodes)

    @property
    def accepted(self):
        return (np.diff(self.written) - 1).tolist()


@pytest.fixture(scope="module")
def reference():
    return DraftReference(GOLDEN)


@pytest.fixture(scope="module")
def runs():
    """`runs("eagle3")` -> that file."""
    return lambda name: json.loads((GOLDEN / "e2e" / f"{name}.json").read_text())


def eagle3(reference, depth, top_k):
    return Eagle3Draft(TorchEagle3(reference.draft("eagle3/draft_fit")), reference.embed, depth=depth, top_k=top_k)


def dflash(reference):
    return DFlashDraft(TorchDFlash(reference.draft("dflash/draft_fit"), reference.head.detach().numpy()),
                       reference.embed)


def as_chain(draft: DFlashDraft):
    """The published proposal: the likeliest word of each slot."""
    return lambda context, nodes: TokenTree(*draft.propose(context, nodes))


def check(decoder, counting, target, prompt, tokens, accepted) -> None:
    """Up to where the public loop stopped by its limit; ours goes on to the end of the text or its own. The public one
    may run a round behind the end of the text, and keep its words."""
    tokens = tokens[: tokens.index(EOS) + 1] if EOS in tokens else tokens
    written = decoder.decode(target.state(prompt)).token_ids
    assert list(written[: len(tokens)]) == tokens
    rounds = min(len(accepted) - 1, len(counting.accepted))
    assert rounds >= len(accepted) - 2 and counting.accepted[:rounds] == accepted[:rounds]


@pytest.mark.parametrize("shape", ["chain7", "tree_16_4_4", "tree_60_7_10"])
def test_eagle3_takes_the_rounds_of_the_public_loop(reference, runs, shape):
    given = runs("eagle3")
    setting = given["settings"][shape]
    draft = eagle3(reference, setting["depth"], setting["top_k"])
    target, inner = ReferenceTarget(reference, draft.config.tap_layers), NetworkDraft("eagle3-flat", draft)
    counting = Counting(inner.begin, inner.propose)
    decoder = SpeculativeDecoder(target, RULES, counting, nodes=setting["total_token"] - 1)
    for run in setting["runs"][:3]:
        accepted = [each["accept_length"] for each in run["rounds"]]
        check(decoder, counting, target, given["prompts"][run["prompt"]]["prompt_ids"], run["tokens"], accepted)
    assert max(accepted) > 1


def test_dflash_takes_the_rounds_of_the_public_loop(reference, runs):
    given, prompts = runs("dflash"), runs("eagle3")["prompts"]
    draft = dflash(reference)
    target = ReferenceTarget(reference, draft.config.tap_layers)

    counting = Counting(draft.begin, as_chain(draft))
    decoder = SpeculativeDecoder(target, RULES, counting, nodes=given["block_size"] - 1)
    for run in given["runs"][:3]:
        accepted = [each["accepted_drafts"] for each in run["rounds"]]
        check(decoder, counting, target, prompts[run["prompt"]]["prompt_ids"], run["tokens"], accepted)
    assert max(accepted) > 1


def test_a_tree_of_slots_and_a_company_need_fewer_passes_for_the_same_text(reference, runs):
    """A block as a tree instead of a chain, and two networks together."""
    block, ahead = dflash(reference), eagle3(reference, 6, 1)
    taps = tuple(sorted({*block.config.tap_layers, *ahead.config.tap_layers}))
    for draft in (block, ahead):
        draft.select = TapSelection(draft.config.tap_layers, taps, 64, "test")
    target, free = ReferenceTarget(reference, taps), PassCosts((1, 128), (1.0, 1.0))
    passes = dict.fromkeys(("chain", "tree", "company"), 0)
    for prompt in runs("eagle3")["prompts"][:3]:
        expected = AutoregressiveDecoder(target, RULES).decode(target.state(prompt["prompt_ids"])).token_ids
        ways = {
            "chain": Counting(block.begin, as_chain(block)),
            "tree": Company([NetworkDraft("dflash-flat", block)], free),
            "company": Company([NetworkDraft("eagle3-flat", ahead), NetworkDraft("dflash-flat", block)], free),
        }
        for name, draft in ways.items():
            reasoning = SpeculativeDecoder(target, RULES, draft, nodes=40).decode(target.state(prompt["prompt_ids"]))
            assert reasoning.token_ids == expected and not reasoning.draft_faults
            passes[name] += reasoning.target_passes
    assert passes["company"] <= passes["tree"] < passes["chain"]
