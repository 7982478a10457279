"""Starts a training run from the weights of an earlier target or draft instead of random ones.

Vocabulary rows follow their tokens, so the texts may have changed; whatever depends on another normalisation or other
Fourier features of actions starts anew.
"""

from dataclasses import fields
from pathlib import Path

import torch

from specdrive_ros.draft.checkpoint import load_draft_network
from specdrive_ros.draft.dflash_network import DFlash
from specdrive_ros.draft.eagle3_network import Eagle3
from specdrive_ros.errors import InputError
from specdrive_ros.target.checkpoint import load_target
from specdrive_ros.target.config import TextConfig
from specdrive_ros.target.network import AlpamayoTarget
from specdrive_ros.target.tokens import TargetTokenizer

VOCABULARY_ROWS = ("vlm.model.language_model.embed_tokens.weight", "vlm.lm_head.weight")
OF_ITS_TARGET = ("target", "draft_vocab_size", "mask_token_id")  # settings that a draft of another target may differ in
ACTION_PARTS = ("expert.", "action_in_proj.", "action_out_proj.")


@torch.no_grad()
def warm_start(target: AlpamayoTarget, folder: Path) -> list[str]:
    """Copies what fits from the checkpoint in `folder`; returns the names of the weights that start anew.

    Raises InputError if the networks have different sizes.
    """
    source = load_target(folder)
    given, wanted = ((each.config.action_space, each.config.action_input) for each in (source, target))
    same_actions = given == wanted
    given, fresh = dict(source.named_parameters()), []
    for name, parameter in target.named_parameters():
        if name.startswith(ACTION_PARTS) and not same_actions:
            fresh.append(name)
            continue
        rows = name in VOCABULARY_ROWS
        shape, found = parameter.shape[rows:], given[name].shape[rows:] if name in given else "missing"
        if found != shape:
            raise InputError(f"cannot start from {folder}: {name} is {found} there and {shape} in the model to train")
        if rows:
            copy_vocabulary_rows(parameter, given[name], target, source)
        else:
            parameter.copy_(given[name])
    return fresh


def copy_vocabulary_rows(rows: torch.Tensor, given: torch.Tensor, target: AlpamayoTarget,
                         source: AlpamayoTarget) -> None:
    """Copies rows of `given` [V', E] (`source`'s tokens) to `rows` [V, E] (`target`'s) for tokens that both have."""
    tokenizers = (TargetTokenizer.load(each.config).tokenizer for each in (target, source))
    own, theirs = (tokenizer.get_vocab(with_added_tokens=True) for tokenizer in tokenizers)
    shared = sorted(own.keys() & theirs.keys())
    rows[[own[token] for token in shared]] = given[[theirs[token] for token in shared]]


@torch.no_grad()
def warm_start_draft(draft: Eagle3 | DFlash, folder: Path, text: TextConfig) -> None:
    """Copies the weights of the draft in `folder`, which may have been trained for another target of the same
    tokenizer; rows of EAGLE-3's output head follow their words.

    Raises InputError if it is of another kind, or differs in anything that training cannot change.
    """
    source = load_draft_network(folder, text)
    if type(source) is not type(draft):
        raise InputError(f"cannot start from {folder}: is {type(source).__name__}, must be {type(draft).__name__}")
    for name in (field.name for field in fields(draft.config) if field.name not in OF_ITS_TARGET):
        found, wanted = getattr(source.config, name), getattr(draft.config, name)
        if found != wanted:
            raise InputError(f"cannot start from {folder}: {name} is {found} there, must be {wanted}")
    given = dict(source.named_parameters())
    for name, parameter in draft.named_parameters():
        if name == "lm_head.weight":
            copy_word_rows(draft, source)
        else:
            parameter.copy_(given[name])


def copy_word_rows(draft: Eagle3, source: Eagle3) -> None:
    """Copies the output head's rows of the words that both know."""
    places = torch.full((draft.config.vocab_size,), -1)
    places[source.token_ids] = torch.arange(len(source.token_ids))
    found = places[draft.token_ids]
    draft.lm_head.weight[found >= 0] = source.lm_head.weight[found[found >= 0]]
