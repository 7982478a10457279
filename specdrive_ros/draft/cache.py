"""A draft's own keys and values: those of true tokens stay, those of a proposal are dropped after it."""

import numpy as np

from specdrive_ros.draft.config import DraftConfig
from specdrive_ros.runtime.networks import KeyValueCache


class DraftCache(KeyValueCache):
    """A cache that grows if a prompt is longer than expected."""

    def __init__(self, config: DraftConfig, capacity: int = 512):
        super().__init__(config.num_hidden_layers, config.num_key_value_heads, config.head_dim, capacity)

    def reserve(self, tokens: int) -> np.ndarray:
        if self.length + tokens > self.capacity:
            larger = np.zeros((len(self.rows), 2 * (self.length + tokens), *self.rows.shape[2:]), np.float32)
            larger[:, : self.length] = self.rows[:, : self.length]
            self.rows = larger
        return super().reserve(tokens)

    @property
    def known(self) -> np.ndarray:
        """The known rows, [layers, length, 2, H, D]."""
        return self.rows[:, : self.length]
