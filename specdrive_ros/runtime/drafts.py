"""Makes a draft that proposes, on a given runtime, from a draft folder and a target's networks.

Checks everything that could make it a draft for another target. Imports torch only for the torch runtime.
"""

import logging
from pathlib import Path

import numpy as np

from specdrive_ros.draft.asking import AskingCost, estimate
from specdrive_ros.draft.company import PassCosts
from specdrive_ros.draft.config import DFlashConfig, Eagle3Config
from specdrive_ros.draft.dflash import DFlashDraft
from specdrive_ros.draft.eagle3 import DEPTH, TOP_K, Eagle3Draft
from specdrive_ros.draft.layout import read_draft_config
from specdrive_ros.draft.taps import TapSelection
from specdrive_ros.draft.target_identity import check_fingerprint, fingerprint_of, output_head
from specdrive_ros.engine.faults import EngineMissing
from specdrive_ros.errors import InputError
from specdrive_ros.runtime.networks import TargetNetworks

RUNTIMES = ("onnxruntime", "torch", "tensorrt")
log = logging.getLogger(__name__)
WIDE = 60  # nodes of EAGLE-3's published tree
CHAIN = 15  # tokens EAGLE-3 runs ahead if only a few nodes pay off
LEAST_LIKELY = float(np.log(0.3))  # of a path; below, running further ahead costs more than it gains


def shape(costs: PassCosts) -> dict:
    """How EAGLE-3 runs ahead (arguments of `load_draft`): the published tree if wide passes are as good as free,
    otherwise a chain that stops where it becomes unsure."""
    if costs.most_nodes >= WIDE:
        return {"depth": DEPTH, "top_k": TOP_K}
    return {"depth": min(CHAIN, costs.most_nodes) - 1, "top_k": 1, "least": LEAST_LIKELY}


def pass_share(draft: Eagle3Draft | DFlashDraft) -> float:
    """Cost of a proposal, in passes of the target: the draft's own passes times its share of the layers."""
    passes = 2 if isinstance(draft, DFlashDraft) else 1 + min(draft.depth, DEPTH)
    return passes * draft.config.num_hidden_layers / draft.config.target_layers


def asking_cost(draft: Eagle3Draft | DFlashDraft, costs: PassCosts) -> AskingCost:
    """Estimated cost of asking a draft on a machine where the target's passes cost this much; not measured."""
    layers = draft.config.num_hidden_layers / draft.config.target_layers
    row_ms = float(costs.of(17) - costs.of(1)) / 16
    if isinstance(draft, DFlashDraft):
        return estimate(layers, 2, float(costs.of(draft.block_size)) / 2, row_ms)
    return estimate(layers, 1 + min(draft.depth, DEPTH), float(costs.of(draft.top_k)), row_ms)


def load_draft(
    folder: str | Path, networks: TargetNetworks, runtime: str | None = None, *, words: np.ndarray | None = None,
    threads: int = 1, depth: int = DEPTH, top_k: int = TOP_K, least: float = -np.inf, block_size: int | None = None,
    end_token: int | None = None,
) -> Eagle3Draft | DFlashDraft:  # fmt: skip
    """Loads a draft. Raises `InputError` naming the folder if the draft is for another target than `networks`.

    runtime: None: that of the networks, or ONNX Runtime beside engines if the draft has none; words: ids that the
    target may write, None: all; depth, top_k and least shape EAGLE-3's tree, block_size DFlash's block; end_token: the
    target's token that ends a reasoning, after which nothing is proposed.
    """
    _check_runtime(runtime or networks.runtime, networks)
    folder, target = Path(folder), networks.config
    config = read_draft_config(folder, target.text)
    check_fingerprint(config, fingerprint_of(target.folder), str(folder))
    check_mask_token(config, target.vocabulary.traj_token_start_idx, target.vocabulary.traj_vocab_size, str(folder))
    select = TapSelection(config.tap_layers, networks.tap_layers, config.hidden_size, str(folder))
    made = _networks(folder, config, networks, runtime, words, threads)
    more = {"select": select, "end_token": end_token, "cache": made.new_cache() if hasattr(made, "new_cache") else None}
    if isinstance(config, Eagle3Config):
        return Eagle3Draft(made, networks.embed, depth=depth, top_k=top_k, least=least, **more)
    return DFlashDraft(made, networks.embed, block_size=block_size, **more)


def _check_runtime(runtime: str, networks: TargetNetworks) -> None:
    if runtime not in RUNTIMES:
        raise InputError(f"runtime {runtime!r}: unknown to drafts; it must be one of {', '.join(RUNTIMES)}")
    if runtime == "tensorrt" and networks.runtime != "tensorrt":
        raise InputError(
            f"runtime tensorrt: a draft runs on engines beside a target on engines, this one runs on {networks.runtime}"
        )


def _networks(folder: Path, config, networks: TargetNetworks, runtime: str | None, words, threads: int):
    """A draft's networks on a runtime; unless the runtime was named, falls back if no engines were built for it."""
    if (runtime or networks.runtime) == "tensorrt":
        try:
            return _on_engines(folder, config, networks, words)
        except EngineMissing as missing:
            if runtime is not None:
                raise
            log.warning("draft %s: on ONNX Runtime, beside a target on engines: %s", folder.name, missing)
            runtime = "onnxruntime"
    made = _eagle3 if isinstance(config, Eagle3Config) else _dflash
    return made(folder, config, networks.config, runtime or networks.runtime, words, threads)


def _on_engines(folder: Path, config, networks: TargetNetworks, words):
    from specdrive_ros.runtime.tensorrt_drafts import TensorRtDFlash, TensorRtEagle3, load_engines

    engines = load_engines(folder, config, networks)
    if isinstance(config, Eagle3Config):
        return TensorRtEagle3(folder, config, engines, networks)
    return TensorRtDFlash(config, engines, networks, output_head(networks.config.folder), words)


def check_mask_token(config, first: int, count: int, where: str) -> None:
    """DFlash's mask must not be a trajectory token: Qwen's first free id, which public drafts use, is `<i0>` here."""
    if isinstance(config, DFlashConfig) and first <= config.mask_token_id < first + count:
        raise InputError(
            f"{where}: mask_token_id {config.mask_token_id} is the trajectory token <i{config.mask_token_id - first}> "
            "of this target; it must be a token that is never written, such as <|fim_pad|>"
        )


def _eagle3(folder, config, target, runtime, words, threads):
    if runtime == "torch":
        from specdrive_ros.draft.checkpoint import load_draft_network
        from specdrive_ros.runtime.torch_drafts import TorchEagle3

        return TorchEagle3(load_draft_network(folder, target.text))
    from specdrive_ros.runtime.onnx_drafts import OnnxEagle3

    return OnnxEagle3(folder, config, threads=threads)


def _dflash(folder, config, target, runtime, words, threads):
    head = output_head(target.folder)
    if runtime == "torch":
        from specdrive_ros.draft.checkpoint import load_draft_network
        from specdrive_ros.runtime.torch_drafts import TorchDFlash

        return TorchDFlash(load_draft_network(folder, target.text), head, words)
    from specdrive_ros.runtime.onnx_drafts import OnnxDFlash

    return OnnxDFlash(folder, config, head, words, threads=threads)
