"""Structure of the target: sizes, vocabulary, action space, image limits.

Every config is checked when it is made: a value that breaks a rule or contradicts another raises `InputError`. Field
names are those of the released files, whose layout `released_layout.py` knows. Knows neither torch nor transformers.
"""

from dataclasses import dataclass, field
from math import prod
from pathlib import Path

from specdrive_ros.errors import InputError
from specdrive_ros.shapes import HISTORY_POSES, PICTURE_SIZE


def require(holds: bool, where: str, rule: str, value: object) -> None:
    """Raises `InputError` naming place, rule and value unless `holds`."""
    if not holds:
        raise InputError(f"{where}: {rule}, got {value!r}")


class _Checks:
    """Checks the values of one config; the error names section, rule and value."""

    def __init__(self, config: object, section: str, positive: tuple[str, ...] = ()):
        self.config, self.section = config, section
        for name in positive:
            self(name, getattr(config, name) > 0, "must be positive")

    def __call__(self, name: str, holds: bool, rule: str) -> None:
        require(holds, f"{self.section}.{name}", rule, getattr(self.config, name))


@dataclass(frozen=True)
class TextConfig:
    """The language model."""

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    vocab_size: int  # including the added trajectory and special tokens
    mrope_section: tuple[int, int, int]  # number of frequencies of the time, height and width axes
    rope_theta: float
    rms_norm_eps: float = 1e-6
    initializer_range: float = 0.02
    max_position_embeddings: int = 262144

    def __post_init__(self):
        check = _Checks(self, "text_config", positive=(
            "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
            "num_key_value_heads", "head_dim", "vocab_size",
        ))  # fmt: skip
        heads, half = self.num_key_value_heads, self.head_dim // 2
        check(
            "num_attention_heads",
            self.num_attention_heads % heads == 0,
            f"must be a multiple of {heads} (num_key_value_heads)",
        )
        check("head_dim", self.head_dim % 2 == 0, "must be even")
        check(
            "mrope_section",
            len(self.mrope_section) == 3 and sum(self.mrope_section) == half,
            f"must be three numbers that add up to {half} (head_dim / 2)",
        )
        check("rope_theta", self.rope_theta > 1, "must be over 1")


@dataclass(frozen=True)
class VisionConfig:
    """The vision model."""

    hidden_size: int
    intermediate_size: int
    depth: int
    num_heads: int
    out_hidden_size: int
    num_position_embeddings: int  # of a square grid
    deepstack_visual_indexes: tuple[int, ...]  # blocks whose outputs are added to the outputs of the first text layers
    patch_size: int = 16
    spatial_merge_size: int = 2
    temporal_patch_size: int = 2
    in_channels: int = 3
    initializer_range: float = 0.02

    def __post_init__(self):
        check = _Checks(self, "vision_config", positive=(
            "hidden_size", "intermediate_size", "depth", "num_heads", "out_hidden_size",
            "num_position_embeddings", "patch_size", "spatial_merge_size", "temporal_patch_size",
        ))  # fmt: skip
        taps, quarter = self.deepstack_visual_indexes, 4 * self.num_heads
        check(
            "hidden_size", self.hidden_size % quarter == 0, f"must be a multiple of {quarter} (4 x num_heads)"
        )
        check(
            "num_position_embeddings",
            self.position_grid_side**2 == self.num_position_embeddings,
            "must be a square number",
        )
        check(
            "deepstack_visual_indexes",
            len(set(taps)) == len(taps) and all(0 <= tap < self.depth for tap in taps),
            f"must be different blocks below {self.depth} (depth)",
        )
        check("in_channels", self.in_channels == 3, "must be 3 (RGB)")

    @property
    def position_grid_side(self) -> int:
        return int(self.num_position_embeddings**0.5 + 0.5)

    @property
    def head_dim(self) -> int:
        return self.hidden_size // self.num_heads

    @property
    def patch_values(self) -> int:
        """Values in one flattened patch: channels x time x rows x columns."""
        return self.in_channels * self.temporal_patch_size * self.patch_size**2


@dataclass(frozen=True)
class ExpertConfig:
    """The action expert. Layers, key-value heads and head size are the text model's, whose cache it reads."""

    hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    head_dim: int

    def __post_init__(self):
        sizes = ("hidden_size", "intermediate_size", "num_attention_heads", "head_dim")
        _Checks(self, "expert_cfg", positive=sizes)


@dataclass(frozen=True)
class ActionInputConfig:
    """`action_in_proj`: Fourier features of (acceleration, curvature, flow time), then a small network."""

    hidden_size: int
    num_enc_layers: int = 2
    num_fourier_feats: int = 20  # sines and cosines together, per value
    max_freq: float = 100.0  # cycles per unit; the frequencies run from 1 to this

    def __post_init__(self):
        sizes = ("hidden_size", "num_enc_layers", "num_fourier_feats")
        check = _Checks(self, "action_in_proj_cfg", positive=sizes)
        check("num_fourier_feats", self.num_fourier_feats % 2 == 0, "must be even")
        check("max_freq", self.max_freq > 0, "must be above 0")


@dataclass(frozen=True)
class ActionSpaceConfig:
    """The unicycle action space: waypoints, normalisation, bounds, weights of the inverse's penalties."""

    n_waypoints: int = 64
    dt: float = 0.1  # seconds
    accel_mean: float = 0.02902694707164455  # m/s²
    accel_std: float = 0.6810426736454882
    curvature_mean: float = 0.0002692167976330542  # 1/m
    curvature_std: float = 0.026148280660833106
    accel_bounds: tuple[float, float] = (-9.8, 9.8)
    curvature_bounds: tuple[float, float] = (-0.33, 0.33)
    theta_lambda: float = 1e-6
    theta_ridge: float = 1e-8
    v_lambda: float = 1e-6
    v_ridge: float = 1e-4
    a_lambda: float = 1e-4
    a_ridge: float = 1e-4
    kappa_lambda: float = 1e-4
    kappa_ridge: float = 1e-4

    def __post_init__(self):
        positive = ("n_waypoints", "dt", "accel_std", "curvature_std")
        check = _Checks(self, "action_space_cfg", positive)
        for name in ("accel_bounds", "curvature_bounds"):
            bounds = getattr(self, name)
            check(name, len(bounds) == 2 and bounds[0] < bounds[1], "must be two numbers, the lower first")


@dataclass(frozen=True)
class HistoryTokenizerConfig:
    """Displacements between history poses as bins, three per pose."""

    ego_xyz_min: tuple[float, float, float] = (-4.0, -4.0, -10.0)  # metres per step
    ego_xyz_max: tuple[float, float, float] = (4.0, 4.0, 10.0)
    num_bins: int = 1000

    def __post_init__(self):
        check, high = _Checks(self, "hist_traj_tokenizer_cfg"), self.ego_xyz_max
        check("num_bins", self.num_bins > 1, "must be over 1")
        check("ego_xyz_max", len(high) == 3, "must be three numbers")
        check(
            "ego_xyz_min",
            len(self.ego_xyz_min) == 3 and all(low < top for low, top in zip(self.ego_xyz_min, high)),
            f"must be three numbers below {list(high)} (ego_xyz_max)",
        )


@dataclass(frozen=True)
class FutureTokenizerConfig:
    """Normalised actions as bins. The reasoning never writes them; their ids are masked."""

    num_bins: int = 3000
    dims_min: tuple[float, float] = (-10.0, -10.0)
    dims_max: tuple[float, float] = (10.0, 10.0)

    def __post_init__(self):
        _Checks(self, "traj_tokenizer_cfg")("num_bins", self.num_bins > 1, "must be over 1")


@dataclass(frozen=True)
class VocabularyConfig:
    """Where the added tokens begin, and how many there are."""

    traj_token_start_idx: int  # id of <i0>
    traj_vocab_size: int = 4000  # future bins, then history bins
    tokens_per_history_traj: int = 48
    tokens_per_future_traj: int = 128


@dataclass(frozen=True)
class ImageLimits:
    """Limits on the pixels of a resized image; the resize keeps the aspect ratio within them."""

    min_pixels: int
    max_pixels: int

    def __post_init__(self):
        check = _Checks(self, "config.json", positive=("min_pixels",))
        highest = self.max_pixels
        check("min_pixels", self.min_pixels <= highest, f"must be at most {highest} (max_pixels)")


@dataclass(frozen=True)
class TargetConfig:
    """The whole target. `folder` has the weights, `backbone_folder` the backbone's config and tokenizer."""

    text: TextConfig
    vision: VisionConfig
    expert: ExpertConfig
    action_input: ActionInputConfig
    vocabulary: VocabularyConfig
    images: ImageLimits
    action_space: ActionSpaceConfig = field(default_factory=ActionSpaceConfig)
    history: HistoryTokenizerConfig = field(default_factory=HistoryTokenizerConfig)
    future: FutureTokenizerConfig = field(default_factory=FutureTokenizerConfig)
    folder: Path | None = None
    backbone_folder: Path | None = None

    def __post_init__(self):
        self._check_vision()
        self._check_expert()
        self._check_vocabulary()

    def _check_vision(self):
        check = _Checks(self.vision, "vision_config")
        hidden, layers = self.text.hidden_size, self.text.num_hidden_layers
        check(
            "out_hidden_size",
            self.vision.out_hidden_size == hidden,
            f"must be {hidden} (the text model's hidden_size)",
        )
        check(
            "deepstack_visual_indexes",
            len(self.vision.deepstack_visual_indexes) <= layers,
            f"must be no more than {layers} (the text model's layers)",
        )

    def _check_expert(self):
        check, heads = _Checks(self.expert, "expert_cfg"), self.text.num_key_value_heads
        check(
            "head_dim",
            self.expert.head_dim == self.text.head_dim,
            f"must be {self.text.head_dim}, the text model's, whose cache the expert reads",
        )
        check(
            "num_attention_heads",
            self.expert.num_attention_heads % heads == 0,
            f"must be a multiple of {heads} (the text model's num_key_value_heads)",
        )

    def _check_vocabulary(self):
        vocabulary, bins = self.vocabulary, self.future.num_bins + self.history.num_bins
        check = _Checks(vocabulary, "config.json")
        for name, needed, reason in (
            ("traj_vocab_size", bins, "the future and history bins together"),
            ("tokens_per_history_traj", 3 * HISTORY_POSES, "three for each history pose"),
            ("tokens_per_future_traj", 2 * self.action_space.n_waypoints, "two for each waypoint"),
        ):
            check(name, getattr(vocabulary, name) == needed, f"must be {needed}, {reason}")
        end = vocabulary.traj_token_start_idx + vocabulary.traj_vocab_size
        require(
            end <= self.text.vocab_size,
            "config.json.vocab_size",
            f"must be at least {end} to hold the trajectory tokens",
            self.text.vocab_size,
        )

    @property
    def history_token_start(self) -> int:
        """Id of the first history bin; the future bins come before."""
        return self.vocabulary.traj_token_start_idx + self.future.num_bins

    @classmethod
    def load(cls, folder: str | Path) -> "TargetConfig":
        """Reads `config.json` of a checkpoint folder and of the backbone it names. Raises `InputError`."""
        from specdrive_ros.target.released_layout import read_config  # here: that module imports this one

        return read_config(folder)


def mini_config(vocab_size: int, traj_token_start_idx: int) -> TargetConfig:
    """Mini in its size S, for a tokenizer of `vocab_size` entries whose `<i0>` is `traj_token_start_idx`.

    Images of `PICTURE_SIZE` keep their size. The Fourier frequencies of the action input run from 1 down to 0.1 cycles
    per unit, not up to the release's 100: noise has unit spread, and a small network that only sees it wrapped (period
    1 and shorter) hardly learns to subtract it. Actions are scaled to about unit spread in mini's own world, so that
    the flow-matching loss weighs curvature as much as acceleration.
    """
    return TargetConfig(
        text=TextConfig(
            hidden_size=192, intermediate_size=512, num_hidden_layers=8, num_attention_heads=6,
            num_key_value_heads=2, head_dim=32, vocab_size=vocab_size, mrope_section=(6, 5, 5),
            rope_theta=5e6,
        ),
        vision=VisionConfig(
            hidden_size=192, intermediate_size=768, depth=4, num_heads=6, out_hidden_size=192,
            num_position_embeddings=100, deepstack_visual_indexes=(1, 2),
        ),
        expert=ExpertConfig(hidden_size=128, intermediate_size=256, num_attention_heads=4, head_dim=32),
        action_input=ActionInputConfig(hidden_size=128, max_freq=0.1),
        action_space=ActionSpaceConfig(accel_mean=0.0, accel_std=0.93, curvature_mean=0.0, curvature_std=0.011),
        vocabulary=VocabularyConfig(traj_token_start_idx=traj_token_start_idx),
        images=ImageLimits(min_pixels=prod(PICTURE_SIZE), max_pixels=prod(PICTURE_SIZE)),
    )  # fmt: skip
