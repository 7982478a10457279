"""A draft as a policy agrees with the draft as it proposes, on every runtime's own path through the network."""

import numpy as np
import pytest
import torch

from specdrive_ros.decoding.autoregressive import AutoregressiveDecoder
from specdrive_ros.decoding.speculative import SpeculativeDecoder
from specdrive_ros.decoding.token_tree import TokenTree
from specdrive_ros.draft.checkpoint import new_draft
from specdrive_ros.draft.config import DFlashConfig, Eagle3Config
from specdrive_ros.draft.dflash import DFlashDraft
from specdrive_ros.draft.draft import DraftContext
from specdrive_ros.draft.eagle3 import Eagle3Draft
from specdrive_ros.runtime.torch_drafts import TorchDFlash, TorchEagle3
from specdrive_ros.training.aarl_policy import States, make_policy, passes_of, run_lengths
from specdrive_ros.training.aarl_training import every_state
from specdrive_ros.training.dflash_training import DFlashStage
from specdrive_ros.training.eagle3_training import Eagle3Stage
from specdrive_ros.training.frozen_target import FrozenTarget

SIZE, WORDS, PROMPT, TAPS = 16, 24, 6, (1, 2, 3)
SIZES = dict(
    hidden_size=SIZE,
    intermediate_size=24,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    vocab_size=WORDS,
    target_layers=4,
    tap_layers=TAPS,
    rope_theta=1e4,
)


def draft_of(kind: str, rope: str):
    more = dict(SIZES, rope=rope, mrope_section=(2, 1, 1) if rope == "mirror" else None)
    torch.manual_seed(3)
    if kind == "dflash":
        return new_draft(DFlashConfig(**more, num_hidden_layers=2, block_size=6, mask_token_id=1)).eval()
    draft = new_draft(Eagle3Config(**more, num_hidden_layers=1, draft_vocab_size=12))
    draft.set_vocabulary(np.arange(2, 24, 2)[:12].tolist() + [23])
    return draft.eval()


@pytest.fixture
def target():
    generator = torch.Generator().manual_seed(0)
    embedding, head = (torch.randn(WORDS, SIZE, generator=generator) for _ in range(2))
    return FrozenTarget(embedding, torch.ones(SIZE), head, 1e-6, np.isin(np.arange(WORDS), (0, 1)))


@pytest.fixture
def batch():
    """Two answers of different lengths; the prompt's middle rows stand as those of an image do."""
    generator = torch.Generator().manual_seed(1)
    sizes = (PROMPT + 9, PROMPT + 6)
    ids = torch.randint(2, WORDS, (2, max(sizes)), generator=generator)
    real = torch.arange(max(sizes)) < torch.tensor(sizes)[:, None]
    image = torch.tensor([[0, 1, 1, 1, 3, 4], [0, 1, 1, 2, 3, 4], [0, 1, 2, 1, 3, 4]])
    positions = torch.cat([image, torch.arange(5, 14).expand(3, -1)], 1)[:, None].expand(3, 2, -1) * real
    return {
        "token_ids": ids * real,
        "loss_mask": (real & (torch.arange(max(sizes)) >= PROMPT)).to(torch.uint8),
        "visible": real,
        "taps": torch.randn(2, max(sizes), 3 * SIZE, generator=generator) * real[..., None],
        "positions": positions,
    }


def proposed(draft, target, batch, row: int, newest: int, nodes: int):
    """What the draft proposes on the driving path behind token `newest` of a sample."""
    embed = lambda ids: target.embed(np.asarray(ids)).numpy()  # noqa: E731
    if draft.config.kind == "eagle3":
        runner = Eagle3Draft(TorchEagle3(draft), embed, depth=nodes - 1, top_k=1)
    else:
        runner = DFlashDraft(TorchDFlash(draft, target.head.numpy(), np.flatnonzero(~target.forbidden.numpy())), embed)
    ids, positions = batch["token_ids"][row].numpy(), batch["positions"][:, row].numpy()
    runner.begin()
    return runner.propose(
        DraftContext(
            ids[:PROMPT],
            tuple(ids[PROMPT : newest + 1].tolist()),
            int(ids[newest]),
            batch["taps"][row, :newest].numpy(),
            positions[:, :newest],
            int(positions[0, newest]) - newest,
        ),
        nodes,
    )


@pytest.mark.parametrize("rope", ["flat", "mirror"])
@pytest.mark.parametrize("kind", ["eagle3", "dflash"])
def test_log_probabilities_are_those_of_the_driving_path(kind, rope, target, batch):
    draft, ahead = draft_of(kind, rope), 5
    policy = make_policy(draft, target)
    anchors = torch.tensor([[PROMPT, PROMPT + 3], [PROMPT + 2, PROMPT]])
    states = States.at(batch["token_ids"], batch["loss_mask"], anchors, torch.ones(2, 2, dtype=torch.bool), ahead)
    chains = [[proposed(draft, target, batch, row, int(anchor), ahead) for anchor in anchors[row]] for row in range(2)]
    tokens = torch.tensor(np.array([[chain[0] for chain in row] for row in chains]))[:, :, None].repeat(1, 1, 2, 1)
    tokens[:, :, 1] = states.tokens.clamp(min=2)  # another rollout beside it changes nothing
    tokens[:, :, 1] = policy.word_ids[policy.word_places[tokens[:, :, 1]].clamp(min=0)]
    with torch.no_grad():
        log_probs = policy(batch, states, tokens)
    chosen = log_probs.gather(-1, policy.word_places[tokens][..., None])[..., 0]
    paths = torch.tensor(np.array([[chain[2] for chain in row] for row in chains]))
    assert torch.allclose(chosen[:, :, 0].cumsum(-1).double(), paths.double(), atol=1e-4)
    assert torch.equal(log_probs[:, :, 0].argmax(-1), policy.word_places[tokens[:, :, 0]])


@pytest.mark.parametrize("kind", ["eagle3", "dflash"])
def test_drawn_tokens_have_the_policys_frequencies(kind, target, batch):
    """3,000 rollouts of two tokens from one state: frequencies within four standard errors of the probabilities."""
    policy = make_policy(draft_of(kind, "flat"), target)
    states = States.at(
        batch["token_ids"],
        batch["loss_mask"],
        torch.tensor([[PROMPT + 1], [PROMPT]]),
        torch.ones(2, 1, dtype=torch.bool),
        2,
    )
    with torch.no_grad():
        drawn = policy.sample(batch, states, 3000, torch.Generator().manual_seed(0))
        probabilities = policy(batch, states, drawn[:, :, :1])[:, 0, 0, 0].exp()
    counts = torch.stack([(drawn[:, 0, :, 0] == word).float().mean(-1) for word in policy.word_ids], -1)
    error = (probabilities * (1 - probabilities) / 3000).sqrt()
    assert ((counts - probabilities).abs() <= 4 * error + 1e-6).all()
    assert not torch.equal(drawn[..., 0], drawn[..., 1])


@pytest.mark.parametrize("rope", ["flat", "mirror"])
@pytest.mark.parametrize("kind", ["eagle3", "dflash"])
def test_the_trainings_count_what_a_pass_accepts(kind, rope, target, batch):
    """Words right ahead behind every token, by the training's own passes and by the policy's; half of the draft's first
    choices are made true beforehand, so that there is something to count."""
    draft, ahead = draft_of(kind, rope), 5
    policy = make_policy(draft, target)
    stage = Eagle3Stage(draft, target) if kind == "eagle3" else DFlashStage(draft, target, policy.word_ids.numpy(), 4)
    with torch.no_grad():
        for place in range(PROMPT + 1, PROMPT + 9, 2):
            anchors, keep = torch.full((2, 1), place - 1), torch.ones(2, 1, dtype=torch.bool)
            states = States.at(batch["token_ids"], batch["loss_mask"], anchors, keep, 1)
            said = policy.word_ids[policy(batch, states, states.tokens[:, :, None])[:, 0, 0, 0].argmax(-1)]
            batch["token_ids"][:, place] = torch.where(batch["visible"][:, place], said, 0)
        states = every_state(batch, ahead)
        expected = run_lengths(policy.first_choices(batch, states))
        assert torch.equal(stage.runs(batch, ahead) * states.keep, expected) and int(expected.sum()) > 3
        mean = expected[states.real[..., 0]].float().mean()
        if kind == "eagle3":
            stage.steps = ahead
            assert float(stage(batch | {"final": torch.randn(2, 15, SIZE)})["words_ahead"]) == pytest.approx(float(mean))


def test_states_end_with_the_answer(batch):
    states = every_state(batch, 3)
    assert states.keep.sum(1).tolist() == [9, 6]
    assert states.anchors[0].tolist() == list(range(PROMPT, PROMPT + 9))
    assert states.real[1, 4].tolist() == [True, False, False] and states.real[1, 5].tolist() == [False] * 3
    assert states.tokens[0, 0].tolist() == batch["token_ids"][0, PROMPT + 1 : PROMPT + 4].tolist()


def test_runs_are_leading_tokens():
    assert run_lengths(torch.tensor([[True, True, False, True], [False, True, True, True]])).tolist() == [2, 0]


class Recorded:
    """Proposes the true continuation up to a length that depends on the place, then a wrong word."""

    name = "recorded"

    def __init__(self, text, runs):
        self.text, self.runs = text, runs

    def begin(self):
        pass

    def propose(self, context, nodes):
        newest = len(context.written) - 1
        last = newest + 1 + self.runs[newest]
        wrong = [(self.text[last] + 1) % 8] if last < len(self.text) else [0]
        return TokenTree.chain([*self.text[newest + 1 : last], *wrong][:nodes])


def test_passes_are_those_of_the_decoding_loop(toy):
    """Over many texts and many drafts: the count from run lengths is the loop's own."""
    counted = 0
    for seed in range(60):
        networks, state = toy(seed)
        reasoning = AutoregressiveDecoder(networks, toy.rules).decode(state())
        if reasoning.truncated:
            continue
        text, rng = reasoning.token_ids, np.random.default_rng(seed)
        runs = np.minimum(rng.integers(0, 5, len(text)), len(text) - 1 - np.arange(len(text)))
        decoder = SpeculativeDecoder(networks, toy.rules, Recorded(text, runs), nodes=7)
        speculative = decoder.decode(state())
        assert speculative.token_ids == text
        assert passes_of(runs) == speculative.target_passes, (runs, text)
        counted += 1
    assert counted >= 10


@pytest.fixture
def toy():
    """`toy(seed)` -> a target whose next word follows from the newest and its place, and a maker of its states."""
    from specdrive_ros.decoding.rules import ReasoningRules
    from specdrive_ros.decoding.state import DecodingState
    from specdrive_ros.runtime.networks import KeyValueCache, TextOutput

    class Table:
        chooses = False

        def __init__(self, seed):
            self.table = np.random.default_rng(seed).standard_normal((64, 12, 12)).astype(np.float32)

        def embed(self, token_ids):
            return np.asarray(token_ids, np.float32)[:, None]

        def extend(
            self, embeddings, position_ids, cache, *, mask=None, deepstack=None, logit_rows=None, forbidden=None,
            taps=True,
        ):  # fmt: skip
            cache.append(np.zeros((1, len(embeddings), 2, 1, 1), np.float32))
            logits = self.table[position_ids[0], embeddings[:, 0].astype(int)].copy()
            logits[:, 9] = np.where(embeddings[:, 0] == 8, 9.0, -9.0)  # the plan begins behind the end of the words
            return TextOutput(logits[slice(None) if logit_rows is None else logit_rows], embeddings)

    class Maker:
        rules = ReasoningRules(np.arange(12) == 11, 8, 9, 10, 40)

        def __call__(self, seed):
            table = Table(seed)

            def state():
                cache = KeyValueCache(1, 1, 1, 60)
                output = table.extend(table.embed([1, 2, 3]), np.arange(3)[None].repeat(3, 0), cache)
                return DecodingState(
                    cache, output.logits[-1], output.taps, 0, np.array([1, 2, 3]), np.arange(3)[None].repeat(3, 0)
                )

            return table, state

    return Maker()
