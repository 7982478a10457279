"""Trains one draft for one target: caches the target's states on disk, then trains EAGLE-3 or DFlash on them.
Resumable.

Takes minutes with mini on two cores. A draft's layers have the size of the target's; two runs of one kind differ only
in the rotary setting. Called again, a run resumes where it stopped.
"""

import json
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from accelerate import PartialState

from specdrive_ros.decoding.rules import ReasoningRules
from specdrive_ros.draft.checkpoint import new_draft, save_draft
from specdrive_ros.draft.config import DFlashConfig, Eagle3Config
from specdrive_ros.draft.taps import eagle3_taps
from specdrive_ros.draft.target_identity import fingerprint
from specdrive_ros.errors import InputError
from specdrive_ros.target.checkpoint import load_target
from specdrive_ros.target.config import TargetConfig, require
from specdrive_ros.target.tokens import TargetTokenizer
from specdrive_ros.training.aarl_policy import passes_of
from specdrive_ros.training.dflash_training import DFlashStage
from specdrive_ros.training.draft_features import (
    DraftFeatures,
    FeatureSettings,
    FeatureWriter,
    chosen_samples,
    feature_record,
    known_features,
)
from specdrive_ros.training.eagle3_training import Eagle3Stage
from specdrive_ros.training.frame_features import FrameFeatures, device_of, frame_patches
from specdrive_ros.training.frozen_target import FrozenTarget
from specdrive_ros.training.muon import optimizer_of
from specdrive_ros.training.run_record import check_run_record
from specdrive_ros.training.samples import SampleSet
from specdrive_ros.training.phrasebook import closed_ids
from specdrive_ros.training.scenes import Shard, open_shards
from specdrive_ros.training.state import cosine_rate, load_state, save_state
from specdrive_ros.training.target_training import descend, new_accelerator
from specdrive_ros.training.warm_start import warm_start_draft

KINDS = ("eagle3", "dflash")
ORDER = 11  # random stream of the sample order, separate from that of the steps
MASK_TOKEN = "<|fim_pad|>"  # known to Qwen's tokenizer and never in a prompt or answer; no `<iN>` is free for this


@dataclass(frozen=True)
class DraftTraining:
    """layers and anchors apply to DFlash only; block_size is DFlash's block, and EAGLE-3's chain; rope_theta is the
    target's unless given.

    ahead:     steps of EAGLE-3's training-time test; None: one for each token of a block after its first, because a
               draft is run that far ahead and a step never trained is a guess (7 are published, for trees of
               depth 8)
    evaluated: validation samples per evaluation, spread over all
    """

    kind: str
    rope: str = "flat"
    steps: int = 1500
    batch: int = 8
    learning_rate: float = 5e-3
    warmup: int = 50
    weight_decay: float = 0.01
    layers: int = 2
    block_size: int = 16
    anchors: int = 24
    ahead: int | None = None
    rope_theta: float | None = None
    evaluate_every: int = 500
    evaluated: int = 256
    save_every: int = 100
    seed: int = 0

    def __post_init__(self):
        require(self.kind in KINDS, "train draft kind", f"must be one of {', '.join(KINDS)}", self.kind)
        require(self.block_size >= 2, "train draft block", "must be at least 2", self.block_size)
        require(self.ahead is None or self.ahead >= 1, "train draft ahead", "must be at least 1", self.ahead)

    @property
    def words_ahead(self) -> int:
        """Number of tokens proposed per pass."""
        return self.block_size - 1


def draft_config(config: TargetConfig, training: DraftTraining, taps: tuple[int, ...], words: int, mask_token_id: int,
                 target: str) -> Eagle3Config | DFlashConfig:
    """A draft whose layers have the target's sizes."""
    text = config.text
    common = {
        "hidden_size": text.hidden_size, "intermediate_size": text.intermediate_size,
        "num_attention_heads": text.num_attention_heads, "num_key_value_heads": text.num_key_value_heads,
        "head_dim": text.head_dim, "vocab_size": text.vocab_size, "target_layers": text.num_hidden_layers,
        "tap_layers": taps, "rms_norm_eps": text.rms_norm_eps, "rope": training.rope, "target": target,
        "rope_theta": training.rope_theta or text.rope_theta,
        "mrope_section": text.mrope_section if training.rope == "mirror" else None,
    }  # fmt: skip
    if training.kind == "eagle3":
        return Eagle3Config(**common, num_hidden_layers=1, draft_vocab_size=words)
    return DFlashConfig(
        **common, num_hidden_layers=training.layers, block_size=training.block_size, mask_token_id=mask_token_id
    )


def mask_token_id(tokenizer: TargetTokenizer) -> int:
    found = tokenizer.tokenizer.token_to_id(MASK_TOKEN)
    if found is None:
        raise InputError(f"the target's tokenizer has no {MASK_TOKEN}, which DFlash's blocks are filled with")
    return found


FREE_TO_CHANGE = ("steps", "evaluate_every", "evaluated", "save_every")  # when a run is resumed


class DraftRun:
    """target: checkpoint folder; data: scenes; features: where states are cached; out: the finished draft; run: folder
    of the run's state, `out/run` if None; start_from: folder of a draft whose weights it begins with, not random
    ones."""

    def __init__(self, target: Path, data: Path, features: Path, out: Path, training: DraftTraining,
                 settings: FeatureSettings | None, progress, log, run: Path | None = None,
                 start_from: Path | None = None):
        self.run_folder = run or out / "run"
        self.config = TargetConfig.load(target)
        self.settings = settings or FeatureSettings(taps=eagle3_taps(self.config.text.num_hidden_layers))
        self.training, self.features, self.out = training, features, out
        self.progress, self.log, self.start_from = progress, log, start_from
        self.network, self.tokenizer = load_target(target).requires_grad_(False), TargetTokenizer.load(self.config)
        self.data, self.corpus = data, set()  # corpus: token ids that occur in the labels
        self.rules = ReasoningRules.of(self.tokenizer, self.config.text.vocab_size, self.settings.max_new_tokens)

    def run(self) -> dict:
        with PartialState().main_process_first():  # the others find record and states on disk
            self._check_record()
            train, validation = (self._features(split) for split in ("train", "validation"))
        target = FrozenTarget.of(self.network, self.rules.forbidden)
        stage = self._stage(target, train)
        state = self.run_folder / "state.safetensors"
        with self.progress(f"{self.training.kind} {self.training.rope}", self.training.steps) as bar:
            record = train_draft(stage, train, validation, self.training, state, bar, self.log)
        if PartialState().is_main_process:
            save_draft(stage.draft, self.out)
        result = {"draft": asdict(self.training), "features": train.record, "validation": record,
                  "parameters": sum(p.numel() for p in stage.draft.parameters()), "torch": torch.__version__}  # fmt: skip
        if PartialState().is_main_process:
            (self.run_folder / "training.json").write_text(json.dumps(result, indent=1), encoding="utf-8")
        return result

    def _check_record(self) -> None:
        """A run continues as it began: another target or other settings need another run."""
        record = {**asdict(self.training), **asdict(self.settings), "taps": list(self.settings.taps),
                  "target": fingerprint(self.network.language_model.norm.weight.detach().numpy()),
                  "start_from": self.start_from and str(self.start_from.resolve())}  # fmt: skip
        record = {name: value for name, value in record.items() if name not in FREE_TO_CHANGE}
        check_run_record(self.run_folder, record)

    def _features(self, split: str) -> DraftFeatures:
        every = open_shards(self.data / split)
        if split == "train":
            texts = {words["text"] for shard in every for words in shard.words}
            self.corpus.update(*closed_ids(sorted(texts), self.tokenizer))
        count = self.settings.count if split == "train" else max(1, self.settings.count // 10)
        shards, settings = spread(every, count), replace(self.settings, count=count)
        record = feature_record(self.network, settings, sum(len(shard.sample_frame) for shard in shards))
        if known := known_features(self.features / split, record):
            return known
        _, grid = frame_patches(shards[0].frames(0, 4), self.network)
        with self.progress(f"samples, {split}", sum(len(shard.sample_frame) for shard in shards)) as bar:
            samples = SampleSet(shards, self.config, self.tokenizer, np.asarray(grid), advance=bar.advance)
        writer = FeatureWriter(self.network, samples, FrameFeatures(self.network, shards), self.rules, settings)
        with self.progress(f"states, {split}", min(count, len(samples))) as bar:
            return writer.write(self.features / split, bar)

    def _stage(self, target: FrozenTarget, train: DraftFeatures) -> Eagle3Stage | DFlashStage:
        torch.manual_seed(self.training.seed)
        words = np.array(sorted(self.corpus.union(train.answer_ids().tolist())))
        config = draft_config(self.config, self.training, self.settings.taps, len(words),
                              mask_token_id(self.tokenizer), target.fingerprint)  # fmt: skip
        draft, is_eagle3 = new_draft(config), isinstance(config, Eagle3Config)
        if is_eagle3:
            draft.set_vocabulary(words)
        if self.start_from is not None:
            warm_start_draft(draft, self.start_from, self.config.text)
        if is_eagle3:
            return Eagle3Stage(draft, target, self.training.ahead or self.training.words_ahead)
        return DFlashStage(draft, target, np.flatnonzero(~self.rules.forbidden), self.training.anchors)


def spread(shards: list[Shard], count: int) -> list[Shard]:
    """The shards with only `count` of their samples, spread evenly over all. Samples of one world are much alike, so
    one from each world teaches more than all of a few; and preparing unused ones would waste time."""
    starts = np.cumsum([0] + [len(shard.sample_frame) for shard in shards])
    chosen = chosen_samples(int(starts[-1]), count)
    return [shard.with_samples(chosen[(chosen >= first) & (chosen < end)] - first)
            for shard, first, end in zip(shards, starts, starts[1:])]


def train_draft(stage, train: DraftFeatures, validation: DraftFeatures, training: DraftTraining, state_path: Path, bar,
                log) -> dict[str, float]:
    """Trains to the end, resuming from `state_path`. Returns the last validation record."""
    accelerator = new_accelerator()
    optimizer = optimizer_of(stage, training.weight_decay, adamw=("lm_head",))
    step, record = load_state(state_path, stage, optimizer)
    model, optimizer = accelerator.prepare(stage, optimizer)
    bar.advance(step)
    while step < training.steps:
        rng = np.random.default_rng([training.seed, step, accelerator.process_index, 3])
        numbers = drawn(len(train), training, step * accelerator.num_processes + accelerator.process_index)
        losses = draft_step(model, optimizer, accelerator, train.batch(numbers), training, step, rng)
        step += 1
        bar.advance(1, f"loss {losses['loss']:.3f} first word {losses['first_word']:.2f}")
        for name, value in losses.items():
            log.add_scalar(f"train/{name}", value, step)
        if step % training.evaluate_every == 0 or step == training.steps:
            record = evaluate_draft(stage, validation, training.words_ahead, training.evaluated)
            for name, value in record.items():
                log.add_scalar(f"validation/{name}", value, step)
        if step % training.save_every == 0 or step == training.steps:
            save_state(state_path, stage, optimizer, step, record)
    return record


def drawn(samples: int, training: DraftTraining, number: int) -> np.ndarray:
    """[batch] sample numbers of batch `number`: each sample once per epoch, in a new order every epoch."""
    places = np.arange(number * training.batch, (number + 1) * training.batch)
    return np.array([_order(samples, training.seed, place // samples)[place % samples] for place in places])


@lru_cache(maxsize=2)
def _order(samples: int, seed: int, epoch: int) -> np.ndarray:
    return np.random.default_rng([seed, epoch, ORDER]).permutation(samples)


def draft_step(model, optimizer, accelerator, batch, training, step, rng) -> dict[str, float]:
    for group in optimizer.param_groups:
        group["lr"] = cosine_rate(step, training.steps, training.learning_rate, training.warmup)
    losses = model(on_device(batch, model), rng)
    descend(accelerator, model, optimizer, losses["loss"])
    return {name: float(value.detach()) for name, value in losses.items()}


def on_device(batch: dict[str, torch.Tensor], stage: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.to(device_of(stage)) for name, value in batch.items()}


@torch.no_grad()
def evaluate_draft(stage, features: DraftFeatures, ahead: int, count: int, batch: int = 16) -> dict[str, float]:
    """Means, over held-out samples spread over all, of what a step logs, plus the accepted length: exactly that of
    greedy decoding with this draft as a chain of `ahead` tokens, in tokens per pass, the target's own token
    included."""
    rng, records, tokens, passes = np.random.default_rng(0), [], 0, 0
    chosen = np.linspace(0, len(features) - 1, min(count, len(features))).astype(int)
    for numbers in np.array_split(chosen, max(1, len(chosen) // batch)):
        part = on_device(features.batch(numbers), stage)
        records.append({name: float(value) for name, value in stage(part, rng).items()})
        lengths, runs = part["loss_mask"].sum(1, dtype=torch.int64).cpu().numpy(), stage.runs(part, ahead).cpu().numpy()
        tokens += int(lengths.sum())
        passes += sum(passes_of(row[:length]) for row, length in zip(runs, lengths))
    means = {name: float(np.mean([record[name] for record in records])) for name in records[0]}
    return means | {"accepted_length": tokens / passes}
