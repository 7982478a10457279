"""One run of action-aware RL: takes a target, a distilled draft and scenes; makes a post-trained draft and its curve.

out/config.json, out/model.safetensors   the draft, in the format of `train draft`
out/run/                                 state, known rewards, curve.jsonl, TensorBoard, training.json
"""

import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import torch

from specdrive_ros.decoding.rules import ReasoningRules
from specdrive_ros.draft.checkpoint import load_draft_network, save_draft
from specdrive_ros.draft.config import DFlashConfig
from specdrive_ros.draft.layout import read_draft_config
from specdrive_ros.draft.target_identity import check_fingerprint
from specdrive_ros.engine.graph_file import exported_flow_steps
from specdrive_ros.errors import InputError
from specdrive_ros.model_settings import ModelSettings
from specdrive_ros.target.checkpoint import load_target
from specdrive_ros.target.config import TargetConfig
from specdrive_ros.target.tokens import TargetTokenizer
from specdrive_ros.training.aarl_policy import make_policy
from specdrive_ros.training.aarl_reward import Rewards
from specdrive_ros.training.aarl_training import AarlStage, AarlTraining, train_aarl
from specdrive_ros.training.draft_features import (
    RECORD,
    DraftFeatures,
    FeatureSettings,
    FeatureWriter,
    chosen_samples,
    feature_record,
    known_features,
)
from specdrive_ros.training.draft_training import spread
from specdrive_ros.training.flow_trajectories import FlowTrajectories
from specdrive_ros.training.frame_features import FrameFeatures, frame_patches
from specdrive_ros.training.frozen_target import FrozenTarget
from specdrive_ros.training.run_record import check_run_record
from specdrive_ros.training.samples import SampleSet
from specdrive_ros.training.scenes import Shard, open_shards

FREE_TO_CHANGE = ("steps", "evaluate_every", "save_every")  # when a run is resumed
CHECKED = 32  # number of cached samples compared with the scenes


class AarlRun:
    """model: the target; draft: folder of the distilled draft; data: scenes; features: where the target's states are
    cached, `count` of them if none are yet; out: folder of the finished draft.

    rewards: of an earlier run on the same target, states and scale of rewards, from which this one goes on: what a
    text does to a plan is the target's matter, not the draft's. None: nothing is known yet.
    """

    def __init__(
        self,
        model: ModelSettings,
        draft: Path,
        data: Path,
        features: Path,
        out: Path,
        training: AarlTraining,
        progress,
        log,
        count: int = 8000,
        seed: int = 0,
        rewards: Rewards | None = None,
    ):
        self.model, self.draft, self.data, self.features, self.out = model, draft, data, features, out
        self.progress, self.log, self.count, self.seed, self.rewards = progress, log, count, seed, rewards
        self.config = TargetConfig.load(model.checkpoint)
        self.draft_config = read_draft_config(draft, self.config.text)
        self.training = self._fitted(training)
        self.network = load_target(model.checkpoint).requires_grad_(False)
        self.tokenizer = TargetTokenizer.load(self.config)
        self.rules = ReasoningRules.of(self.tokenizer, self.config.text.vocab_size, model.max_new_tokens)

    def run(self) -> dict:
        stage, train, validation = self.prepare()
        with self.progress(f"aarl {self.training.anchor}", self.training.steps) as bar:
            curve = train_aarl(stage, train, validation, self.run_folder, bar, self.log)
        save_draft(stage.policy.draft, self.out)
        result = {
            "aarl": asdict(self.training),
            "draft": str(self.draft),
            "features": train.record,
            "curve": curve,
            "texts_known": len(stage.rewards.known),
            "torch": torch.__version__,
        }
        (self.run_folder / "training.json").write_text(json.dumps(result, indent=1), encoding="utf-8")
        return result

    def prepare(self) -> tuple[AarlStage, DraftFeatures, DraftFeatures]:
        target = FrozenTarget.of(self.network, self.rules.forbidden)
        check_fingerprint(self.draft_config, target.fingerprint, str(self.draft))
        self._check_record(target.fingerprint)
        train = self._known("train") if self.rewards else None
        if train is None:
            train, *scenes = self._split("train")
            self.rewards = Rewards(self._plans(train, *scenes), self.rules, self.training.reward)
        validation = self._known("validation") or self._split("validation")[0]
        torch.manual_seed(self.training.seed)
        policy = make_policy(load_draft_network(self.draft, self.config.text), target)
        return AarlStage(policy, self.rewards, self.training), train, validation

    def _plans(self, states: DraftFeatures, samples: SampleSet, frames: FrameFeatures) -> FlowTrajectories:
        """The target's plans for the samples whose states are cached, all from one noise."""
        shape = (self.config.action_space.n_waypoints, 2)
        noise = np.random.default_rng(self.seed).standard_normal(shape, np.float32)
        noise *= np.float32(self.model.action_noise)
        chosen = chosen_samples(len(samples), len(states))
        self._check_samples(states, samples, chosen)
        steps = self.model.action_steps or exported_flow_steps(self.model.checkpoint)
        return FlowTrajectories(self.network, samples, frames, chosen, noise, steps=steps)

    @property
    def run_folder(self) -> Path:
        return self.out / "run"

    def _fitted(self, training: AarlTraining) -> AarlTraining:
        """The settings, with rollouts no longer than a DFlash block."""
        if not isinstance(self.draft_config, DFlashConfig):
            return training
        return replace(training, ahead=min(training.ahead, self.draft_config.block_size - 1))

    def _split(self, split: str) -> tuple[DraftFeatures, SampleSet, FrameFeatures]:
        settings, shards = self._scenes(split)
        _, grid = frame_patches(shards[0].frames(0, 4), self.network)
        with self.progress(f"samples, {split}", sum(len(shard.sample_frame) for shard in shards)) as bar:
            samples = SampleSet(shards, self.config, self.tokenizer, np.asarray(grid), advance=bar.advance)
        frames = FrameFeatures(self.network, shards)
        writer = FeatureWriter(self.network, samples, frames, self.rules, settings)
        with self.progress(f"states, {split}", min(settings.count, len(samples))) as bar:
            return writer.write(self.features / split, bar), samples, frames

    def _known(self, split: str) -> DraftFeatures | None:
        """Cached states, if all are there. No plans are made for this split, so its scenes are not read."""
        settings, shards = self._scenes(split)
        record = feature_record(self.network, settings, sum(len(shard.sample_frame) for shard in shards))
        return known_features(self.features / split, record)

    def _scenes(self, split: str) -> tuple[FeatureSettings, list[Shard]]:
        """Settings of a split's states, and the shards with the samples that they belong to."""
        count = self.count if split == "train" else max(1, self.count // 10)
        settings = self._feature_settings(self.features / split, count)
        return settings, spread(open_shards(self.data / split), settings.count)

    def _feature_settings(self, folder: Path, count: int) -> FeatureSettings:
        """Settings of the states that are there, else the defaults; raises InputError if the taps are not the
        draft's."""
        taps = tuple(self.draft_config.tap_layers)
        if not (folder / RECORD).exists():
            return FeatureSettings(taps, count=count, max_new_tokens=self.model.max_new_tokens)
        record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        found = FeatureSettings(
            tuple(record.pop("taps")), **{name: value for name, value in record.items() if name != "target"}
        )
        if found.taps != taps:
            raise InputError(
                f"{folder}: holds states of taps {list(found.taps)}, {self.draft} reads {list(taps)}; "
                "name another folder"
            )
        return found

    def _check_samples(self, features: DraftFeatures, samples: SampleSet, chosen: np.ndarray) -> None:
        """Raises InputError unless the cached states belong to the present scenes: rewards are computed from these,
        and adding or removing scenes changes which samples are chosen."""
        for number in np.unique(np.linspace(0, len(features) - 1, CHECKED).astype(int)).tolist():
            cached, own = features.read(number)["token_ids"].numpy(), samples.prompt_ids[chosen[number]]
            if not np.array_equal(cached[: len(own)], own):
                raise InputError(
                    f"{features.folder}: holds states of other scenes than {self.data}; name another folder"
                )

    def _check_record(self, target: str) -> None:
        """A run continues as it began: other settings need another run."""
        record = {**asdict(self.training), "target": target, "draft": str(self.draft)}
        record = {name: value for name, value in record.items() if name not in FREE_TO_CHANGE}
        check_run_record(self.run_folder, record)
