"""Trains mini: first vision on scene labels, then reasoning and action on the frozen vision.

The second stage reads cached image features. Its loss is the cross-entropy of the chain of causation, with the first
token and those that only the image determines weighted most, plus the flow-matching loss of the action expert, whose
gradient reaches the language model through the key-value cache. Judge a model by its slot words and its sentences, not
by its loss.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import DistributedDataParallelKwargs
from torch import nn

from specdrive_ros.shapes import FUTURE_WAYPOINTS, WAYPOINT_TIMES_S
from specdrive_ros.target.network import AlpamayoTarget, TextOutput
from specdrive_ros.target.unicycle import action_to_trajectory
from specdrive_ros.training.flow_loss import flow_loss
from specdrive_ros.training.frame_features import FrameFeatures, device_of, frame_levels, frame_patches
from specdrive_ros.training.muon import optimizer_of
from specdrive_ros.training.samples import Batch, SampleSet
from specdrive_ros.training.scene_numbers import NUMBERS
from specdrive_ros.training.scenes import Shard
from specdrive_ros.training.state import cosine_rate, load_state, save_state
from specdrive_ros.training.vision_pretraining import FrameSampler, SceneHeads, VisionPretraining, disturb


@dataclass(frozen=True)
class ReasoningTraining:
    """Settings of the second stage. `draws` is the number of flow-matching times and noises per sample: flow matching
    needs many more of them than reasoning needs samples, and a pass of the expert costs a tenth of the language
    model's. At each evaluation the model drives `drive_worlds` held-out worlds, and the weights that drove best are
    kept."""

    steps: int = 3000
    batch: int = 16
    learning_rate: float = 8e-4
    warmup: int = 50
    weight_decay: float = 0.02
    flow_weight: float = 1.0
    scene_weight: float = 0.3
    draws: int = 4
    feature_noise: float = 0.02
    evaluate_every: int = 250
    drive_worlds: int = 0
    save_every: int = 100
    seed: int = 0


class VisionStage(nn.Module):
    """Vision encoder and heads in one forward pass, as data-parallel training needs it."""

    def __init__(self, target: AlpamayoTarget, scene_labels: dict[str, int]):
        super().__init__()
        self.target = [target]  # in a list: only the vision encoder belongs to this stage's parameters
        self.visual = target.vlm.model.visual
        levels = 1 + len(target.config.vision.deepstack_visual_indexes)
        self.heads = SceneHeads(scene_labels, target.config.vision.out_hidden_size, levels)

    def forward(self, patches: torch.Tensor, grid: torch.Tensor, labels: torch.Tensor,
                numbers: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The loss, and the heads' outputs for the merged tokens."""
        outputs = self.heads(frame_levels(self.target[0], patches, grid))
        return self.heads.loss(outputs, labels, numbers), outputs[0]


def new_vision_stage(target: AlpamayoTarget, shard: Shard, seed: int) -> VisionStage:
    torch.manual_seed(seed)
    return VisionStage(target, shard.scene_labels)


def pretrain_vision(stage: VisionStage, train: list[Shard], validation: list[Shard], settings: VisionPretraining,
                    state_path: Path, bar, log) -> dict[str, float]:
    """Trains the first stage to its end, resuming from `state_path`. Returns validation accuracy per scene label."""
    accelerator = new_accelerator()
    sampler, held_out = FrameSampler(train), FrameSampler(validation)
    optimizer = optimizer_of(stage, settings.weight_decay, adamw=("heads", "pos_embed"))
    step, record = load_state(state_path, stage, optimizer)
    model, optimizer = accelerator.prepare(stage, optimizer)
    bar.advance(step)
    while step < settings.steps:
        rng = np.random.default_rng([settings.seed, step, accelerator.process_index, 1])
        loss = vision_step(model, optimizer, accelerator, sampler, settings, step, rng)
        step += 1
        bar.advance(1, f"loss {loss:.3f}")
        log.add_scalar("vision/loss", loss, step)
        if step % settings.evaluate_every == 0 or step == settings.steps:
            record = vision_accuracy(stage, held_out)
            for name, value in record.items():
                log.add_scalar(f"vision/accuracy/{name}", value, step)
            save_state(state_path, stage, optimizer, step, record)
    return record


def vision_step(model, optimizer, accelerator, sampler, settings, step, rng) -> float:
    frames, labels, numbers = sampler.draw(rng, settings.batch)
    patches, grid = frame_patches(frames, accelerator.unwrap_model(model).target[0])
    generator = torch.Generator().manual_seed(int(rng.integers(2**62)))
    patches = disturb(patches.view(len(frames), -1, patches.shape[-1]), settings, generator).flatten(0, 1)
    for group in optimizer.param_groups:
        group["lr"] = cosine_rate(step, settings.steps, settings.learning_rate)
    inputs = (patches, grid, torch.from_numpy(labels), torch.from_numpy(numbers))
    loss, _ = model(*(tensor.to(accelerator.device) for tensor in inputs))
    descend(accelerator, model, optimizer, loss)
    return float(loss.detach())


def new_accelerator() -> Accelerator:
    """One process per GPU, or as many on a CPU as the launcher starts. Buffers are the same in all of them."""
    return Accelerator(cpu=not torch.cuda.is_available(),
                       kwargs_handlers=[DistributedDataParallelKwargs(broadcast_buffers=False)])


def descend(accelerator: Accelerator, model: nn.Module, optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> None:
    optimizer.zero_grad(set_to_none=True)
    accelerator.backward(loss)
    accelerator.clip_grad_norm_([p for p in model.parameters() if p.requires_grad], 1.0)
    optimizer.step()


@torch.no_grad()
def vision_accuracy(stage: VisionStage, held_out: FrameSampler, frames: int = 1024) -> dict[str, float]:
    """Accuracy per scene label, and the share of variance explained per number (`…_r2`), on frames spread evenly over
    the held-out worlds."""
    rows = np.linspace(0, len(held_out.labels) - 1, min(frames, len(held_out.labels))).astype(int)
    right, estimated = {name: np.zeros(2, int) for name in stage.heads.scene_labels}, []
    for part in np.array_split(rows, max(1, len(rows) // 64)):
        patches, grid = frame_patches(held_out.frames(part), stage.target[0])
        labels, numbers = torch.from_numpy(held_out.labels[part]), torch.from_numpy(held_out.numbers[part])
        _, outputs = stage(*(tensor.to(device_of(stage)) for tensor in (patches, grid, labels, numbers)))
        outputs = outputs.cpu()
        estimated.append(stage.heads.split(outputs)[1].numpy())
        for name, counts in stage.heads.accuracy(outputs, labels).items():
            right[name] += counts
    shares = {name: float(good / max(1, all_of_them)) for name, (good, all_of_them) in right.items()}
    return shares | explained(np.concatenate(estimated), held_out.numbers[rows])


def explained(estimated: np.ndarray, true: np.ndarray) -> dict[str, float]:
    """{name_r2: share of the variance of that column of `true` [N, numbers] explained}; NaN entries are ignored."""
    result = {}
    for name, guess, value in zip(NUMBERS, estimated.T, true.T):
        known = ~np.isnan(value)
        if known.sum() > 1:
            error = ((guess[known] - value[known]) ** 2).mean()
            result[f"{name}_r2"] = float(1 - error / max(value[known].var(), 1e-9))
    return result


class ReasoningStage(nn.Module):
    """Language model and action expert on cached image features, one forward pass for all losses.

    At the last token of the prompt, linear heads that are discarded afterwards read what the vision stage has learnt
    to show: labels, positions and the expert's path. A few words per sample are too little to learn where to look; and
    the cache of that one token then gives the action expert what it would otherwise have to gather from all images.
    """

    def __init__(self, target: AlpamayoTarget, samples: SampleSet, settings: ReasoningTraining):
        super().__init__()
        self.target, self.settings = target, settings
        prompt = samples.prompt
        self.prompt_length, self.rope_delta = len(prompt.token_ids), int(prompt.rope_delta)
        for name, rows in (("prompt_positions", prompt.position_ids), ("image_rows", prompt.image_rows)):
            self.register_buffer(name, torch.from_numpy(np.asarray(rows)), persistent=False)
        target.requires_grad_(True)
        target.vlm.model.visual.requires_grad_(False)
        text = target.config.text
        self.read_layers = text.num_hidden_layers // 2 - 1, 3 * text.num_hidden_layers // 4 - 1  # the expert reads on
        self.heads = SceneHeads(samples.scene_labels, text.hidden_size, len(self.read_layers))

    def text(self, ids: torch.Tensor, features: torch.Tensor) -> TextOutput:
        """ids [B, T+R], features [B, A, 1+K, V, E]. Padding follows the real tokens, so causality hides it."""
        batch, length = ids.shape
        image_mask = torch.zeros(batch, length, dtype=torch.bool, device=ids.device)
        image_mask[:, self.image_rows] = True
        levels = features.float().permute(2, 0, 1, 3, 4).flatten(1, 3)  # [1+K, B*A*V, E]
        beyond = torch.arange(self.prompt_length, length, device=ids.device) + self.rope_delta
        positions = torch.cat([self.prompt_positions, beyond.expand(3, -1)], dim=1)[:, None].expand(3, batch, length)
        return self.target.text_forward(self.target.embed_prompt(ids, image_mask, levels[0]), positions,
                                        deepstack=list(levels[1:]), image_mask=image_mask)

    def reasoning_logits(self, output: TextOutput) -> torch.Tensor:
        """[B, R, vocabulary]: the logits for each reasoning token."""
        return self.target.logits(output.hidden[:, self.prompt_length - 1:-1])

    def waypoints(self, lengths: torch.Tensor, total: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Positions [3, B, 64] of the waypoints, and the cache columns [B, total] (bool) that they may see."""
        offset = self.prompt_length + lengths
        positions = torch.arange(FUTURE_WAYPOINTS, device=offset.device) + (offset + self.rope_delta)[:, None]
        return positions.expand(3, -1, -1), torch.arange(total, device=offset.device) < offset[:, None]

    def forward(self, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        output = self.text(batch["token_ids"], batch["features"])
        answers = batch["token_ids"][:, self.prompt_length:]
        logits = self.reasoning_logits(output).flatten(0, 1)
        each = nn.functional.cross_entropy(logits, answers.flatten(), reduction="none")
        weights = batch["weights"]
        read = self.heads([output.layers[k][:, self.prompt_length - 1:self.prompt_length] for k in self.read_layers])
        return {"text": (each.view_as(weights) * weights).sum() / weights.sum(), "flow": self.flow(batch, output),
                "scene": self.heads.loss(read, batch["labels"], batch["numbers"])}

    def flow(self, batch: dict[str, torch.Tensor], output: TextOutput) -> torch.Tensor:
        """The flow loss of all draws of all samples in one pass of the expert: a tenth less time per step than one by
        one."""
        positions, visible = self.waypoints(batch["lengths"], batch["token_ids"].shape[1])
        draws = self.settings.draws
        past = [(keys.repeat(draws, 1, 1, 1), values.repeat(draws, 1, 1, 1)) for keys, values in output.key_values]
        return flow_loss(self.target, batch["action"].repeat(draws, 1, 1), past, positions.repeat(1, draws, 1),
                         visible.repeat(draws, 1))


def tensors(batch: Batch, features: FrameFeatures, device: torch.device) -> dict[str, torch.Tensor]:
    names = ("token_ids", "weights", "lengths", "action", "labels", "numbers")
    arrays = {name: torch.from_numpy(getattr(batch, name)) for name in names}
    return {name: value.to(device) for name, value in (arrays | {"features": features[batch.frame_rows]}).items()}


def train_reasoning(stage: ReasoningStage, train: SampleSet, train_features: FrameFeatures, validation: SampleSet,
                    validation_features: FrameFeatures, settings: ReasoningTraining, state_path: Path, bar, log,
                    on_evaluation=lambda step, record: None) -> dict[str, float]:
    """Trains the second stage to its end, resuming from `state_path`. Returns the last validation record."""
    accelerator = new_accelerator()
    by_adamw = ("embed", "lm_head", "action_in", "action_out", "heads")
    optimizer = optimizer_of(stage, settings.weight_decay, adamw=by_adamw)
    step, record = load_state(state_path, stage, optimizer)
    model, optimizer = accelerator.prepare(stage, optimizer)
    bar.advance(step)
    while step < settings.steps:
        rng = np.random.default_rng([settings.seed, step, accelerator.process_index, 2])
        losses = reasoning_step(model, optimizer, accelerator, train, train_features, settings, step, rng)
        step += 1
        bar.advance(1, " ".join(f"{name} {loss:.3f}" for name, loss in losses.items()))
        for name, value in losses.items():
            log.add_scalar(f"train/{name}", value, step)
        if step % settings.evaluate_every == 0 or step == settings.steps:
            record = evaluate(stage, validation, validation_features)
            for name, value in record.items():
                log.add_scalar(f"validation/{name}", value, step)
            on_evaluation(step, record)
        if step % settings.save_every == 0 or step == settings.steps:
            save_state(state_path, stage, optimizer, step, record)
    return record


def reasoning_step(model, optimizer, accelerator, train, cached, settings, step, rng) -> dict[str, float]:
    batch = tensors(train.batch(train.draw(rng, settings.batch)), cached, accelerator.device)
    torch.manual_seed(int(rng.integers(2**62)))  # feature noise, flow times and flow noise depend on (seed, step) only
    features = batch["features"].float()
    batch["features"] = features + settings.feature_noise * torch.randn_like(features)
    for group in optimizer.param_groups:
        group["lr"] = cosine_rate(step, settings.steps, settings.learning_rate, settings.warmup)
    losses = model(batch)
    total = losses["text"] + settings.flow_weight * losses["flow"] + settings.scene_weight * losses["scene"]
    descend(accelerator, model, optimizer, total)
    return {name: float(loss.detach()) for name, loss in losses.items()}


@torch.no_grad()
def evaluate(stage: ReasoningStage, samples: SampleSet, features: FrameFeatures, count: int = 256) -> dict[str, float]:
    """Held-out figures: accuracy of slot words, share of whole sentences (teacher forced, so exact means greedy
    exact), ADE of the plan and of constant velocity."""
    slots, sentences, errors, naive = [], [], [], []
    chosen = np.linspace(0, len(samples) - 1, min(count, len(samples))).astype(int)
    for part in np.array_split(chosen, max(1, len(chosen) // 32)):
        batch = samples.batch(part)
        data = tensors(batch, features, device_of(stage))
        output = stage.text(data["token_ids"], data["features"])
        answers = data["token_ids"][:, stage.prompt_length:]
        right = (stage.reasoning_logits(output).argmax(-1) == answers).cpu().numpy() | (batch.weights == 0)
        slots.append(right[batch.is_visual])
        sentences.append(right.all(axis=1))
        errors.append(displacement(batch, sampled_trajectory(stage, batch, data, output)))
        naive.append(displacement(batch, constant_velocity(batch)))
    errors, naive = np.concatenate(errors), np.concatenate(naive)
    return {"slot_words": float(np.concatenate(slots).mean()), "sentences": float(np.concatenate(sentences).mean()),
            "ade_3s": float(errors[:, :30].mean()), "ade_6.4s": float(errors.mean()),
            "constant_velocity_ade_3s": float(naive[:, :30].mean()), "constant_velocity_ade_6.4s": float(naive.mean())}


def sampled_trajectory(
    stage: ReasoningStage, batch: Batch, data: dict[str, torch.Tensor], output: TextOutput
) -> np.ndarray:
    """[B, 64, 2] metres in the ego frame at t0, from ten Euler steps on seeded noise."""
    positions, visible = stage.waypoints(data["lengths"], data["token_ids"].shape[1])
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn((len(batch.v0), FUTURE_WAYPOINTS, 2), generator=generator).to(positions.device)
    action = stage.target.sample(noise, output.key_values, positions, visible).cpu().numpy()
    return action_to_trajectory(stage.target.config.action_space, action, batch.v0).xyz[..., :2]


def constant_velocity(batch: Batch) -> np.ndarray:
    return np.stack([np.outer(WAYPOINT_TIMES_S, [v0, 0.0]) for v0 in batch.v0])


def displacement(batch: Batch, xy: np.ndarray) -> np.ndarray:
    """[B, 64] metres between the planned positions `xy` [B, 64, 2] and the expert's."""
    return np.linalg.norm(xy - batch.future[:, :, :2], axis=-1)
