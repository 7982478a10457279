"""Converts drafts between the public layouts, so that a draft made here can be read elsewhere and vice versa. PyTorch.

| layout | read by |
|---|---|
| published | the kind's own repository: SafeAILab's EAGLE-3, z-lab's DFlash; `train draft` writes it |
| speculators | speculators and what is built on it |

Weights keep their values and type. Our own settings (rotary setting, taps, target) go into a section `specdrive` that
others ignore; if they would then compute something else, `caveats` says so. Which keys of its config speculators needs
was found by removing each (version 0.9.0).
"""

import json
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor

from specdrive_ros.draft.checkpoint import load_draft_network, save_draft
from specdrive_ros.draft.config import DFlashConfig, Eagle3Config
from specdrive_ros.draft.layout import CONFIG, sizes_as_json
from specdrive_ros.draft.taps import eagle3_taps
from specdrive_ros.errors import InputError
from specdrive_ros.runtime.weights_file import WEIGHTS
from specdrive_ros.target.config import TextConfig

PUBLISHED, SPECULATORS = "published", "speculators"
LAYOUTS = (PUBLISHED, SPECULATORS)
SPECULATORS_VERSION = "0.9.0"
ARCHITECTURES = {"eagle3": "Eagle3Speculator", "dflash": "DFlashDraftModel"}


def convert_draft(folder: Path, out: Path, text: TextConfig, layout: str, verifier: str) -> list[str]:
    """Writes the draft in `folder` to `out`. Returns what other programs will do differently, one sentence each.

    text: the language model of the draft's target. verifier: the target's name, for programs that look it up.
    Raises InputError for a draft that is incomplete, belongs to another target, or cannot be expressed in the layout.
    """
    if out.resolve() == folder.resolve():
        raise InputError(f"{out}: is the draft itself; name another folder to write to")
    draft = load_draft_network(folder, text, dtype=None)
    if layout == PUBLISHED:
        save_draft(draft, out)
    else:
        _save_speculators(draft.config, draft.state_dict(), out, verifier)
    return caveats(draft.config, text, layout)


def caveats(config: Eagle3Config | DFlashConfig, text: TextConfig, layout: str) -> list[str]:
    """What a public layout cannot say about a draft, so that its readers will assume something else."""
    found = []
    if config.rope != "flat":
        found.append(f"rope {config.rope}: other programs give each row one index, as if it were flat")
    conventional = eagle3_taps(text.num_hidden_layers)
    if layout == PUBLISHED and config.kind == "eagle3" and config.tap_layers != conventional:
        found.append(f"taps {list(config.tap_layers)}: readers of this layout take {list(conventional)}")
    return found


def _save_speculators(
    config: Eagle3Config | DFlashConfig, weights: dict[str, Tensor], out: Path, verifier: str
) -> None:
    out.mkdir(parents=True, exist_ok=True)
    content = json.dumps(speculators_config(config, weights["fc.weight"], verifier), indent=1)
    (out / CONFIG).write_text(content + "\n", encoding="utf-8")
    renamed = {
        name.replace("midlayer.", "layers.0.", 1) if name.startswith("midlayer.") else name: value.contiguous()
        for name, value in weights.items()
    }
    save_file(renamed, str(out / WEIGHTS), metadata={"format": "pt"})


def speculators_config(config: Eagle3Config | DFlashConfig, weight: Tensor, verifier: str) -> dict:
    """weight: any of the draft's, for its dtype."""
    sizes, dtype = sizes_as_json(config), str(weight.dtype).removeprefix("torch.")
    own, theta = sizes.pop("specdrive"), sizes.pop("rope_theta")
    eagle3 = isinstance(config, Eagle3Config)
    return {
        "architectures": [ARCHITECTURES[config.kind]],
        "speculators_model_type": config.kind,
        "speculators_version": SPECULATORS_VERSION,
        "dtype": dtype,
        "tie_word_embeddings": False,
        **(_of_eagle3(config) if eagle3 else _of_dflash(config)),
        "transformer_layer_config": {
            **sizes,
            "model_type": "llama" if eagle3 and not config.qk_norm else "qwen3",
            "mlp_bias": False,
            "rope_parameters": {"rope_type": "default", "rope_theta": theta},
        },
        "speculators_config": _how_it_proposes(config, verifier),
        "specdrive": own,
    }


def _of_eagle3(config: Eagle3Config) -> dict:
    names = ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output", "embed_requires_grad")
    return {
        "draft_vocab_size": config.draft_vocab_size,
        "eagle_aux_hidden_state_layer_ids": list(config.tap_layers),
        **dict.fromkeys(names, False),
    }


def _of_dflash(config: DFlashConfig) -> dict:
    return {
        "draft_vocab_size": config.vocab_size,
        "aux_hidden_state_layer_ids": list(config.tap_layers),
        "block_size": config.block_size,
        "mask_token_id": config.mask_token_id,
        "sample_from_anchor": False,
        "sliding_window_non_causal": False,
    }


def _how_it_proposes(config: Eagle3Config | DFlashConfig, verifier: str) -> dict:
    """A chain, verified greedily: three tokens for EAGLE-3 (speculators' own default), a whole block for DFlash."""
    ahead = config.block_size - 1 if isinstance(config, DFlashConfig) else 3
    greedy = {"proposal_type": "greedy", "speculative_tokens": ahead, "verifier_accept_k": 1, "accept_tolerance": 0.0}
    return {
        "algorithm": config.kind,
        "default_proposal_method": "greedy",
        "proposal_methods": [greedy],
        "verifier": {"name_or_path": verifier, "architectures": ["Qwen3VLForConditionalGeneration"]},
    }
