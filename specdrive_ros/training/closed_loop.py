"""How well a model in training drives: the criterion of early stopping.

Neither loss nor displacement tells whether a model keeps its lane: one with half the displacement error of constant
velocity left the road in nine of twelve worlds.
"""

import json
import shutil
from pathlib import Path

from specdrive_ros.atomic_file import atomic_write
from specdrive_ros.cycle import Planner
from specdrive_ros.evaluation.drive import DriveLog, drive_all_offline
from specdrive_ros.runtime.export import export_checkpoint
from specdrive_ros.runtime.weights_file import WEIGHTS
from specdrive_ros.training.scenes import VALIDATION_SEED_BASE

LATENCY_S = 0.25
FIRST_SEED = VALIDATION_SEED_BASE + 500_000  # recorded validation worlds have smaller seeds


def share_driven(checkpoint: Path, families: tuple[str, ...], worlds: int) -> float:
    """Share of `worlds` held-out worlds, families in turn, in which the checkpoint reaches the goal.

    Writes the checkpoint's ONNX graphs beside its weights.
    """
    export_checkpoint(checkpoint, checkpoint)
    scenarios = [(families[number % len(families)], FIRST_SEED + number // len(families)) for number in range(worlds)]
    log = DriveLog()
    drive_all_offline(Planner.load(checkpoint), scenarios, log, latency_s=LATENCY_S)
    return sum(result.outcome == "success" for result in log.results()) / worlds


class BestCheckpoint:
    """The weights that drove best so far, kept in the run's folder; ties go to the smaller displacement."""

    def __init__(self, folder: Path):
        self.weights, self.score = folder / "best.safetensors", folder / "best.json"

    def offer(self, checkpoint: Path, step: int, driven: float, displacement_m: float) -> bool:
        """Keeps a copy of the checkpoint's weights if they are the best so far; returns whether they are."""
        best = json.loads(self.score.read_text()) if self.score.exists() else None
        if best and (best["driven"], -best["displacement_m"]) >= (driven, -displacement_m):
            return False
        with atomic_write(self.weights) as unfinished:
            shutil.copyfile(checkpoint / WEIGHTS, unfinished)
        self.score.write_text(json.dumps({"step": step, "driven": driven, "displacement_m": displacement_m}))
        return True

    def restore(self, checkpoint: Path) -> None:
        """Puts the best weights into the checkpoint."""
        shutil.copyfile(self.weights, checkpoint / WEIGHTS)
