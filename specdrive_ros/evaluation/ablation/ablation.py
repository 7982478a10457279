"""The whole ablation: makes every cell's draft, measures it, analyses it, and collects everything in one document.

Resumable per cell: what is in the folder and answers the same question is not made again.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

from specdrive_ros.cycle import Planner
from specdrive_ros.draft.layout import read_draft_config
from specdrive_ros.draft.target_identity import fingerprint_of
from specdrive_ros.errors import InputError
from specdrive_ros.evaluation.ablation import figures
from specdrive_ros.evaluation.ablation.cells import Cell
from specdrive_ros.evaluation.ablation.looked import (
    LOOKED,
    attention_by_row,
    frozen_target,
    look_at,
    read_looked,
    tokens_by_row,
    write_looked,
)
from specdrive_ros.evaluation.ablation.making import Making, curve_of
from specdrive_ros.evaluation.ablation.measuring import ROWS, Row, load_chain, measure, read_rows, write_rows
from specdrive_ros.evaluation.ablation.prompts import HELD_OUT, SPLITS, prompts
from specdrive_ros.evaluation.ablation.tokens import NEEDS, needs_of
from specdrive_ros.evaluation.ablation.traces import Trace, trace
from specdrive_ros.evaluation.looking.samples import HeldOutSample
from specdrive_ros.sim.scenario import FAMILIES

SETTINGS, NEEDED = "settings.json", "needs.json"


@dataclass(frozen=True)
class Question:
    """prompts: of each split; plans: how many of them have their plans compared; traced: held-out prompts for which
    attention and tokens are analysed; seed: of the first held-out world.
    """

    blocks: tuple[int, ...] = (8, 16)
    prompts: int = 120
    plans: int = 20
    traced: int = 40
    seed: int = 400
    threads: int = 1


class Ablation:
    def __init__(self, making: Making, planner: Planner, cells: Sequence[Cell], question: Question):
        self.making, self.planner, self.cells, self.question = making, planner, list(cells), question
        self.families = planner.settings.scenarios or FAMILIES
        self._samples: dict[str, list[HeldOutSample]] = {}

    def run(self) -> dict:
        """The contents of ablation.json."""
        self._check_settings()
        folders = {cell: self.making.make(cell) for cell in self._shown("drafts", self.cells)}
        measured = {
            cell: self._measured(cell, folder) for cell, folder in self._shown("cells measured", folders.items())
        }
        looked = {cell: self._looked(folder) for cell, folder in self._shown("cells looked at", folders.items())}
        records = figures.table(measured, self._overheads(folders))
        return {
            "version": 1,
            "model": str(self.making.model.checkpoint),
            "target": self._target,
            "runtime": self.making.runtime,
            **asdict(self.question),
            "conventions": figures.__doc__,
            "theoretical_formula": figures.THEORETICAL,
            "distillation": asdict(self.making.distillation),
            "aarl": asdict(self.making.aarl),
            "table": records,
            "comparisons": figures.comparisons(measured),
            "best": {split: figures.best(records, split) for split in SPLITS},
            "curves": {cell.name: curve for cell, folder in folders.items() if (curve := curve_of(folder))},
            "attention": attention_by_row(looked),
            "tokens": tokens_by_row(looked, self._needs),
        }

    def _shown(self, name: str, items: Sequence) -> Iterator:
        """The items one by one, under a progress bar."""
        with self.making.progress(name, len(items)) as bar:
            for item in items:
                yield item
                bar.advance(1)

    def _measured(self, cell: Cell, folder: Path) -> list[Row]:
        asked = self._asked | {"runtime": self.making.runtime}
        if (known := read_rows(folder / ROWS, asked)) is not None:
            return known
        draft = load_chain(folder, self.planner, self.making.runtime, self.question.threads, max(self.question.blocks))
        rows = [
            row
            for split in SPLITS
            for row in measure(
                self.planner, draft, split, self._prompts(split), self.question.blocks, self.question.plans
            )
        ]
        write_rows(folder / ROWS, asked, rows)
        return rows

    def _looked(self, folder: Path) -> dict:
        if (known := read_looked(folder / LOOKED, self._asked)) is not None:
            return known
        target, text = self._frozen
        found = look_at(folder, text, target, self.planner.networks.tap_layers, self._traces, max(self.question.blocks))
        write_looked(folder / LOOKED, self._asked, found)
        return found

    @property
    def _asked(self) -> dict:
        """What a cell's figures depend on besides its draft, as JSON."""
        question = {**asdict(self.question), "blocks": list(self.question.blocks)}
        return question | {"target": self._target, "families": list(self.families)}

    @cached_property
    def _target(self) -> str:
        return fingerprint_of(self.making.model.checkpoint)

    def _prompts(self, split: str) -> list[HeldOutSample]:
        if split not in self._samples:
            with self.making.progress(f"prompts, {split}", self.question.prompts) as bar:
                self._samples[split] = prompts(
                    split, self.families, self.question.prompts, self.question.seed, lambda: bar.advance(1)
                )
        return self._samples[split]

    @cached_property
    def _traces(self) -> list[Trace]:
        """Held-out prompts, equally many of every family."""
        samples = self._prompts(HELD_OUT)
        step = max(1, len(samples) // self.question.traced)
        return [trace(self.planner, sample) for sample in samples[::step][: self.question.traced]]

    @cached_property
    def _frozen(self):
        return frozen_target(self.making.model.checkpoint, self.planner.rules.forbidden)

    @property
    def _needs(self) -> list[dict[str, list[bool]]]:
        """What each token of the traced answers needs; kept in a file."""
        path = self.making.out / NEEDED
        known = read_looked(path, self._asked)
        if known is None:
            found = [{need: each[need].tolist() for need in NEEDS} for each in needs_of(self.planner, self._traces)]
            write_looked(path, self._asked, known := {"needs": found})
        return known["needs"]

    def _overheads(self, folders: dict[Cell, Path]) -> dict[figures.Key, float]:
        layers = self.planner.config.text.num_hidden_layers
        found = {}
        for cell, folder in folders.items():
            own = read_draft_config(folder, self.planner.config.text).num_hidden_layers
            for split in SPLITS:
                for block in self.question.blocks:
                    found[cell.row, split, block] = figures.draft_overhead(cell.kind, block, own, layers)
        return found

    def _check_settings(self) -> None:
        """Raises InputError for a folder made with another target or recipe, whose drafts would not be made again."""
        making, path = self.making, self.making.out / SETTINGS
        record = json.loads(
            json.dumps(
                {
                    "target": self._target,
                    "features": asdict(making.features),
                    "distillation": asdict(making.distillation),
                    "aarl": asdict(making.aarl),
                }
            )
        )
        found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else record
        if differing := ", ".join(name for name in record if found.get(name) != record[name]):
            raise InputError(
                f"{making.out}: holds an ablation with another {differing}; delete it or name another folder"
            )
        path.write_text(json.dumps(record, indent=1), encoding="utf-8")
