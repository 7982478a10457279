"""Drafts by name. Imports and loads one only when it is asked for.

`a+b` is a company, the cheap ones first whatever order they are named in; "none" is plain decoding.
"""

from pathlib import Path

from specdrive_ros.draft.carryover import Carryover
from specdrive_ros.draft.company import Company, PassCosts
from specdrive_ros.draft.draft import Draft
from specdrive_ros.draft.phrasebook import FILE, Phrasebook
from specdrive_ros.errors import InputError
from specdrive_ros.target.tokens import TargetTokenizer

NO_DRAFT, CARRYOVER, PHRASEBOOK = "none", "carryover", "phrasebook"
NAMES = (CARRYOVER, PHRASEBOOK)  # the cheap ones first
DRAFTS_FOLDER = "drafts"  # in a checkpoint's folder


def check_names(spec: str) -> tuple[str, ...]:
    """The drafts of `a+b`, the cheap ones first; () for "none". Raises `InputError` for a name that is none."""
    if spec == NO_DRAFT:
        return ()
    names = spec.split("+")
    wrong = [name for name in names if name not in NAMES]
    if wrong or len(set(names)) < len(names):
        raise InputError(
            f"--draft {spec}: no such draft; choose {NO_DRAFT} or some of {', '.join(NAMES)} joined by +, each once"
        )
    return tuple(sorted(names, key=NAMES.index))


def load_company(spec: str, checkpoint: Path, tokenizer: TargetTokenizer, costs: PassCosts) -> Company:
    """The drafts of `a+b` for a checkpoint. Raises `InputError` for what is missing or was made for another model."""
    return Company([_load(name, Path(checkpoint), tokenizer) for name in check_names(spec)], costs)


def _load(name: str, checkpoint: Path, tokenizer: TargetTokenizer) -> Draft:
    if name == PHRASEBOOK:
        return Phrasebook.load(checkpoint / DRAFTS_FOLDER / FILE, tokenizer.fingerprint)
    return Carryover()
