"""The settings a training run was begun with. A resumed run must have the same."""

import json
from pathlib import Path

from specdrive_ros.errors import InputError

FILE = "run.json"


def check_run_record(run_folder: Path, record: dict) -> None:
    """Writes the record if there is none yet. Raises InputError if the run was begun with another or it is
    unreadable."""
    path = run_folder / FILE
    try:
        found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else record
    except ValueError as error:
        raise InputError(f"{path}: is no record of a run ({error}); delete the folder or name another") from None
    if differing := ", ".join(sorted(name for name in record if found.get(name) != record[name])):
        raise InputError(f"{run_folder}: is a run with another {differing}; delete it or name another folder")
    if not path.exists():
        run_folder.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(record, indent=1), encoding="utf-8")
