"""rows.jsonl: one line per sample and condition, with everything the figures are computed from.

Numbers are rounded when a row is made, so a row that is read back equals the row that was written.
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np

from specdrive_ros.atomic_file import atomic_write
from specdrive_ros.errors import InputError
from specdrive_ros.evaluation.looking.conditions import AS_IT_IS, CONDITIONS
from specdrive_ros.shapes import FUTURE_WAYPOINTS, HISTORY_POSES

Poses = list[list[float]]  # [n][x m, y m, yaw rad] in the ego frame at t0
Key = tuple[str, int]
KINDS = {str: str, int: int, float: (int, float), bool: bool, list[int]: list, list[list[int]]: list}


@dataclass(frozen=True)
class Row:
    """One plan.

    label, spans:  the expert's sentence, and its character spans that only the image can determine.
    token_ids:     what was written, closing tokens included.
    choices:       greedy choices along the answer of condition `as_it_is`, made by the model under this condition.
    plan, future:  [64] poses, planned and the expert's; history: [16] of the ego; lane: of the centre of its lane.
    speed_mps:     at t0, of the true history; baselines use it whatever the condition.
    other_family, other_seed: the sample whose cameras condition `other_scene` shows.
    """

    family: str
    seed: int
    time_s: float
    condition: str
    label: str
    spans: list[list[int]]
    decision: str
    cause: str
    reasoning: str
    truncated: bool
    token_ids: list[int]
    choices: list[int]
    plan: Poses
    future: Poses
    history: Poses
    lane: Poses
    speed_mps: float
    other_family: str
    other_seed: int

    def __post_init__(self):
        for field in fields(self):
            wanted = KINDS.get(field.type)
            if wanted and not isinstance(getattr(self, field.name), wanted):
                raise InputError(f"{field.name}: {getattr(self, field.name)!r}, must be {field.type}")
        if self.condition not in CONDITIONS:
            raise InputError(f"condition {self.condition!r}: must be one of {', '.join(CONDITIONS)}")
        for name, count in (("plan", FUTURE_WAYPOINTS), ("future", FUTURE_WAYPOINTS), ("history", HISTORY_POSES),
                            ("lane", None)):
            check_poses(name, getattr(self, name), count)
        if not self.choices:
            raise InputError("choices: none, a row has one for each token of the answer as it is")

    @property
    def key(self) -> Key:
        return self.family, self.seed


def check_poses(name: str, poses: Poses, count: int | None) -> None:
    """Raises InputError unless these are `count` poses (None: one or more) of finite numbers."""
    array = np.array(poses, float)
    wanted = (count or max(len(poses), 1), 3)
    if array.shape != wanted or not np.isfinite(array).all():
        raise InputError(f"{name}: shape {list(array.shape)}, must be {list(wanted)} finite numbers (x, y, yaw)")


def rounded(poses: np.ndarray) -> Poses:
    """Rounded to 0.1 mm and 0.1 mrad."""
    return np.round(np.asarray(poses, float), 4).tolist()


def write_rows(path: Path, rows: Iterable[Row]) -> None:
    """Writes one JSON object per line; replaces the file in one step."""
    with atomic_write(path) as unfinished, unfinished.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(asdict(row)) + "\n")


def read_rows(path: Path) -> list[Row]:
    """The rows of a file. Raises InputError naming the first line that is not a row."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path}: {error}") from error
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            rows.append(_row_of(json.loads(line)))
        except (InputError, TypeError, ValueError) as error:
            raise InputError(f"{path}, line {number}: no row of `looking` ({error})") from error
    return rows


def _row_of(values: object) -> Row:
    names = {field.name for field in fields(Row)}
    if not isinstance(values, dict) or set(values) != names:
        raise InputError(f"must be an object with {', '.join(sorted(names))}")
    return Row(**values)


def by_sample(rows: Iterable[Row]) -> dict[Key, dict[str, Row]]:
    """(family, seed) -> condition -> row. Raises InputError unless every sample has each condition exactly once."""
    samples: dict[Key, dict[str, Row]] = {}
    for row in rows:
        if row.condition in samples.setdefault(row.key, {}):
            raise InputError(f"rows: {row.family} seed {row.seed} is there twice under {row.condition}")
        samples[row.key][row.condition] = row
    for (family, seed), conditions in samples.items():
        missing = [name for name in CONDITIONS if name not in conditions]
        if missing:
            raise InputError(f"rows: {family} seed {seed} has no {', '.join(missing)}")
        lengths = {len(row.choices) for row in conditions.values()} | {len(conditions[AS_IT_IS].token_ids)}
        if len(lengths) > 1:
            raise InputError(f"rows: {family} seed {seed} has choices of different lengths {sorted(lengths)}")
    if not samples:
        raise InputError("rows: none; run `looking` with --samples 1 or more")
    return samples
