"""Drafts by name. Imports and loads one only when asked for it.

| name | what | where |
|---|---|---|
| carryover | the previous cycle's reasoning | |
| phrasebook | a trie of known sentences | `drafts/phrasebook.safetensors` in the model's folder |
| eagle3-flat, eagle3-mirror, dflash-flat, dflash-mirror | a network | the folder `drafts/NAME` there |

`eagle3` and `dflash` mean the flat ones. `a+b` is a company, the cheap ones first whatever the order of the names;
"none" is plain decoding.
"""

import logging
from pathlib import Path

import numpy as np

from specdrive_ros.decoding.rules import ReasoningRules
from specdrive_ros.draft.asking import AskingCost
from specdrive_ros.draft.carryover import Carryover
from specdrive_ros.draft.company import Company, PassCosts
from specdrive_ros.draft.draft import Draft
from specdrive_ros.draft.phrasebook import FILE, Phrasebook
from specdrive_ros.draft.rope import ROPES
from specdrive_ros.errors import InputError
from specdrive_ros.model_settings import ModelSettings
from specdrive_ros.runtime.networks import TargetNetworks
from specdrive_ros.target.tokens import TargetTokenizer

NO_DRAFT, CARRYOVER, PHRASEBOOK = "none", "carryover", "phrasebook"
NETWORK_KINDS = ("eagle3", "dflash")
NETWORKS = tuple(f"{kind}-{rope}" for kind in NETWORK_KINDS for rope in ROPES)
NAMES = (CARRYOVER, PHRASEBOOK, *NETWORKS)  # the cheap ones first
DRAFTS_FOLDER = "drafts"  # in a checkpoint's folder
log = logging.getLogger(__name__)


def check_names(spec: str, said_by: str = "--draft") -> tuple[str, ...]:
    """The drafts in `a+b`, the cheap ones first; () for "none". Raises `InputError` for an unknown or repeated name.

    said_by: where the user wrote it.
    """
    if spec == NO_DRAFT:
        return ()
    names = [f"{name}-{ROPES[0]}" if name in NETWORK_KINDS else name for name in spec.split("+")]
    wrong = [name for name in names if name not in NAMES]
    if wrong or len(set(names)) < len(names):
        raise InputError(
            f"{said_by} {spec}: no such draft; choose {NO_DRAFT} or some of {', '.join(NAMES)} joined by +, each once"
        )
    return tuple(sorted(names, key=NAMES.index))


def rope_of(spec: str) -> str | None:
    """The rotary setting of the networks in `a+b`; None if there are none or they differ."""
    ropes = {name.partition("-")[2] for name in check_names(spec) if name in NETWORKS}
    return ropes.pop() if len(ropes) == 1 else None


def draft_path(checkpoint: str | Path, name: str) -> Path:
    """Path of a model's draft: a file for the phrasebook, a folder for a network."""
    return Path(checkpoint) / DRAFTS_FOLDER / (FILE if name == PHRASEBOOK else name)


def own_draft(settings: ModelSettings) -> str:
    """The draft named in a model's settings, as far as its folder has it: used unless another is asked for."""
    check_names(settings.draft, "the model's settings, draft:")
    return available(settings.draft, settings.checkpoint)


def available(spec: str, checkpoint: str | Path) -> str:
    """The drafts of `a+b` that a model's folder has; "none" if it has none of them."""
    names = [name for name in check_names(spec) if name == CARRYOVER or draft_path(checkpoint, name).exists()]
    if missing := set(check_names(spec)) - set(names):
        log.info("%s has no %s in its drafts; the reasoning goes on without", checkpoint, ", ".join(sorted(missing)))
    return "+".join(names) or NO_DRAFT


def load_company(
    spec: str, networks: TargetNetworks, tokenizer: TargetTokenizer, rules: ReasoningRules, costs: PassCosts,
    checkpoint: str | Path | None = None,
) -> Company:  # fmt: skip
    """The drafts of `a+b` for a model. Raises `InputError` if one is missing or was made for another model.

    checkpoint: the folder that has `drafts/`; None: that of the networks.
    """
    folder = Path(checkpoint or networks.config.folder)
    drafts: list[Draft] = []
    asking: dict[str, AskingCost] = {}
    for name in check_names(spec):
        if name in NETWORKS:
            draft, asking[name] = _network(name, folder, networks, rules, costs)
        else:
            draft = _plain(name, folder, tokenizer)
        drafts.append(draft)
    return Company(drafts, costs, asking, len(rules.forbidden))


def _plain(name: str, folder: Path, tokenizer: TargetTokenizer) -> Draft:
    if name == PHRASEBOOK:
        return Phrasebook.load(draft_path(folder, name), tokenizer.fingerprint)
    return Carryover()


def _network(
    name: str, folder: Path, networks: TargetNetworks, rules: ReasoningRules, costs: PassCosts
) -> tuple[Draft, AskingCost]:
    """A network as a draft, in the size that pays off, and the cost of asking it."""
    from specdrive_ros.draft.network_draft import NetworkDraft
    from specdrive_ros.runtime.drafts import asking_cost, load_draft, shape

    path, (kind, _, rope) = draft_path(folder, name), name.partition("-")
    if not path.is_dir():
        raise InputError(
            f"{path}: no such draft; train it with: ./specdrive train draft --kind {kind} --rope {rope} --model MODEL"
        )
    words = np.flatnonzero(~rules.forbidden)
    inner = load_draft(path, networks, words=words, end_token=rules.future_start, **shape(costs))
    if (inner.name, inner.config.rope) != (kind, rope):
        found = f"{inner.name}-{inner.config.rope}"
        raise InputError(f"{path}: holds the draft {found}; it must lie in a folder of its name")
    return NetworkDraft(name, inner), costs.drafts.get(name) or asking_cost(inner, costs)
