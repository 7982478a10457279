"""The target in PyTorch: Qwen3-VL from transformers, the action expert, the flow-matching head.

The modules of transformers own the parameters under the released names; the passes through them are written out here,
because training needs whole batches, drafts need hidden states of every layer, and runtimes need their own attention
masks and caches. Knows nothing about files, prompts or tokens.

Sizes: B batch, T new tokens, S cached tokens, I images, P patches per image, V image tokens in total, E hidden size, L
layers, H key-value heads, D head size, W waypoints.
"""

import math
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.models.qwen3_vl.configuration_qwen3_vl import Qwen3VLConfig, Qwen3VLTextConfig
from transformers.models.qwen3_vl.modeling_qwen3_vl import (
    Qwen3VLForConditionalGeneration,
    Qwen3VLTextModel,
    apply_rotary_pos_emb_vision,
)

from specdrive_ros.shapes import FLOW_STEPS
from specdrive_ros.target.config import ActionInputConfig, ActionSpaceConfig, TargetConfig
from specdrive_ros.target.rope import position_grid_weights, vision_rotary_tables

KeyValues = list[tuple[Tensor, Tensor]]  # per layer: keys and values [B, H, S, D], after rotary embedding


@dataclass
class VisionOutput:
    """embeddings [V, E]; deepstack: per tapped block [V, E]; blocks: per block [I * P, vision hidden]."""

    embeddings: Tensor
    deepstack: list[Tensor]
    blocks: list[Tensor] = field(default_factory=list)


@dataclass
class TextOutput:
    """hidden [B, T, E] after the final norm; key_values of cached and new tokens; layers: the output of each layer [B,
    T, E], with the deepstack rows added."""

    hidden: Tensor
    key_values: KeyValues
    layers: list[Tensor]


class AlpamayoTarget(nn.Module):
    """Vision, language and action networks under the released parameter names."""

    def __init__(self, config: TargetConfig):
        super().__init__()
        self.config = config
        self.vlm = Qwen3VLForConditionalGeneration(_vlm_config(config))
        self.expert = Qwen3VLTextModel(_expert_config(config))
        del self.expert.embed_tokens
        self.action_in_proj = ActionInput(config.action_input, config.expert.hidden_size)
        self.action_out_proj = nn.Linear(config.expert.hidden_size, 2)
        self.action_space = ActionNormalization(config.action_space)

    @property
    def language_model(self) -> Qwen3VLTextModel:
        return self.vlm.model.language_model

    # -- vision ------------------------------------------------------------------------------------

    def encode_images(self, patches: Tensor, grid_thw: Tensor | np.ndarray) -> VisionOutput:
        """Image tokens of images of any sizes.

        patches: [all, 3*2*16*16] in merge-block order; grid_thw: [I, 3] patches (1, rows, columns) per image. Runs of
        images of one size are processed together; attention stays within an image.
        """
        groups, first = [], 0
        for (rows, columns), images in _runs_of_equal_grids(grid_thw):
            last = first + images * rows * columns
            groups.append(
                self._encode_equal_images(patches[first:last].unflatten(0, (images, -1)), rows, columns)
            )
            first = last
        return (
            groups[0]
            if len(groups) == 1
            else VisionOutput(
                torch.cat([group.embeddings for group in groups]),
                [torch.cat(rows) for rows in zip(*(group.deepstack for group in groups))],
                [torch.cat(rows) for rows in zip(*(group.blocks for group in groups))],
            )
        )

    def _encode_equal_images(self, patches: Tensor, rows: int, columns: int) -> VisionOutput:
        hidden = self.embed_patches(patches) + self.patch_positions(rows, columns)
        cos, sin = (
            torch.from_numpy(table).to(hidden)
            for table in vision_rotary_tables(rows, columns, self.config.vision)
        )
        return self.vision_blocks(hidden, cos, sin)

    def embed_patches(self, patches: Tensor) -> Tensor:
        """[..., 3*2*16*16] -> [..., vision hidden]. The convolution's stride equals its kernel, so it is a product."""
        projection = self.vlm.model.visual.patch_embed.proj
        return F.linear(patches.to(projection.weight.dtype), projection.weight.flatten(1), projection.bias)

    def patch_positions(self, rows: int, columns: int) -> Tensor:
        """[P, vision hidden]: the learned position grid interpolated to the image, in patch order."""
        grid = self.vlm.model.visual.pos_embed.weight
        indices, weights = position_grid_weights(rows, columns, self.config.vision)
        taps = F.embedding(torch.from_numpy(indices).to(grid.device), grid)
        return (taps * torch.from_numpy(weights).to(grid)[..., None]).sum(-2)

    def vision_blocks(self, hidden: Tensor, cos: Tensor, sin: Tensor) -> VisionOutput:
        """hidden: [I, P, vision hidden] patches with positions; cos, sin: [P, vision head size]."""
        visual = self.vlm.model.visual
        deepstack, blocks = {}, []
        for index, block in enumerate(visual.blocks):
            hidden = hidden + _vision_attention(block.attn, block.norm1(hidden), cos, sin)
            hidden = hidden + block.mlp(block.norm2(hidden))
            blocks.append(hidden.flatten(0, 1))
            if index in visual.deepstack_visual_indexes:
                place = visual.deepstack_visual_indexes.index(index)
                deepstack[place] = visual.deepstack_merger_list[place](hidden.flatten(0, 1))
        return VisionOutput(
            visual.merger(hidden.flatten(0, 1)), [deepstack[place] for place in sorted(deepstack)], blocks
        )

    # -- language ----------------------------------------------------------------------------------

    def embed(self, token_ids: Tensor) -> Tensor:
        return self.language_model.embed_tokens(token_ids)

    def embed_prompt(self, token_ids: Tensor, image_mask: Tensor, image_embeddings: Tensor) -> Tensor:
        """[B, T] ids -> [B, T, E]; rows where image_mask [B, T] is True come from image_embeddings [V, E], in
        order."""
        rows = image_embeddings.to(self.language_model.embed_tokens.weight.dtype)
        return self.embed(token_ids).masked_scatter(image_mask[..., None], rows)

    def text_forward(
        self,
        inputs_embeds: Tensor,
        position_ids: Tensor,
        mask: Tensor | None = None,
        *,
        past: KeyValues | None = None,
        deepstack: list[Tensor] | None = None,
        image_mask: Tensor | None = None,
    ) -> TextOutput:
        """One pass over T new tokens after S cached ones.

        inputs_embeds: [B, T, E]; position_ids: [3, B, T]
        mask:          bool, True where a token may attend: [B, S + T] at real tokens (and causal among the new ones),
                       or [B or 1, 1, T, S + T] as it is; None is causal
        past:          key_values of an earlier pass (not modified)
        deepstack:     per tapped vision block [V, E], added in order to the first layers' outputs at the rows where
                       image_mask [B, T] is True
        """
        model, past = self.language_model, past or []
        visible = _attention_mask(
            mask, inputs_embeds.shape[1], past[0][0].shape[2] if past else 0, inputs_embeds.device
        )
        store = _LayerStore(past)
        rotary = model.rotary_emb(inputs_embeds, position_ids)
        hidden, layers = inputs_embeds, []
        for index, layer in enumerate(model.layers):
            hidden = layer(hidden, position_embeddings=rotary, attention_mask=visible, cache=store)
            if deepstack is not None and index < len(deepstack):
                hidden = hidden + _scatter_rows(deepstack[index].to(hidden.dtype), image_mask)
            layers.append(hidden)
        return TextOutput(model.norm(hidden), store.key_values, layers)

    def logits(self, hidden: Tensor) -> Tensor:
        """[..., E] after the final norm -> [..., vocabulary]."""
        return self.vlm.lm_head(hidden)

    # -- action ------------------------------------------------------------------------------------

    def velocity(
        self, x: Tensor, t: Tensor, past: KeyValues, position_ids: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        """Velocity of the flow at normalised actions x.

        x: [B, W, 2]; t: [B, 1, 1] flow time; past: key_values of the language model; position_ids: [3, B, W]
        mask: [B, S] bool, True at the cached tokens that waypoints may see; None is all. Returns [B, W, 2].
        """
        return self.action_out_proj(self.expert_forward(self.action_in_proj(x, t), past, position_ids, mask))

    def expert_forward(
        self, hidden: Tensor, past: KeyValues, position_ids: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        """[B, W, expert hidden] -> same, after the final norm.

        Layer i attends to the keys and values of the language model's layer i; waypoints attend to each other in both
        directions.
        """
        store = _LayerStore(past)
        rotary = self.expert.rotary_emb(hidden, position_ids)
        visible = _expert_mask(mask, hidden, past[0][0].shape[2])
        for layer in self.expert.layers:
            hidden = layer(hidden, position_embeddings=rotary, attention_mask=visible, cache=store)
        return self.expert.norm(hidden)

    def sample(
        self,
        noise: Tensor,
        past: KeyValues,
        position_ids: Tensor,
        mask: Tensor | None = None,
        steps: int = FLOW_STEPS,
    ) -> Tensor:
        """Euler steps from noise [B, W, 2] at flow time 0 to a normalised action [B, W, 2] at flow time 1."""
        return self.sample_path(noise, past, position_ids, mask, steps)[0][-1]

    def sample_path(
        self,
        noise: Tensor,
        past: KeyValues,
        position_ids: Tensor,
        mask: Tensor | None = None,
        steps: int = FLOW_STEPS,
    ) -> tuple[list[Tensor], list[Tensor]]:
        """The states (steps + 1) and velocities (steps), each [B, W, 2], along the path of `sample`."""
        states, velocities = [noise], []
        for time in flow_times(steps)[:-1]:
            t = torch.full((len(noise), 1, 1), float(time), dtype=noise.dtype, device=noise.device)
            velocities.append(self.velocity(states[-1], t, past, position_ids, mask))
            states.append(states[-1] + velocities[-1] / steps)
        return states, velocities

    def flow_matching_loss(
        self,
        action: Tensor,
        past: KeyValues,
        position_ids: Tensor,
        mask: Tensor | None = None,
        *,
        noise: Tensor | None = None,
        t: Tensor | None = None,
    ) -> Tensor:
        """Squared error [B, W, 2] of the velocity at random noise and flow time.

        action: [B, W, 2] normalised; noise [B, W, 2] and t [B, 1, 1] are drawn if not given.
        """
        noise = torch.randn_like(action) if noise is None else noise
        t = draw_flow_times(len(action), device=action.device, dtype=action.dtype) if t is None else t
        x = t * action + (1 - t) * noise
        return (self.velocity(x, t, past, position_ids, mask) - (action - noise)) ** 2


def flow_times(steps: int = FLOW_STEPS) -> np.ndarray:
    """[steps + 1] float32 from 0 to 1."""
    return torch.linspace(0, 1, steps + 1).numpy()


def draw_flow_times(count: int, *, device=None, dtype=torch.float32) -> Tensor:
    """[count, 1, 1] flow times for training, 0.999 (1 - Beta(1.5, 1)): more of them near the noise."""
    beta = torch.rand(count, 1, 1, device=device, dtype=dtype) ** (1 / 1.5)
    return 0.999 * (1 - beta)


class ActionInput(nn.Module):
    """(acceleration, curvature, flow time) of each waypoint -> expert hidden size."""

    def __init__(self, config: ActionInputConfig, out_size: int):
        super().__init__()
        self.sinus = nn.ModuleList([FourierFeatures(config) for _ in range(2)])
        self.timestep_fourier_encoder = FourierFeatures(config)
        self.encoder = nn.Module()
        self.encoder.trunk = _trunk(3 * config.num_fourier_feats, config, out_size)
        self.norm = nn.LayerNorm(out_size)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        """x: [B, W, 2] normalised actions; t: [B, 1, 1]. Returns [B, W, out_size]."""
        values = [features(x[..., column].float()) for column, features in enumerate(self.sinus)]
        values.append(self.timestep_fourier_encoder(t[..., 0].float().expand(x.shape[:2])))
        return self.norm(self.encoder.trunk(torch.cat(values, dim=-1).to(self.norm.weight.dtype)))


class FourierFeatures(nn.Module):
    """Sines, then cosines, of a value at log-spaced frequencies."""

    def __init__(self, config: ActionInputConfig):
        super().__init__()
        frequencies = torch.logspace(0, math.log10(config.max_freq), config.num_fourier_feats // 2)
        self.register_buffer("freqs", frequencies[None])

    def forward(self, value: Tensor) -> Tensor:
        angles = value[..., None] * self.freqs * (2 * math.pi)
        return torch.cat([angles.sin(), angles.cos()], dim=-1) * math.sqrt(2)


class ActionNormalization(nn.Module):
    """Mean and scale of actions, kept as buffers because the released checkpoint contains them."""

    def __init__(self, config: ActionSpaceConfig):
        super().__init__()
        for name in ("accel_mean", "accel_std", "curvature_mean", "curvature_std"):
            self.register_buffer(name, torch.tensor(getattr(config, name)))


def _trunk(in_size: int, config: ActionInputConfig, out_size: int) -> nn.Sequential:
    layers, size = [], in_size
    for _ in range(config.num_enc_layers):
        layers += [nn.Linear(size, config.hidden_size), nn.SiLU(), nn.RMSNorm(config.hidden_size, eps=1e-5)]
        size = config.hidden_size
    return nn.Sequential(*layers, nn.Linear(size, out_size))


class _LayerStore:
    """Takes the place of a cache in transformers: joins each layer's new keys and values to the past ones."""

    def __init__(self, past: KeyValues):
        self.past = past
        self.key_values: KeyValues = []

    def update(self, keys: Tensor, values: Tensor, layer: int, **_) -> tuple[Tensor, Tensor]:
        if self.past:
            keys = torch.cat([self.past[layer][0], keys], dim=2)
            values = torch.cat([self.past[layer][1], values], dim=2)
        self.key_values.append((keys, values))
        return keys, values


def _vision_attention(attention: nn.Module, hidden: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Self-attention inside each image. hidden: [I, P, vision hidden]; cos, sin: [P, head size]."""
    query, key, value = (
        attention.qkv(hidden).unflatten(-1, (3, attention.num_heads, -1)).unbind(2)
    )  # [I, P, heads, head]
    query, key = apply_rotary_pos_emb_vision(query, key, cos, sin)
    query, key, value = (part.transpose(1, 2) for part in (query, key, value))
    return attention.proj(F.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2))


def _attention_mask(mask: Tensor | None, new: int, cached: int, device: torch.device) -> Tensor:
    """[B or 1, 1, T, S + T] bool, True where a token may attend."""
    if mask is not None and mask.ndim == 4:
        return mask
    causal = torch.ones(new, cached + new, dtype=torch.bool, device=device).tril(cached)[None, None]
    return causal if mask is None else causal & mask[:, None, None, :]


def _expert_mask(mask: Tensor | None, hidden: Tensor, cached: int) -> Tensor:
    """[B, 1, W, S + W] bool: the cached tokens of `mask`, and every waypoint."""
    batch, waypoints = hidden.shape[:2]
    visible = torch.ones(batch, 1, waypoints, cached + waypoints, dtype=torch.bool, device=hidden.device)
    if mask is not None:
        visible[..., :cached] = mask[:, None, None, :]
    return visible


def _scatter_rows(rows: Tensor, row_mask: Tensor) -> Tensor:
    """[B, T, E]: `rows` [V, E], in order, where row_mask [B, T] is True, zero elsewhere."""
    return rows.new_zeros(*row_mask.shape, rows.shape[-1]).masked_scatter(row_mask[..., None], rows)


def _runs_of_equal_grids(grid_thw: Tensor | np.ndarray) -> list[tuple[tuple[int, int], int]]:
    """((rows, columns), number of images) for each run of consecutive images of one size."""
    runs: list[tuple[tuple[int, int], int]] = []
    for frames, rows, columns in grid_thw.tolist():
        if runs and runs[-1][0] == (rows, columns):
            runs[-1] = (runs[-1][0], runs[-1][1] + frames)
        else:
            runs.append(((rows, columns), frames))
    return runs


def _vlm_config(config: TargetConfig) -> Qwen3VLConfig:
    vision = {name: value for name, value in vars(config.vision).items()}
    vlm = Qwen3VLConfig(
        text_config=_text_arguments(config),
        vision_config={**vision, "model_type": "qwen3_vl"},
        tie_word_embeddings=False,
    )
    return _with_attention(vlm)


def _expert_config(config: TargetConfig) -> Qwen3VLTextConfig:
    overrides = {name: value for name, value in vars(config.expert).items()}
    return _with_attention(Qwen3VLTextConfig(**{**_text_arguments(config), **overrides, "vocab_size": 1}))


def _text_arguments(config: TargetConfig) -> dict:
    arguments = dict(vars(config.text))
    section, theta = arguments.pop("mrope_section"), arguments.pop("rope_theta")
    rope = {
        "rope_type": "default",
        "mrope_interleaved": True,
        "mrope_section": list(section),
        "rope_theta": theta,
    }
    return {**arguments, "rope_parameters": rope, "use_cache": False}


def _with_attention(config):
    """Selects PyTorch's fused attention kernel for the config and those nested in it."""
    for part in (config, getattr(config, "text_config", None), getattr(config, "vision_config", None)):
        if part is not None:
            part._attn_implementation = "sdpa"
    return config
