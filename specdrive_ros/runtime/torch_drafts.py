"""Drafts on the PyTorch runtime: the reference that other runtimes are compared with. Float32, CPU."""

import numpy as np
import torch

from specdrive_ros.draft.dflash_network import DFlash
from specdrive_ros.draft.eagle3_network import Eagle3
from specdrive_ros.runtime.draft_graphs import DFlashBlock, DFlashContext, Eagle3Newest, Eagle3Step


def _tensors(*arrays: np.ndarray) -> tuple[torch.Tensor, ...]:
    """Tensors without a copy if PyTorch may own the memory; read-only arrays, which are only lent, are copied."""
    return tuple(torch.from_numpy(array if array.flags.writeable else array.copy()) for array in arrays)


class TorchEagle3:
    """`Eagle3Networks`."""

    def __init__(self, draft: Eagle3):
        self.config, self.token_ids = draft.config, draft.token_ids.numpy()
        self._newest, self._step = Eagle3Newest(draft), Eagle3Step(draft)

    @torch.inference_mode()
    def newest(self, embeddings, taps, cos, sin, past, new):
        hidden, logits, rows = self._newest(*_tensors(embeddings, taps, cos, sin, past[0]))
        new[0] = rows.numpy()
        return hidden.numpy(), logits.numpy()

    @torch.inference_mode()
    def step(self, embeddings, hidden, cos, sin, mask, past, new):
        hidden, logits, rows = self._step(*_tensors(embeddings, hidden, cos, sin, mask, past[0]))
        new[0] = rows.numpy()
        return hidden.numpy(), logits.numpy()


class TorchDFlash:
    """`DFlashNetworks`. head: [vocabulary, E], the target's; token_ids: the tokens of it to compute, None for all."""

    def __init__(self, draft: DFlash, head: np.ndarray, token_ids: np.ndarray | None = None):
        self.config = draft.config
        self.token_ids = np.arange(len(head)) if token_ids is None else np.asarray(token_ids)
        self._head = torch.from_numpy(np.array(head[self.token_ids].T, np.float32))
        self._context, self._block = DFlashContext(draft), DFlashBlock(draft)

    @torch.inference_mode()
    def inject(self, taps, cos, sin, new):
        for layer, rows in enumerate(self._context(*_tensors(taps, cos, sin))):
            new[layer] = rows.numpy()

    @torch.inference_mode()
    def fill(self, embeddings, cos, sin, past):
        return self._block(*_tensors(embeddings, cos, sin), self._head, list(torch.from_numpy(past))).numpy()
