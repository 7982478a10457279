"""Makes the draft of a cell: distilled or post-trained, resumable, with its graphs if the runtime needs them.

Two cells of one kind differ only in what their names say; states of the target are cached once for all.
"""

import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

from specdrive_ros.evaluation.ablation.cells import DISTILLED, Cell
from specdrive_ros.model_settings import ModelSettings
from specdrive_ros.training.aarl_reward import Rewards
from specdrive_ros.training.aarl_run import AarlRun
from specdrive_ros.training.aarl_training import AarlTraining
from specdrive_ros.training.draft_features import FeatureSettings
from specdrive_ros.training.draft_training import DraftRun, DraftTraining

DONE = "training.json"


@dataclass(frozen=True)
class Making:
    """features: settings of the states on disk; distillation and aarl: the settings of all cells, except kind, rope,
    anchor and seed; runtime: the one measured; log: folder -> a TensorBoard writer.
    """

    model: ModelSettings
    data: Path
    out: Path
    features: FeatureSettings
    distillation: DraftTraining
    aarl: AarlTraining
    runtime: str
    progress: Callable
    log: Callable[[Path], object]
    states: Path | None = None  # the target's states, if already cached elsewhere; None: inside `out`
    rewards: list[Rewards] = field(init=False, default_factory=list)  # of the first post-trained cell, for the others

    def make(self, cell: Cell) -> Path:
        """Makes the draft unless it is there; returns its folder."""
        folder = cell.folder(self.out)
        if not (folder / "run" / DONE).exists():
            with closing(self.log(folder / "run" / "tensorboard")) as log:
                run = self.run(cell, log)
                run.run()
            if cell.stage != DISTILLED:
                self.rewards[:] = [run.rewards]
        if self.runtime != "torch" and not list(folder.glob("*.onnx")):
            self._export(folder)
        return folder

    def run(self, cell: Cell, log) -> DraftRun | AarlRun:
        """The training run of a cell, which resumes where it stopped."""
        folder, states = cell.folder(self.out), self.states or self.out / "features"
        if cell.stage == DISTILLED:
            training = replace(self.distillation, kind=cell.kind, rope=cell.rope, seed=cell.seed)
            return DraftRun(
                self.model.checkpoint, self.data, states, folder, training, self.features, self.progress, log
            )
        training = replace(self.aarl, anchor=cell.stage, seed=cell.seed)
        return AarlRun(
            self.model,
            cell.distilled.folder(self.out),
            self.data,
            states,
            folder,
            training,
            self.progress,
            log,
            self.features.count,
            rewards=next(iter(self.rewards), None),
        )

    def _export(self, folder: Path) -> None:
        from specdrive_ros.runtime.draft_export import export_draft
        from specdrive_ros.target.config import TargetConfig

        export_draft(folder, folder, TargetConfig.load(self.model.checkpoint).text)


def curve_of(folder: Path) -> list[dict]:
    """The curve of a post-trained cell; [] for a distilled one."""
    record = json.loads((folder / "run" / DONE).read_text(encoding="utf-8"))
    return record.get("curve", [])
