"""Vision learns the colour of lights that are still far away, without forgetting how it speaks.

On held-out frames the signal's class is right in 97 %: most show none, or a red one close by. On approaches from
30 m vision often called green red. Here approaches are drawn with the lamp in a random colour, everything else as
it was, so that only the lamp can tell. The heads stay as they are and features of ordinary frames are held where
they were: the language model, trained on those features, goes on understanding them.
"""

import copy
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from specdrive_ros.sim.camera import render
from specdrive_ros.sim.scenario import make_world
from specdrive_ros.sim.traffic import SIGNAL_COLOURS
from specdrive_ros.training.scenes import CAMERA, PHYSICS_STEP_S, TRAIN_SEED_BASE
from specdrive_ros.training.state import cosine_rate
from specdrive_ros.training.target_training import VisionStage, frame_levels, frame_patches
from specdrive_ros.training.vision_pretraining import FrameSampler

FRAME_EVERY_S = 0.35
FIRST_SEED = TRAIN_SEED_BASE + 500_000


@dataclass(frozen=True)
class SignalRefinement:
    """Settings. `anchor` weighs how far features may move, against the classification of the signal."""

    worlds: int = 700
    steps: int = 450
    batch: int = 16
    learning_rate: float = 2e-4
    anchor: float = 4.0
    signal_anchor: float = 0.5
    seed: int = 0


def approach_frames(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Frames [N, H, W, 3] of one world while its signal matters, lamp colours drawn anew, and signal classes [N]."""
    rng = np.random.default_rng([seed, 11])
    world = make_world("traffic_light", seed)
    frames, classes = [], []
    while world.outcome() is None:
        if world.steps % round(FRAME_EVERY_S / PHYSICS_STEP_S) == 0 and world.intent.signal != "none":
            colour = int(rng.integers(len(SIGNAL_COLOURS)))
            frames.append(render(world, CAMERA, signal_override=SIGNAL_COLOURS[colour]))
            classes.append(1 + colour)
            if world.ego.speed < 0.1 and len(frames) > 30:
                break  # a long wait shows the same picture again and again
        world.step(PHYSICS_STEP_S, world.expert_command())
    return np.array(frames, np.uint8).reshape(-1, *frames[0].shape) if frames else np.empty((0, 1, 1, 3)), np.array(classes)


def draw_approaches(worlds: int, workers: int) -> tuple[np.ndarray, np.ndarray]:
    with ProcessPoolExecutor(workers) as pool:
        parts = [part for part in pool.map(approach_frames, range(FIRST_SEED, FIRST_SEED + worlds), chunksize=8)
                 if len(part[1])]
    return np.concatenate([frames for frames, _ in parts]), np.concatenate([classes for _, classes in parts])


def refine_signals(stage: VisionStage, approaches: tuple[np.ndarray, np.ndarray], ordinary: FrameSampler,
                   settings: SignalRefinement, bar) -> None:
    """Changes the vision encoder of `stage` in place."""
    frames, classes = approaches
    target, column = stage.target[0], list(stage.heads.scene_labels).index("signal")
    stage.requires_grad_(False)
    target.vlm.model.visual.requires_grad_(True)
    optimizer = torch.optim.AdamW(target.vlm.model.visual.parameters(), weight_decay=0.01, betas=(0.9, 0.98))
    held = Reference(stage)
    for step in range(settings.steps):
        rng = np.random.default_rng([settings.seed, step, 4])
        for group in optimizer.param_groups:
            group["lr"] = cosine_rate(step, settings.steps, settings.learning_rate, warmup=20)
        chosen = rng.integers(len(frames), size=settings.batch)
        both = np.concatenate([frames[chosen], ordinary.draw(rng, settings.batch)[0]])
        patches, grid = frame_patches(both, target)
        levels = frame_levels(target, patches, grid)
        drift = [((new - old) ** 2).mean((1, 2)) / old.var() for new, old in zip(levels, held.levels(patches, grid))]
        labels = torch.full((settings.batch, len(stage.heads.scene_labels)), -1)
        labels[:, column] = torch.from_numpy(classes[chosen])
        logits = stage.heads([level[:settings.batch] for level in levels])
        colour = stage.heads.loss(logits, labels) * len(stage.heads.scene_labels)
        moved = sum(each[:settings.batch].mean() * settings.signal_anchor + each[settings.batch:].mean() * settings.anchor
                    for each in drift) / len(drift)
        optimizer.zero_grad(set_to_none=True)
        (colour + moved).backward()
        nn.utils.clip_grad_norm_(target.vlm.model.visual.parameters(), 1.0)
        optimizer.step()
        bar.advance(1, f"colour {float(colour.detach()):.3f} drift {float(sum(d.detach().mean() for d in drift)):.4f}")


class Reference:
    """The encoder as it was before."""

    def __init__(self, stage: VisionStage):
        self.target = copy.copy(stage.target[0])
        self.target._modules = dict(stage.target[0]._modules)
        self.target._modules["vlm"] = copy.deepcopy(stage.target[0].vlm)

    @torch.no_grad()
    def levels(self, patches: torch.Tensor, grid: torch.Tensor) -> list[torch.Tensor]:
        return frame_levels(self.target, patches, grid)
