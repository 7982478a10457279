"""Makes mini from driving scenes: tokenizer, vision, reasoning and action, checkpoint folder, model card.

Every stage keeps its state in the run folder and resumes from it. When started in several processes (`accelerate
launch`), each draws its own batches and the first one writes.
"""

import hashlib
import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from accelerate import PartialState
from safetensors.torch import load_file, save_file

from specdrive_ros.model_settings import ModelSettings
from specdrive_ros.target.checkpoint import save_target
from specdrive_ros.target.config import TargetConfig, mini_config
from specdrive_ros.target.network import AlpamayoTarget
from specdrive_ros.target.prompt import SYSTEM_TEXT, USER_TEXT
from specdrive_ros.target.released_layout import write_configs
from specdrive_ros.target.tokens import BASE_TOKENS, TargetTokenizer
from specdrive_ros.training.closed_loop import BestCheckpoint, share_driven
from specdrive_ros.training.frame_features import FrameFeatures, frame_patches
from specdrive_ros.training.phrasebook import closed_ids
from specdrive_ros.training.run_record import check_run_record
from specdrive_ros.training.samples import SampleSet
from specdrive_ros.training.scenes import Shard, open_shards
from specdrive_ros.training.target_training import (ReasoningStage, ReasoningTraining, new_vision_stage,
                                                     pretrain_vision, train_reasoning, vision_accuracy)
from specdrive_ros.training.vision_pretraining import FrameSampler, VisionPretraining
from specdrive_ros.training.vocabulary import train_base_tokenizer
from specdrive_ros.training.warm_start import warm_start


def new_checkpoint_folder(folder: Path, shards: list[Shard]) -> TargetConfig:
    """Writes tokenizer and configs of an untrained mini, in the released layout. Keeps an existing one."""
    if not (folder / "config.json").exists():
        texts = [words["text"] for shard in shards for words in shard.words]
        base = train_base_tokenizer([SYSTEM_TEXT, USER_TEXT, "system\n", "user\n", "assistant\n", *texts])
        (folder / "backbone").mkdir(parents=True, exist_ok=True)
        base.save(str(folder / "backbone" / "tokenizer.json"))
        base_size = base.get_vocab_size()
        base_ids = {token: base.token_to_id(token) for token in BASE_TOKENS}
        tokenizer = TargetTokenizer(base)
        tokenizer.save(folder / "tokenizer.json")
        config = mini_config(tokenizer.size, base_size)
        write_configs(folder, config, tokenizer.trajectory_ids, base_size, base_ids)
    return TargetConfig.load(folder)


def reasoning_limit(config: TargetConfig, shards: list[Shard]) -> int:
    """Token limit of a reasoning: what the longest chain of causation needs, in multiples of the usual limit."""
    texts = sorted({words["text"] for shard in shards for words in shard.words})
    longest, usual = max(map(len, closed_ids(texts, TargetTokenizer.load(config)))), ModelSettings.max_new_tokens
    return usual * -(-longest // usual)


def new_target(config: TargetConfig, seed: int) -> AlpamayoTarget:
    torch.manual_seed(seed)
    return AlpamayoTarget(config)


class MiniTraining:
    """One run: scenes from `data`, all intermediate files in `run_folder`, the finished checkpoint in `checkpoint`."""

    def __init__(self, data: Path, run_folder: Path, checkpoint: Path, vision: VisionPretraining,
                 reasoning: ReasoningTraining, progress, log, start_from: Path | None = None):
        self.run_folder, self.checkpoint = run_folder, checkpoint
        self.vision, self.reasoning = vision, reasoning
        self.progress, self.log = progress, log
        self.train, self.validation = open_shards(data / "train"), open_shards(data / "validation")
        run_folder.mkdir(parents=True, exist_ok=True)
        self.processes = PartialState(cpu=not torch.cuda.is_available())
        self.families = tuple(dict.fromkeys(words["family"] for shard in self.train for words in shard.words))
        with self.processes.main_process_first():
            self.config = new_checkpoint_folder(checkpoint, self.train)
            # as it will be driven, also for early stopping: noise at its mean, only the families it was trained on
            (checkpoint / "model.yaml").write_text("action_noise: 0.0\nforward_only: true\n"
                                                   f"scenarios: [{', '.join(self.families)}]\n"
                                                   f"max_new_tokens: {reasoning_limit(self.config, self.train)}\n")
            check_run_record(run_folder, self._begun_with(start_from))
        self.target = new_target(self.config, reasoning.seed)
        self.best = BestCheckpoint(run_folder)
        self.start_from = start_from
        if start_from is not None:
            warm_start(self.target, start_from)

    def run(self) -> dict:
        vision = self._vision_stage()
        _, grid = frame_patches(self.train[0].frames(0, 4), self.target)
        tokenizer = TargetTokenizer.load(self.config)
        splits = self.train, self.validation
        with self.progress("samples", sum(len(s.sample_frame) for shards in splits for s in shards)) as bar:
            train, validation = (SampleSet(shards, self.config, tokenizer, np.asarray(grid), advance=bar.advance)
                                 for shards in splits)
        with self.processes.main_process_first():  # the first writes the files, the others read them
            folder = self.run_folder / "features"
            features = FrameFeatures(self.target, self.train, folder / "train")
            held_out = validation, FrameFeatures(self.target, self.validation, folder / "validation")
        stage = ReasoningStage(self.target, train, self.reasoning)
        with self.progress("reasoning and action", self.reasoning.steps) as bar:
            record = train_reasoning(stage, train, features, *held_out, self.reasoning,
                                     self.run_folder / "reasoning.safetensors", bar, self.log, self._on_evaluation)
        if self.processes.is_main_process:
            save_target(self.target, self.checkpoint)
            if self.reasoning.drive_worlds:
                self.best.restore(self.checkpoint)
        return self._record(vision, record, len(train))

    def _begun_with(self, start_from: Path | None) -> dict:
        """Weights in the run folder are only valid with the same vocabulary: embedding rows belong to tokens."""
        words = TargetTokenizer.load(self.config).tokenizer.get_vocab(with_added_tokens=True)
        vocabulary = json.dumps(words, sort_keys=True)
        return {"vocabulary": hashlib.sha256(vocabulary.encode()).hexdigest()[:16],
                "start_from": start_from and str(Path(start_from).resolve())}

    def _vision_stage(self) -> dict[str, float]:
        """Validation accuracy per scene label; empty if the vision of `start_from` is kept as it is."""
        if not self.vision.steps:
            return {}
        finished = self.run_folder / "vision_weights.safetensors"
        visual = self.target.vlm.model.visual
        if finished.exists():
            visual.load_state_dict(load_file(finished))
        else:
            stage = new_vision_stage(self.target, self.train[0], self.vision.seed)
            with self.progress("vision", self.vision.steps) as bar:
                pretrain_vision(stage, self.train, self.validation, self.vision, self.run_folder / "vision.safetensors",
                                bar, self.log)
            if self.processes.is_main_process:
                accuracy = vision_accuracy(stage, FrameSampler(self.validation))
                (self.run_folder / "vision.json").write_text(json.dumps(accuracy, indent=1))
                weights = {name: value.cpu().contiguous() for name, value in visual.state_dict().items()}
                save_file(weights, str(finished))
            self.processes.wait_for_everyone()
        return json.loads((self.run_folder / "vision.json").read_text())

    def _on_evaluation(self, step: int, record: dict) -> None:
        """Writes a checkpoint at every evaluation, so that a run can be watched driving while it goes on."""
        if not self.processes.is_main_process:
            return
        save_target(self.target, self.checkpoint)
        if self.reasoning.drive_worlds:
            record["driven"] = share_driven(self.checkpoint, self.families, self.reasoning.drive_worlds)
            self.best.offer(self.checkpoint, step, record["driven"], record["ade_3s"])
        with (self.run_folder / "curve.jsonl").open("a") as file:
            file.write(json.dumps({"step": step, **record}) + "\n")

    def _record(self, vision: dict, record: dict, samples: int) -> dict:
        result = {"start_from": self.start_from and str(self.start_from), "vision_accuracy": vision,
                  "validation": record, "samples": samples,
                  "frames": sum(len(s.scene) for s in self.train), "vision": asdict(self.vision),
                  "reasoning": asdict(self.reasoning), "torch": torch.__version__}
        if self.processes.is_main_process:
            (self.run_folder / "training.json").write_text(json.dumps(result, indent=1))
        return result
