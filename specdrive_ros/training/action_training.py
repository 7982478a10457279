"""Last stage of mini: the action expert alone, on the finished language model's keys and values.

Flow matching needs many more draws of noise and time than reasoning needs samples, and the expert is a tenth of
the model. So every sample's keys and values are computed once, and only the expert goes on learning: reasoning
stays what it is, to the last bit.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from accelerate import Accelerator
from torch import nn

from specdrive_ros.target.network import AlpamayoTarget
from specdrive_ros.training.samples import SampleSet
from specdrive_ros.training.state import cosine_rate, load_state, save_state
from specdrive_ros.training.target_training import ReasoningStage, descend, evaluate, tensors


@dataclass(frozen=True)
class ActionTraining:
    """Settings of the last stage."""

    steps: int = 1500
    batch: int = 32
    learning_rate: float = 1.5e-3
    warmup: int = 50
    weight_decay: float = 0.01
    evaluate_every: int = 500
    save_every: int = 100
    seed: int = 0


class ActionStage(nn.Module):
    """The expert and its in- and output; the rest of the target is frozen."""

    def __init__(self, reasoning: ReasoningStage):
        super().__init__()
        self.reasoning = reasoning
        target: AlpamayoTarget = reasoning.target
        target.requires_grad_(False)
        for part in (target.expert, target.action_in_proj, target.action_out_proj):
            part.requires_grad_(True)

    def forward(self, action: torch.Tensor, lengths: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
        """action [B, 64, 2] normalised, lengths [B] of the reasonings, cache [B, L, 2, H, T, D] -> mean flow loss."""
        positions, visible = self.reasoning.waypoints(lengths, cache.shape[4])
        past = [(layer[:, 0], layer[:, 1]) for layer in cache.float().unbind(1)]
        return self.reasoning.target.flow_matching_loss(action, past, positions, visible).mean()


@torch.no_grad()
def cache_prompts(stage: ReasoningStage, samples: SampleSet, features: torch.Tensor, bar) -> torch.Tensor:
    """Keys and values of every sample's prompt and reasoning, float16 [N, L, 2, H, T, D], padded at the end."""
    text = stage.target.config.text
    tokens = stage.prompt_length + max(len(ids) for ids, _ in samples.reasonings)
    cache = torch.zeros(len(samples), text.num_hidden_layers, 2, text.num_key_value_heads, tokens, text.head_dim,
                        dtype=torch.float16)
    for part in np.array_split(np.arange(len(samples)), -(-len(samples) // 32)):
        data = tensors(samples.batch(part), features, torch.device("cpu"))
        rows = torch.stack([torch.stack(pair) for pair in stage.text(data["token_ids"], data["features"]).key_values])
        cache[part[0]:part[-1] + 1, :, :, :, :rows.shape[4]] = rows.permute(2, 0, 1, 3, 4, 5)
        bar.advance(len(part))
    return cache


def train_action(reasoning: ReasoningStage, train: SampleSet, cache: torch.Tensor, validation: SampleSet,
                 validation_features: torch.Tensor, settings: ActionTraining, state_path: Path, bar, log,
                 on_evaluation=lambda step, record: None) -> dict[str, float]:
    """Runs the stage to its end, resuming from `state_path`. Returns the last validation record."""
    accelerator = Accelerator(cpu=not torch.cuda.is_available())
    stage = ActionStage(reasoning)
    optimizer = torch.optim.AdamW([p for p in stage.parameters() if p.requires_grad],
                                  weight_decay=settings.weight_decay, betas=(0.9, 0.98))
    step, record = load_state(state_path, stage, optimizer)
    model, optimizer = accelerator.prepare(stage, optimizer)
    bar.advance(step)
    while step < settings.steps:
        rng = np.random.default_rng([settings.seed, step, accelerator.process_index, 3])
        loss = action_step(model, optimizer, accelerator, train, cache, settings, step, rng)
        step += 1
        bar.advance(1, f"flow {loss:.3f}")
        log.add_scalar("action/flow", loss, step)
        if step % settings.evaluate_every == 0 or step == settings.steps:
            record = evaluate(reasoning, validation, validation_features)
            for name, value in record.items():
                log.add_scalar(f"action/validation/{name}", value, step)
            on_evaluation(step, record)
        if step % settings.save_every == 0 or step == settings.steps:
            save_state(state_path, stage, optimizer, step, record)
    return record


def action_step(model, optimizer, accelerator, train, cache, settings, step, rng) -> float:
    rows = train.draw(rng, settings.batch)
    torch.manual_seed(int(rng.integers(2**62)))  # flow times and noise follow from (seed, step)
    lengths = torch.tensor([len(train.reasonings[row][0]) for row in rows])
    for group in optimizer.param_groups:
        group["lr"] = cosine_rate(step, settings.steps, settings.learning_rate, settings.warmup)
    batch = (torch.from_numpy(train.actions[rows]), lengths, cache[torch.from_numpy(rows)])
    loss = model(*(tensor.to(accelerator.device) for tensor in batch))
    descend(accelerator, model, optimizer, loss)
    return float(loss.detach())
