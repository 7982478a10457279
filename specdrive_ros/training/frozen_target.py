"""The parts of the target that a draft is trained against: embedding, final norm, output head. Never trained."""

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from specdrive_ros.draft.layers import RmsNorm
from specdrive_ros.draft.target_identity import fingerprint
from specdrive_ros.target.network import AlpamayoTarget


class FrozenTarget(nn.Module):
    """embedding and head: [vocabulary, E]; forbidden: [vocabulary] bool, tokens that the decoding rules exclude."""

    def __init__(self, embedding: Tensor, norm: Tensor, head: Tensor, eps: float, forbidden: np.ndarray | None = None):
        super().__init__()
        never = torch.zeros(len(head), dtype=torch.bool) if forbidden is None else torch.from_numpy(forbidden)
        for name, rows in (("embedding", embedding.detach()), ("head", head.detach()), ("forbidden", never)):
            self.register_buffer(name, rows, persistent=False)  # moves to the draft's device with it
        self.norm = RmsNorm(len(norm), eps).requires_grad_(False)
        self.norm.weight.copy_(norm.detach())
        self.fingerprint = fingerprint(self.norm.weight.numpy())

    @classmethod
    def of(cls, target: AlpamayoTarget, forbidden: np.ndarray) -> "FrozenTarget":
        language_model = target.language_model
        return cls(language_model.embed_tokens.weight, language_model.norm.weight, target.vlm.lm_head.weight,
                   target.config.text.rms_norm_eps, forbidden)  # fmt: skip

    def embed(self, token_ids: Tensor | np.ndarray) -> Tensor:
        """[...] token ids -> [..., E]."""
        return F.embedding(torch.as_tensor(token_ids, device=self.embedding.device), self.embedding)

    def logits(self, final: Tensor) -> Tensor:
        """[..., E] output of the last layer -> [..., vocabulary]; the lowest number for forbidden tokens."""
        logits = F.linear(self.norm(final), self.head)
        return logits.masked_fill(self.forbidden, torch.finfo(logits.dtype).min)

    def allowed_logits(self, final: Tensor) -> tuple[Tensor, Tensor]:
        """Output of the last layer [..., E] -> logits [..., W] of the allowed tokens only, and their ids [W]."""
        words = torch.nonzero(~self.forbidden).flatten()
        return F.linear(self.norm(final), self.head[words]), words
