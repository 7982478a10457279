"""The drafts as thin graphs, used both for export and by the torch runtime. No batch axis; letters as in
`draft_networks.py`. They own no weights; DFlash's output head is the target's and is passed in as an input, so that no
draft's file holds a copy of it."""

from torch import nn

from specdrive_ros.draft.dflash_network import DFlash
from specdrive_ros.draft.eagle3_network import Eagle3


class Eagle3Newest(nn.Module):
    """Takes in true tokens; gives hidden state and logits after the newest one."""

    def __init__(self, draft: Eagle3):
        super().__init__()
        self.draft = draft

    def forward(self, embeddings, taps, cos, sin, past):
        """[T, E], [T, taps E], [T, D] twice, [S, 2, H, D] -> hidden [1, E], logits [1, words], new [T, 2, H, D]."""
        hidden, new = self.draft.newest(embeddings, taps, (cos, sin), past)
        return hidden, self.draft.logits(hidden), new


class Eagle3Step(nn.Module):
    """One step further on the draft's own output."""

    def __init__(self, draft: Eagle3):
        super().__init__()
        self.draft = draft

    def forward(self, embeddings, hidden, cos, sin, mask, past):
        """[T, E] twice, [T, D] twice, additive [T, S + T], [S, 2, H, D] -> hidden, logits [T, words], new."""
        hidden, new = self.draft(embeddings, hidden, (cos, sin), past, mask)
        return hidden, self.draft.logits(hidden), new


class DFlashContext(nn.Module):
    """Feature injection: the target's states of A tokens become every layer's keys and values."""

    def __init__(self, draft: DFlash):
        super().__init__()
        self.draft = draft

    def forward(self, taps, cos, sin):
        """[A, taps E], [A, D] twice -> L x [A, 2, H, D]."""
        return tuple(self.draft.context_rows(taps, (cos, sin)))


class DFlashBlock(nn.Module):
    """A block of the newest token and masks, to logits."""

    def __init__(self, draft: DFlash):
        super().__init__()
        self.draft = draft

    def forward(self, embeddings, cos, sin, head, past):
        """[B, E], [B, D] twice, the target's head [E, words], L x [S, 2, H, D] -> logits [B, words]."""
        return self.draft(embeddings, (cos, sin), past) @ head
