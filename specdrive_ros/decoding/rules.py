"""Which tokens a chain of causation may contain and how it ends; the same for every way of decoding.

Trajectory bins are never written. The reasoning ends with `<|traj_future_start|>`. If the target ends its turn instead,
the token limit is reached or time runs out (pace.py), the reasoning is closed by force and marked as truncated.
"""

from dataclasses import dataclass

import numpy as np

from specdrive_ros.errors import InputError
from specdrive_ros.target.tokens import TargetTokenizer


@dataclass(frozen=True)
class ReasoningRules:
    """forbidden: [vocabulary] bool; then three token ids, and the largest number of tokens a reasoning may have."""

    forbidden: np.ndarray
    cot_end: int
    future_start: int
    end_of_turn: int
    max_new_tokens: int

    def __post_init__(self):
        if self.max_new_tokens < 2:
            raise InputError(
                f"max_new_tokens {self.max_new_tokens}: must be at least 2, the two tokens that close "
                "a reasoning"
            )

    @classmethod
    def of(cls, tokenizer: TargetTokenizer, vocabulary: int, max_new_tokens: int) -> "ReasoningRules":
        """vocabulary: number of logits of the target; entries past the tokenizer's size are forbidden, too."""
        forbidden = np.ones(vocabulary, bool)
        forbidden[: tokenizer.size] = tokenizer.trajectory_mask()
        return cls(
            forbidden,
            tokenizer.cot_end,
            tokenizer.traj_future_start,
            tokenizer.base_ids["<|im_end|>"],
            max_new_tokens,
        )

    def allowed(self, logits: np.ndarray) -> np.ndarray:
        """A copy of logits [..., vocabulary] with -inf at forbidden tokens."""
        return np.where(self.forbidden, -np.inf, logits)

    def ended(self, written: list[int]) -> bool:
        """Whether the last token written ends the reasoning."""
        return bool(written) and written[-1] == self.future_start

    def closing(self, written: list[int]) -> list[int]:
        """The tokens that close the reasoning from here."""
        return [self.future_start] if self.cot_end in written else [self.cot_end, self.future_start]

    def settle(self, choice: int, written: list[int]) -> tuple[list[int], bool]:
        """The tokens to write next, given the target's choice, and whether they are forced."""
        closing = self.closing(written)
        last_chance = len(written) + len(closing) >= self.max_new_tokens
        if choice == self.end_of_turn or (last_chance and choice not in (closing[0], self.future_start)):
            return closing, True
        return [choice], False
