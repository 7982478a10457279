"""EAGLE-3 in PyTorch, under the parameter names of the public checkpoints (SafeAILab/EAGLE).

Row t joins the target's state of token t with the embedding of token t + 1 and predicts token t + 2. States tapped
from the target are fused by `fc`; further ahead the layer's own output takes their place. Every runtime, the training
and the reference numbers use the passes here; knows no tree and no cache (arXiv 2503.01840).
"""

import numpy as np
import torch
from torch import Tensor, nn

from specdrive_ros.draft.config import Eagle3Config
from specdrive_ros.draft.layers import Attention, Mlp, RmsNorm, Rotary


class Eagle3Layer(nn.Module):
    """One decoder layer whose attention input is embedding and hidden state concatenated."""

    def __init__(self, config: Eagle3Config):
        super().__init__()
        size, eps = config.hidden_size, config.rms_norm_eps
        self.input_layernorm, self.hidden_norm = RmsNorm(size, eps), RmsNorm(size, eps)
        self.self_attn = Attention(config, 2 * size, config.qk_norm)
        self.post_attention_layernorm = RmsNorm(size, eps)
        self.mlp = Mlp(config)

    def joined(self, embeddings: Tensor, hidden: Tensor) -> Tensor:
        """[..., T, E] each -> [..., T, 2E]."""
        return torch.cat([self.input_layernorm(embeddings), self.hidden_norm(hidden)], -1)

    def finish(self, hidden: Tensor, attended: Tensor) -> Tensor:
        """Adds attention and MLP; the residual is the hidden state before its norm."""
        hidden = hidden + attended
        return hidden + self.mlp(self.post_attention_layernorm(hidden))


class Eagle3(nn.Module):
    """d2t [draft words] int64: target id = draft id + d2t; t2d [vocabulary] bool: tokens in the draft's vocabulary."""

    def __init__(self, config: Eagle3Config):
        super().__init__()
        self.config = config
        size = config.hidden_size
        self.fc = nn.Linear(len(config.tap_layers) * size, size, bias=False)
        self.midlayer = Eagle3Layer(config)
        self.norm = RmsNorm(size, config.rms_norm_eps)
        self.lm_head = nn.Linear(size, config.draft_vocab_size, bias=False)
        self.register_buffer("d2t", torch.zeros(config.draft_vocab_size, dtype=torch.int64))
        self.register_buffer("t2d", torch.zeros(config.vocab_size, dtype=torch.bool))

    def set_vocabulary(self, token_ids: np.ndarray) -> None:
        """Sets the draft's vocabulary: ascending ids of the target."""
        ids = torch.as_tensor(np.asarray(token_ids, np.int64))
        self.d2t.copy_(ids - torch.arange(len(ids)))
        self.t2d.zero_()[ids] = True

    @property
    def token_ids(self) -> Tensor:
        """[draft words] target ids of the draft's vocabulary."""
        return torch.arange(len(self.d2t), device=self.d2t.device) + self.d2t

    def logits(self, hidden: Tensor) -> Tensor:
        """[..., E] output of a pass -> [..., draft words]."""
        return self.lm_head(self.norm(hidden))

    def forward(
        self, embeddings: Tensor, hidden: Tensor, rotary: Rotary, past: Tensor | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """embeddings and hidden [..., T, E], rotary [..., T, D], past rows [..., S, 2, H, D] (None: none), additive
        mask [..., T, S + T] -> hidden [..., T, E] before `norm`, new rows [..., T, 2, H, D]."""
        attention, joined = self.midlayer.self_attn, self.midlayer.joined(embeddings, hidden)
        new = attention.rows(joined, rotary)
        rows = new if past is None else torch.cat([past, new], -4)
        attended = attention.mix(attention.queries(joined, rotary), rows, mask)
        return self.midlayer.finish(hidden, attended), new

    def newest(self, embeddings: Tensor, taps: Tensor, rotary: Rotary, past: Tensor) -> tuple[Tensor, Tensor]:
        """Takes in T true tokens, without a batch axis: all of them leave their rows, only the last one is a query.

        embeddings [T, E]; taps [T, taps * E]. Returns hidden [1, E] of the last row and new rows [T, 2, H, D].
        """
        attention, hidden = self.midlayer.self_attn, self.fc(taps)
        joined, last = self.midlayer.joined(embeddings, hidden), tuple(table[-1:] for table in rotary)
        new = attention.rows(joined, rotary)
        attended = attention.mix(attention.queries(joined[-1:], last), torch.cat([past, new]))
        return self.midlayer.finish(hidden[-1:], attended), new
