"""Action-aware RL on a distilled draft: GRPO with an action reward and an anchor on canonical positions. Resumable.

A step takes states in the target's own answers, K rollouts of the draft from each, their rewards (`aarl_reward.py`)
and a few updates of the objective (`aarl_objective.py`). Everything is drawn from (seed, step) alone, and known
rewards are kept beside the state, so a run that was killed and resumed ends with the figures of an unbroken one.
"""

import copy
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor

from specdrive_ros.target.config import require
from specdrive_ros.training.aarl_objective import (
    ANCHORS,
    anchor_set,
    anchored_divergence,
    canonical,
    clipped_surrogate,
    divergence,
    group_advantages,
)
from specdrive_ros.training.aarl_policy import DraftPolicy, States, passes_of, run_lengths
from specdrive_ros.training.aarl_reward import Rewards, RewardScale
from specdrive_ros.training.dflash_training import draw_anchors
from specdrive_ros.training.draft_features import DraftFeatures
from specdrive_ros.training.state import cosine_rate, load_state, save_state
from specdrive_ros.training.target_training import descend

STREAM = 5  # of random numbers, separate from those of other training runs
CURVE = "curve.jsonl"
COUNTS = ("steps", "samples", "states", "ahead", "pool", "updates", "evaluate_every", "evaluated", "save_every")


@dataclass(frozen=True)
class AarlTraining:
    """samples, states, rollouts: a step draws `samples` x `states` groups of `rollouts`
    pool:                samples drawn from, spread over all; limited because each new one costs a prefill
    ahead:               tokens per rollout: a block minus its first token
    updates:             of the objective, per step
    clip_low, clip_high: how far the ratio may leave 1; anchor_weight: of the KL term
    evaluated:           validation samples per evaluation
    """

    anchor: str = "static"
    steps: int = 150
    samples: int = 8
    states: int = 2
    rollouts: int = 8
    ahead: int = 15
    pool: int = 512
    updates: int = 2
    learning_rate: float = 1e-4
    warmup: int = 10
    clip_low: float = 0.2
    clip_high: float = 0.28
    anchor_weight: float = 0.1
    reward: RewardScale = RewardScale()
    evaluate_every: int = 25
    evaluated: int = 128
    save_every: int = 25
    seed: int = 0

    def __post_init__(self):
        require(self.anchor in ANCHORS, "train aarl anchor", f"must be one of {', '.join(ANCHORS)}", self.anchor)
        require(self.rollouts >= 2, "train aarl rollouts", "must be 2 or more to make a group", self.rollouts)
        for name in COUNTS:
            require(getattr(self, name) >= 1, f"train aarl {name}", "must be at least 1", getattr(self, name))


@dataclass(frozen=True)
class Group:
    """What a step learns from.

    batch:      of `DraftFeatures`
    tokens:     [B, A, K, n] sampled; real: [B, A, K, n] bool, those that count
    advantages: [B, A, K]
    reference:  [B, A, n, W] log-probabilities of the reference along the target's own text
    rewards:    [groups, K] of the real states
    """

    batch: dict[str, Tensor]
    states: States
    tokens: Tensor
    real: Tensor
    advantages: Tensor
    reference: Tensor
    rewards: np.ndarray


class AarlStage:
    """A policy, the reference (the policy as it began), and the source of rewards."""

    def __init__(self, policy: DraftPolicy, rewards: Rewards, training: AarlTraining):
        self.policy, self.rewards, self.training = policy, rewards, training
        self.reference = copy.deepcopy(policy, {id(policy.target): policy.target}).requires_grad_(False).eval()

    def draw(self, features: DraftFeatures, step: int) -> Group:
        """Samples the rollouts of this step and computes their advantages."""
        settings = self.training
        rng = np.random.default_rng([settings.seed, step, STREAM])
        pool = np.linspace(0, len(features) - 1, min(settings.pool, len(features))).astype(int)
        numbers = pool[rng.integers(len(pool), size=settings.samples)]
        batch = features.batch(numbers)
        anchors, keep = (
            torch.from_numpy(part) for part in draw_anchors(batch["loss_mask"].numpy(), settings.states, rng)
        )
        states = States.at(batch["token_ids"], batch["loss_mask"], anchors, keep, settings.ahead)
        generator = torch.Generator().manual_seed(int(rng.integers(2**62)))
        with torch.no_grad():
            tokens = self.policy.sample(batch, states, settings.rollouts, generator)
            reference = self.reference(batch, states, states.tokens[:, :, None])[:, :, 0]
        rewards = self._rewards(numbers, batch, states, tokens)
        real = states.real[:, :, None].expand_as(tokens)
        return Group(batch, states, tokens, real, group_advantages(rewards), reference, rewards[keep].numpy())

    def _rewards(self, numbers: np.ndarray, batch: dict[str, Tensor], states: States, tokens: Tensor) -> Tensor:
        """[B, A, K] rewards; 0 for states that are padding."""
        asked, places = [], []
        for row, number in enumerate(numbers.tolist()):
            ids, written = batch["token_ids"][row], batch["loss_mask"][row].bool()
            answer, first = tuple(ids[written].tolist()), int(written.int().argmax())
            for state in torch.nonzero(states.keep[row]).flatten().tolist():
                newest, ahead = int(states.anchors[row, state]) - first, int(states.real[row, state].sum())
                for rollout, drawn in enumerate(tokens[row, state, :, :ahead].tolist()):
                    asked.append((number, answer, newest, drawn))
                    places.append((row, state, rollout))
        rewards = torch.zeros(tokens.shape[:3])
        rewards[tuple(torch.tensor(places).T)] = torch.from_numpy(self.rewards.of(asked)).float()
        return rewards

    def losses(self, group: Group, old: Tensor | None) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """The loss, log-probabilities [B, A, K, n] of the sampled tokens, and figures to log. `old`: log-probabilities
        under the policy that sampled them; None if that is the current one."""
        settings, policy, states = self.training, self.policy, group.states
        asked = torch.cat([group.tokens, states.tokens[:, :, None]], 2)  # the target's own text after the rollouts
        log_probs = policy(group.batch, states, asked)
        chosen = policy.word_places[group.tokens].clamp(min=0)[..., None]
        new = log_probs[:, :, :-1].gather(-1, chosen)[..., 0]
        gain = clipped_surrogate(
            new,
            new.detach() if old is None else old,
            group.advantages,
            group.real,
            settings.clip_low,
            settings.clip_high,
        )
        own, places = log_probs[:, :, -1], policy.places(states)
        held = anchor_set(settings.anchor, own, group.reference, places)
        anchor = anchored_divergence(own, group.reference, held)
        count = states.real.sum().clamp(min=1)
        figures = {
            "loss": gain + settings.anchor_weight * anchor,
            "surrogate": gain,
            "kl": anchor,
            "anchor_set": held.sum() / count,
            "agreement": canonical(own, places).sum() / count,
        }
        return figures["loss"], new.detach(), {name: value.detach() for name, value in figures.items()}


@torch.no_grad()
def evaluate_policy(stage: AarlStage, features: DraftFeatures, count: int, batch: int = 16) -> dict[str, float]:
    """Held-out figures over every position of the answers, with proposals of `ahead` tokens.

    accepted_length  tokens per pass of greedy decoding with this draft as a chain, exact
    anchor_set       positions that the anchor holds, as a share of all; anchor_positions: their number
    agreement        share of positions where the draft's first choice is the target's token
    first_word       the same for the first token ahead only
    kl               nats from the reference over the held positions; kl_all: over all
    """
    sums: dict[str, float] = dict.fromkeys(
        ("tokens", "passes", "held", "agreeing", "all", "kl", "kl_all", "right", "first"), 0.0
    )
    chosen = np.linspace(0, len(features) - 1, min(count, len(features))).astype(int)
    for numbers in np.array_split(chosen, max(1, len(chosen) // batch)):
        for name, value in _evaluated(stage, features.batch(numbers)).items():
            sums[name] += value
    return {
        "accepted_length": sums["tokens"] / sums["passes"],
        "anchor_set": sums["held"] / sums["all"],
        "anchor_positions": sums["held"],
        "agreement": sums["agreeing"] / sums["all"],
        "first_word": sums["right"] / sums["first"],
        "kl": sums["kl"] / max(sums["held"], 1.0),
        "kl_all": sums["kl_all"] / sums["all"],
    }


def _evaluated(stage: AarlStage, batch: dict[str, Tensor]) -> dict[str, float]:
    """Sums over a batch, with a state at every token of the answers."""
    states = every_state(batch, stage.training.ahead)
    own, reference = (
        each(batch, states, states.tokens[:, :, None])[:, :, 0] for each in (stage.policy, stage.reference)
    )
    places = stage.policy.places(states)
    held, apart = anchor_set(stage.training.anchor, own, reference, places), divergence(own, reference)
    right = canonical(own, places)
    runs, lengths = run_lengths(right).numpy(), states.keep.sum(1).numpy()
    return {
        "tokens": float(lengths.sum()),
        "passes": float(sum(passes_of(row[:length]) for row, length in zip(runs, lengths))),
        "held": float(held.sum()),
        "agreeing": float(right.sum()),
        "all": float(states.real.sum()),
        "kl": float((apart * held).sum()),
        "kl_all": float((apart * states.real).sum()),
        "right": float(right[..., 0].sum()),
        "first": float(states.real[..., 0].sum()),
    }


def every_state(batch: dict[str, Tensor], ahead: int) -> States:
    """A state at each token of the answers, in order."""
    written = batch["loss_mask"].bool()
    longest = int(written.sum(1).max())
    anchors = written.int().argmax(1)[:, None] + torch.arange(longest)
    keep = torch.arange(longest) < written.sum(1, keepdim=True)
    return States.at(batch["token_ids"], batch["loss_mask"], torch.where(keep, anchors, 0), keep, ahead)


def train_aarl(stage: AarlStage, train: DraftFeatures, validation: DraftFeatures, folder: Path, bar, log) -> list[dict]:
    """Trains to the end, resuming from `folder`. Returns the curve: one record per evaluation, the first before any
    step."""
    settings = stage.training
    accelerator = Accelerator(cpu=not torch.cuda.is_available())
    optimizer = torch.optim.AdamW(
        stage.policy.parameters(), lr=settings.learning_rate, weight_decay=0.0, betas=(0.9, 0.95)
    )
    state_path, rewards_path = folder / "state.safetensors", folder / "rewards.json"
    step, record = load_state(state_path, stage.policy, optimizer)
    if step:
        stage.rewards.load(rewards_path)
    optimizer = accelerator.prepare(optimizer)
    curve = record.get("curve") or [{"step": 0, **evaluate_policy(stage, validation, settings.evaluated)}]
    bar.advance(step)
    while step < settings.steps:
        figures = aarl_step(stage, optimizer, accelerator, train, step)
        step += 1
        bar.advance(1, f"reward {figures['reward']:.3f} kl {figures['kl']:.3f} set {figures['anchor_set']:.2f}")
        _log(log, "train", figures, step)
        if step % settings.evaluate_every == 0 or step == settings.steps:
            curve.append({"step": step, "train": figures, **evaluate_policy(stage, validation, settings.evaluated)})
            _log(log, "validation", {name: curve[-1][name] for name in curve[0] if name != "step"}, step)
        if step % settings.save_every == 0 or step == settings.steps:
            stage.rewards.save(rewards_path)
            save_state(state_path, stage.policy, optimizer, step, {"curve": curve})
            (folder / CURVE).write_text("".join(json.dumps(each) + "\n" for each in curve), encoding="utf-8")
    return curve


def aarl_step(
    stage: AarlStage, optimizer, accelerator: Accelerator, train: DraftFeatures, step: int
) -> dict[str, float]:
    settings, asked = stage.training, stage.rewards.asked
    group, old, figures = stage.draw(train, step), None, {}
    for param_group in optimizer.param_groups:
        param_group["lr"] = cosine_rate(step, settings.steps, settings.learning_rate, settings.warmup)
    for _ in range(settings.updates):
        loss, new, figures = stage.losses(group, old)
        old = new if old is None else old
        descend(accelerator, stage.policy, optimizer, loss)
    return {name: float(value) for name, value in figures.items()} | {
        "reward": float(group.rewards.mean()),
        "reward_spread": float(group.rewards.std(-1).mean()),
        "floored": float((group.rewards == settings.reward.floor).mean()),
        "plans": float(stage.rewards.asked - asked),
        "texts_known": float(len(stage.rewards.known)),
    }


def _log(log, kind: str, figures: dict[str, float], step: int) -> None:
    for name, value in figures.items():
        log.add_scalar(f"{kind}/{name}", value, step)
