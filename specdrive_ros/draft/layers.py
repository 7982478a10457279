"""Building blocks of the drafts in PyTorch, with and without a leading batch axis.

Keys and values have the layout of the runtime's cache, so that the same code serves training and export. Products with
the same input are joined; the exported graph folds the joined weights. Letters: T new rows, S rows attended to, Hq/H
query and key-value heads, G = Hq/H, D head size, E hidden size.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from specdrive_ros.draft.config import DraftConfig

Rotary = tuple[Tensor, Tensor]  # cosines and sines [..., T, D]


class RmsNorm(nn.Module):
    """x divided by its root mean square (over the last axis), scaled by a learnt weight."""

    def __init__(self, size: int, eps: float):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(size)), eps

    def forward(self, x: Tensor) -> Tensor:
        return x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class Mlp(nn.Module):
    """SwiGLU."""

    def __init__(self, config: DraftConfig):
        super().__init__()
        hidden, inner = config.hidden_size, config.intermediate_size
        self.gate_proj = nn.Linear(hidden, inner, bias=False)
        self.up_proj = nn.Linear(hidden, inner, bias=False)
        self.down_proj = nn.Linear(inner, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = F.linear(x, torch.cat([self.gate_proj.weight, self.up_proj.weight])).chunk(2, -1)
        return self.down_proj(F.silu(gate) * up)


class Attention(nn.Module):
    """Grouped-query attention with queries and rows made separately: drafts attend to rows that are no queries."""

    def __init__(self, config: DraftConfig, input_size: int, qk_norm: bool):
        super().__init__()
        self.heads, self.groups, self.head_dim = config.num_key_value_heads, config.groups, config.head_dim
        queries, rows = config.num_attention_heads * config.head_dim, self.heads * config.head_dim
        self.q_proj = nn.Linear(input_size, queries, bias=False)
        self.k_proj = nn.Linear(input_size, rows, bias=False)
        self.v_proj = nn.Linear(input_size, rows, bias=False)
        self.o_proj = nn.Linear(queries, config.hidden_size, bias=False)
        self.qk_norm = qk_norm
        if qk_norm:
            self.q_norm = RmsNorm(config.head_dim, config.rms_norm_eps)
            self.k_norm = RmsNorm(config.head_dim, config.rms_norm_eps)

    def queries(self, x: Tensor, rotary: Rotary) -> Tensor:
        """[..., T, input] -> rotated and scaled queries [..., T, Hq, D]."""
        query = self.q_proj(x).unflatten(-1, (-1, self.head_dim))
        return rotate(self.q_norm(query) if self.qk_norm else query, rotary) * self.head_dim**-0.5

    def rows(self, x: Tensor, rotary: Rotary) -> Tensor:
        """[..., T, input] -> rotated keys, and values: [..., T, 2, H, D]."""
        both = F.linear(x, torch.cat([self.k_proj.weight, self.v_proj.weight]))
        key, value = both.unflatten(-1, (2, self.heads, self.head_dim)).unbind(-3)
        return torch.stack([rotate(self.k_norm(key) if self.qk_norm else key, rotary), value], -3)

    def mix(self, query: Tensor, rows: Tensor, mask: Tensor | None = None) -> Tensor:
        """query [..., T, Hq, D] over rows [..., S, 2, H, D] -> [..., T, E]. mask: [..., T, S], additive; None sees
        all."""
        scores = self.scores(query, rows)
        weights = torch.softmax(scores if mask is None else scores + mask.unsqueeze(-3).unsqueeze(-3), -1)
        return self.project(weights @ rows[..., 1, :, :].transpose(-3, -2).unsqueeze(-3))

    def scores(self, query: Tensor, rows: Tensor) -> Tensor:
        """Scores [..., H, G, T, S], grouped by key-value head."""
        query = query.unflatten(-2, (self.heads, self.groups)).movedim(-4, -2)  # [..., H, G, T, D]
        return query @ rows[..., 0, :, :].transpose(-3, -2).unsqueeze(-3).transpose(-2, -1)

    def project(self, mixed: Tensor) -> Tensor:
        """[..., H, G, T, D] -> [..., T, E]."""
        return self.o_proj(mixed.movedim(-2, -4).flatten(-3))


def rotate(x: Tensor, rotary: Rotary) -> Tensor:
    """[..., T, heads, D] rotated by tables [..., T, D]."""
    cos, sin = (table.unsqueeze(-2) for table in rotary)
    low, high = x.chunk(2, -1)
    return x * cos + torch.cat([-high, low], -1) * sin
