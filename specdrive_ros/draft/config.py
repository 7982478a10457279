"""Structure of a draft and the target it was made for. Checked when made; knows neither torch nor files."""

from dataclasses import dataclass
from math import inf
from typing import ClassVar

from specdrive_ros.draft.rope import ROPES, DraftRope
from specdrive_ros.errors import InputError
from specdrive_ros.target.config import TextConfig, require


@dataclass(frozen=True, kw_only=True)
class DraftConfig:
    """Sizes of the draft's layers, and what they read from the target.

    hidden_size, vocab_size, target_layers: the target's, whose hidden states, embeddings and vocabulary a draft uses
    tap_layers:    hidden states it reads, by the convention of `taps.py`
    rope:          `flat` or `mirror`; mrope_section is the target's and only needed for `mirror`
    target:        fingerprint of the target it was trained on, "" if a public file does not say
    """

    kind: ClassVar[str]

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int
    target_layers: int
    tap_layers: tuple[int, ...]
    rope_theta: float
    rms_norm_eps: float = 1e-6
    rope: str = "flat"
    mrope_section: tuple[int, int, int] | None = None
    target: str = ""

    def __post_init__(self):
        for name in ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
                     "num_key_value_heads", "head_dim", "vocab_size", "target_layers"):  # fmt: skip
            self._check(name, type(getattr(self, name)) is int, "must be a whole number")
            self._check(name, getattr(self, name) > 0, "must be positive")
        for name in ("rope_theta", "rms_norm_eps"):
            value = getattr(self, name)
            self._check(name, isinstance(value, (int, float)) and 0 < value < inf, "must be a number above 0")
        self._check("target", isinstance(self.target, str), "must be a fingerprint")
        heads, half = self.num_key_value_heads, self.head_dim // 2
        self._check("num_attention_heads", self.num_attention_heads % heads == 0, f"must be a multiple of {heads}")
        self._check("head_dim", self.head_dim % 2 == 0, "must be even")
        self._check("rope", self.rope in ROPES, f"must be one of {', '.join(ROPES)}")
        self._check(
            "tap_layers",
            len(self.tap_layers) > 0
            and all(type(tap) is int and 0 <= tap <= self.target_layers for tap in self.tap_layers),
            f"must be layers 0 … {self.target_layers}",
        )
        if self.rope == "mirror":
            section = self.mrope_section
            fits = section is not None and len(section) == 3 and all(type(part) is int for part in section)
            fits = fits and sum(section) == half and min(section) >= 0
            self._check("mrope_section", fits, f"must be three numbers that add up to {half} (head_dim / 2) to mirror")

    def _check(self, name: str, holds: bool, rule: str) -> None:
        require(holds, f"{self.kind} draft {name}", rule, getattr(self, name))

    @property
    def groups(self) -> int:
        """Number of query heads that share a key-value head."""
        return self.num_attention_heads // self.num_key_value_heads

    def make_rope(self) -> DraftRope:
        return DraftRope(self.rope, self.head_dim, self.rope_theta, self.mrope_section)

    def check_target(self, text: TextConfig, where: str) -> None:
        """Raises `InputError` unless the draft was made for a target of these sizes."""
        for what, ours, theirs in (
            ("hidden size", self.hidden_size, text.hidden_size),
            ("vocabulary", self.vocab_size, text.vocab_size),
            ("number of layers", self.target_layers, text.num_hidden_layers),
        ):
            if ours != theirs:
                raise InputError(
                    f"{where}: is a draft for a target with {what} {ours}, this target has {theirs}; "
                    f"train one for this target: ./specdrive train draft --kind {self.kind} --model MODEL"
                )


@dataclass(frozen=True, kw_only=True)
class Eagle3Config(DraftConfig):
    """EAGLE-3 (arXiv 2503.01840): one layer over embedding and hidden state, with a reduced vocabulary."""

    kind: ClassVar[str] = "eagle3"
    draft_vocab_size: int
    qk_norm: bool = False  # Qwen3's norms on queries and keys; the published layer is Llama's and has none

    def __post_init__(self):
        super().__post_init__()
        self._check("num_hidden_layers", self.num_hidden_layers == 1, "must be 1")
        fits = 0 < self.draft_vocab_size <= self.vocab_size
        self._check("draft_vocab_size", fits, f"must be 1 … {self.vocab_size}")


@dataclass(frozen=True, kw_only=True)
class DFlashConfig(DraftConfig):
    """DFlash (z-lab): a block of mask tokens is filled in one pass over the target's features."""

    kind: ClassVar[str] = "dflash"
    block_size: int
    mask_token_id: int

    def __post_init__(self):
        super().__post_init__()
        for name in ("block_size", "mask_token_id"):
            self._check(name, type(getattr(self, name)) is int, "must be a whole number")
        self._check("block_size", self.block_size >= 2, "must be at least 2, the newest token and one mask")
        fits = 0 <= self.mask_token_id < self.vocab_size
        self._check("mask_token_id", fits, f"must be a token of the target, 0 … {self.vocab_size - 1}")
