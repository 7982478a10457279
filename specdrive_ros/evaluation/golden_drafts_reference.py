"""A golden folder of drafts: its target (a plain Qwen3), its drafts, its arrays.

Text only, so the three axes of M-RoPE coincide, and the target is that of transformers. Knows neither the expected
values nor the tolerances.
"""

from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import load_file
from torch import Tensor
from transformers import Qwen3Config, Qwen3ForCausalLM

from specdrive_ros.draft.checkpoint import load_draft_network
from specdrive_ros.draft.dflash_network import DFlash
from specdrive_ros.draft.eagle3_network import Eagle3
from specdrive_ros.errors import InputError
from specdrive_ros.target.checkpoint import check_names_and_shapes, read_weights
from specdrive_ros.target.config import TextConfig
from specdrive_ros.target.released_layout import read_json

_SIZES = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
          "head_dim", "vocab_size", "rope_theta", "rms_norm_eps")  # fmt: skip


class DraftReference:
    """A folder laid out as `golden/drafts_A`."""

    def __init__(self, folder: Path):
        self.folder = folder
        released = read_json(folder / "target" / "config.json", "the config of the reference target")
        half = released["head_dim"] // 2
        self.text = TextConfig(**{name: released[name] for name in _SIZES}, mrope_section=(half, 0, 0))
        self._released = released

    @cached_property
    def target(self) -> Qwen3ForCausalLM:
        config = Qwen3Config(**{**self._released, "attn_implementation": "eager"})
        target, weights = Qwen3ForCausalLM(config), read_weights(self.folder / "target")
        check_names_and_shapes(
            str(self.folder / "target"),
            {name: value.shape for name, value in target.state_dict().items()},
            {name: value.shape for name, value in weights.items()},
        )
        target.load_state_dict(weights)
        return target.requires_grad_(False).eval()

    @property
    def pad(self) -> int:
        """The token that pads short rows."""
        return self._released["pad_token_id"]

    @cached_property
    def embedding(self) -> np.ndarray:
        return self.target.model.embed_tokens.weight.numpy()

    @property
    def head(self) -> Tensor:
        """[vocabulary, E]."""
        return self.target.lm_head.weight

    def embed(self, token_ids: np.ndarray) -> np.ndarray:
        return self.embedding[token_ids]

    def draft(self, path: str) -> Eagle3 | DFlash:
        """Loads a draft by its path in the folder."""
        return load_draft_network(self.folder / path, self.text)

    def files(self, pattern: str) -> list[str]:
        """Array files that match a pattern, as paths without the suffix."""
        found = sorted(self.folder.glob(f"{pattern}.safetensors"))
        return [str(path.relative_to(self.folder).with_suffix("")) for path in found]

    def arrays(self, file: str) -> dict[str, np.ndarray]:
        path = self.folder / f"{file}.safetensors"
        try:
            return load_file(path)
        except (SafetensorError, OSError) as error:
            raise InputError(f"{path} cannot be read ({error}); it must be a safetensors file") from None

    def run_target(
        self, token_ids: np.ndarray, seen: np.ndarray | None = None, positions: np.ndarray | None = None
    ) -> tuple[Tensor, list[Tensor]]:
        """ids [B, T] -> logits [B, T, vocabulary], and the states [B, T, E] entering each layer and leaving the last.

        seen: [B, T, T] bool, None is causal; positions: [B, T].
        """
        size = token_ids.shape[1]
        seen = np.tril(np.ones((1, size, size), bool)) if seen is None else seen
        mask = torch.zeros(len(token_ids), 1, size, size)
        mask.masked_fill_(~torch.from_numpy(np.array(seen))[:, None], torch.finfo(torch.float32).min)
        with _entering(self.target) as states, torch.no_grad():
            output = self.target(
                input_ids=torch.from_numpy(token_ids),
                attention_mask=mask,
                position_ids=None if positions is None else torch.from_numpy(positions),
                use_cache=False,
            )
        return output.logits, states


class _entering:
    """Collects the state that enters each layer of a target while it runs, then the one that leaves the last."""

    def __init__(self, target: Qwen3ForCausalLM):
        self.layers, self.norm, self.states = target.model.layers, target.model.norm, []

    def __enter__(self) -> list[Tensor]:
        def keep(_, inputs):
            self.states.append(inputs[0])

        self.hooks = [module.register_forward_pre_hook(keep) for module in (*self.layers, self.norm)]
        return self.states

    def __exit__(self, *_):
        for hook in self.hooks:
            hook.remove()
