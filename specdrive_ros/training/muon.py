"""The optimiser of mini and its drafts: Muon for the matrices of the blocks, AdamW for everything else.

Muon (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon) replaces the momentum of a matrix by the nearest
orthogonal matrix, so that directions with small gradients learn as fast as the others. Scaled by 0.2 sqrt(larger
side), it can use AdamW's learning rate (Liu et al. 2025, arXiv:2502.16982).

PyTorch's own Muon works in bfloat16, a hundred times slower than float32 on processors without bfloat16 support.
"""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)  # Jordan's coefficients: fast; all singular values end up in 0.7 … 1.2
NEWTON_SCHULZ_STEPS = 5
LARGEST = 500_000  # entries; beyond this, orthogonalising costs more than the step itself at mini's batch size
MOMENTUM = 0.95


class MuonAdamW(torch.optim.AdamW):
    """AdamW whose parameter groups marked `muon` are updated by Muon instead."""

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for weight in group["params"] if group.get("muon") else ():
                if weight.grad is not None:
                    self._muon_step(weight, group)
                    weight.grad = None  # so that AdamW skips it
        return super().step(closure)

    def _muon_step(self, weight: Tensor, group: dict) -> None:
        state = self.state[weight]
        if "momentum" not in state:
            state["step"], state["momentum"] = torch.zeros(()), torch.zeros_like(weight)
        state["step"] += 1
        state["momentum"].lerp_(weight.grad, 1 - MOMENTUM)
        update = orthogonal(weight.grad.lerp(state["momentum"], MOMENTUM))
        weight.mul_(1 - group["lr"] * group["weight_decay"])
        weight.add_(update, alpha=-group["lr"] * 0.2 * max(weight.shape) ** 0.5)


def orthogonal(matrix: Tensor) -> Tensor:
    """[M, N] -> approximately U V^T of its singular value decomposition U S V^T, by Newton-Schulz iteration."""
    a, b, c = NEWTON_SCHULZ
    wide = matrix.T if matrix.shape[0] > matrix.shape[1] else matrix
    wide = wide / (wide.norm() + 1e-7)
    for _ in range(NEWTON_SCHULZ_STEPS):
        gram = wide @ wide.T
        wide = a * wide + (b * gram + c * gram @ gram) @ wide
    return wide.T if matrix.shape[0] > matrix.shape[1] else wide


def optimizer_of(module: nn.Module, weight_decay: float, adamw: Iterable[str] = ()) -> MuonAdamW:
    """The optimiser of a module's trainable parameters.

    adamw: name parts of matrices that are left to AdamW all the same: embeddings, and heads that read a mix of
           features once and are discarded.
    """
    named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
    muon = [p for name, p in named if p.dim() == 2 and p.numel() <= LARGEST and not any(part in name for part in adamw)]
    known = {id(p) for p in muon}
    rest = [p for _, p in named if id(p) not in known]
    return MuonAdamW([
        {"params": muon, "muon": True, "weight_decay": weight_decay},
        {"params": [p for p in rest if p.dim() > 1], "weight_decay": weight_decay},
        {"params": [p for p in rest if p.dim() <= 1], "weight_decay": 0.0},
    ], betas=(0.9, 0.98))
