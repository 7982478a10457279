"""What is compared: each cell is one trained draft. Knows no network."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from specdrive_ros.errors import InputError

KINDS = ("eagle3", "dflash")
ROPES = ("mirror", "flat")
DISTILLED, STATIC, SELF = "distilled", "static", "self"
STAGES = (DISTILLED, STATIC, SELF)
MIRROR_AARL_SEEDS = 1  # AARL on mirror is included for completeness


@dataclass(frozen=True, order=True)
class Cell:
    kind: str
    rope: str
    stage: str
    seed: int

    @property
    def row(self) -> str:
        """The table's row: `dflash-flat`, or post-trained `dflash-flat+static`."""
        return f"{self.kind}-{self.rope}" + ("" if self.stage == DISTILLED else f"+{self.stage}")

    @property
    def name(self) -> str:
        return f"{self.row}/seed{self.seed}"

    @property
    def distilled(self) -> "Cell":
        """The cell whose draft this one starts from."""
        return Cell(self.kind, self.rope, DISTILLED, self.seed)

    def folder(self, out: Path) -> Path:
        return out / "cells" / self.row / f"seed{self.seed}"


def all_cells(seeds: int, kinds: Sequence[str] = KINDS) -> list[Cell]:
    """Distilled cells first, so that each precedes those that start from it."""
    cells = [Cell(kind, rope, DISTILLED, seed) for kind in kinds for rope in ROPES for seed in range(seeds)]
    for kind in kinds:
        for rope in ROPES:
            count = seeds if rope == "flat" else min(seeds, MIRROR_AARL_SEEDS)
            cells += [Cell(kind, rope, stage, seed) for stage in (STATIC, SELF) for seed in range(count)]
    return cells


def choose_cells(cells: list[Cell], rows: Sequence[str]) -> list[Cell]:
    """The cells of the named rows and the distilled ones they start from; all if none is named. Raises InputError."""
    known = list(dict.fromkeys(cell.row for cell in cells))
    if wrong := [row for row in rows if row not in known]:
        raise InputError(f"--rows {wrong[0]}: no such row; choose some of {', '.join(known)}")
    wanted = {cell for cell in cells if not rows or cell.row in rows}
    wanted |= {cell.distilled for cell in wanted}
    return [cell for cell in cells if cell in wanted]
