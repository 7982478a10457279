"""DFlash in PyTorch, under the parameter names of the public checkpoints (z-lab/dflash).

The target's tapped states are fused once and injected into every layer as keys and values; a block (the newest token,
then masks) attends to them and to itself in both directions, and every mask becomes a token in one pass. Embedding and
output head are the target's. Knows no cache and no decoding loop.
"""

import torch
from torch import Tensor, nn

from specdrive_ros.draft.config import DFlashConfig
from specdrive_ros.draft.layers import Attention, Mlp, RmsNorm, Rotary


class DFlashLayer(nn.Module):
    """A Qwen3 decoder layer."""

    def __init__(self, config: DFlashConfig):
        super().__init__()
        size, eps = config.hidden_size, config.rms_norm_eps
        self.input_layernorm = RmsNorm(size, eps)
        self.self_attn = Attention(config, size, qk_norm=True)
        self.post_attention_layernorm = RmsNorm(size, eps)
        self.mlp = Mlp(config)

    def forward(self, hidden: Tensor, rotary: Rotary, context: Tensor, mask: Tensor | None) -> Tensor:
        """hidden [..., T, E]; context rows [..., S, 2, H, D]; additive mask [..., T, S + T] -> [..., T, E]."""
        attention, normed = self.self_attn, self.input_layernorm(hidden)
        rows = torch.cat([context, attention.rows(normed, rotary)], -4)
        hidden = hidden + attention.mix(attention.queries(normed, rotary), rows, mask)
        return hidden + self.mlp(self.post_attention_layernorm(hidden))


class DFlash(nn.Module):
    """A block filled in one pass, given the target's tapped states (letters as in `layers.py`)."""

    def __init__(self, config: DFlashConfig):
        super().__init__()
        self.config = config
        size = config.hidden_size
        self.fc = nn.Linear(len(config.tap_layers) * size, size, bias=False)
        self.hidden_norm = RmsNorm(size, config.rms_norm_eps)
        self.layers = nn.ModuleList(DFlashLayer(config) for _ in range(config.num_hidden_layers))
        self.norm = RmsNorm(size, config.rms_norm_eps)

    def fuse(self, taps: Tensor) -> Tensor:
        """[..., A, taps * E] -> [..., A, E]."""
        return self.hidden_norm(self.fc(taps))

    def context_rows(self, taps: Tensor, rotary: Rotary) -> list[Tensor]:
        """Rows that each layer keeps for A tokens of the target: [..., A, 2, H, D], without a layer norm before."""
        fused = self.fuse(taps)
        return [layer.self_attn.rows(fused, rotary) for layer in self.layers]

    def forward(
        self, embeddings: Tensor, rotary: Rotary, context: list[Tensor], mask: Tensor | None = None
    ) -> Tensor:
        """embeddings [..., T, E] of a block, rotary [..., T, D], context per layer [..., S, 2, H, D], additive mask
        [..., T, S + T] (None: everything is seen) -> [..., T, E] after `norm`, for the target's head."""
        return self.norm(self.layer_outputs(embeddings, rotary, context, mask)[-1])

    def layer_outputs(
        self, embeddings: Tensor, rotary: Rotary, context: list[Tensor], mask: Tensor | None = None
    ) -> list[Tensor]:
        """As `forward`, but the output of every layer, before `norm`."""
        outputs = [embeddings]
        for layer, rows in zip(self.layers, context, strict=True):
            outputs.append(layer(outputs[-1], rotary, rows, mask))
        return outputs[1:]
