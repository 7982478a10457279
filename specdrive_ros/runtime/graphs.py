"""The target's three networks as thin graphs, used both for export and by the torch runtime.

The modules here own no weights. They use the parameters of an `AlpamayoTarget` and spell out what a driving cycle
needs and Hugging Face's own forward does not offer: rotary tables, mask and deepstack as inputs, tapped hidden states
and only the *new* keys and values as outputs, no batch axis. Fused products concatenate weights inside the graph, so
the exported initializers stay the checkpoint's own tensors.

They know nothing about prompts, caches or files. Letters: T tokens of a pass, S cached tokens, I images,
P patches and V tokens of one image, L layers, K deepstack levels, Hq/H query/key-value heads, G = Hq/H,
D head size, E hidden size, R rows whose logits are wanted.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specdrive_ros.shapes import FLOW_STEPS
from specdrive_ros.target.network import AlpamayoTarget


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding; the first half of `sin` is already negated, so that swapping the halves is enough."""
    low, high = x.chunk(2, -1)
    return x * cos + torch.cat([high, low], -1) * sin


def signed(sin: Tensor) -> Tensor:
    """[..., D] sine table -> the same with its first half negated, as `rotate` needs it."""
    low, high = sin.chunk(2, -1)
    return torch.cat([-low, high], -1)


def keys_and_values(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Cache rows [S, 2, H, D] -> keys and values, each [H, S, D]."""
    heads, head_size = rows.shape[2:]
    return rows.permute(1, 2, 0, 3).reshape(2 * heads, -1, head_size).split(heads)


class DecoderLayer(nn.Module):
    """One Qwen3 decoder layer with the weights of a Hugging Face one, reading cache rows as they are stored."""

    def __init__(self, layer: nn.Module):
        super().__init__()
        self.layer = layer
        attention = layer.self_attn
        self.head_size = attention.head_dim
        self.query_heads = attention.q_proj.out_features // self.head_size
        self.heads = attention.k_proj.out_features // self.head_size
        self.groups = self.query_heads // self.heads
        self.fused: tuple[Tensor, ...] | None = None

    def fuse(self) -> None:
        """Keeps the concatenated weights, for eager use; an exported graph concatenates by itself."""
        self.fused = tuple(weight.detach().clone() for weight in self._weights())

    def _weights(self) -> tuple[Tensor, Tensor]:
        """Weights of query, key and value [(Hq + 2H) D, E], and of gate and up [2F, E]."""
        if self.fused is not None:
            return self.fused
        attention, mlp = self.layer.self_attn, self.layer.mlp
        return (
            torch.cat([attention.q_proj.weight, attention.k_proj.weight, attention.v_proj.weight]),
            torch.cat([mlp.gate_proj.weight, mlp.up_proj.weight]),
        )

    def forward(self, hidden: Tensor, cos: Tensor, sin: Tensor, past, mask: Tensor | None):
        """hidden [T, E], cos and signed sin [T, 1, D], past [S, 2, H, D], additive mask [G T, S + T].

        Returns hidden [T, E] and the new keys and values [T, 2, H, D].
        """
        projection, gate_up = self._weights()
        query, key, value = self._project(hidden, projection, cos, sin)
        keys, values, new = self.with_past(past, key, value)
        hidden = hidden + self._attend(query, keys, values, mask)
        return hidden + self._feed_forward(hidden, gate_up), new

    def with_past(self, past: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """past [S, 2, H, D], new key and value [T, H, D] -> keys and values [H, S + T, D] and new rows [T, 2, H, D]."""
        new = torch.cat([key, value], 1).reshape(-1, 2, self.heads, self.head_size)
        return *keys_and_values(torch.cat([past, new])), new

    def _project(self, hidden: Tensor, projection: Tensor, cos: Tensor, sin: Tensor):
        """-> scaled queries [H, G T, D], new keys and new values, each [T, H, D]."""
        layer, attention = self.layer, self.layer.self_attn
        normed = rms_norm(hidden, layer.input_layernorm.weight, layer.input_layernorm.variance_epsilon)
        fused = F.linear(normed, projection).reshape(-1, self.query_heads + 2 * self.heads, self.head_size)
        query, key, value = fused.split([self.query_heads, self.heads, self.heads], 1)
        query = rms_norm(
            query, attention.q_norm.weight * attention.scaling, attention.q_norm.variance_epsilon
        )
        key = rms_norm(key, attention.k_norm.weight, attention.k_norm.variance_epsilon)
        query, key = rotate(torch.cat([query, key], 1), cos, sin).split([self.query_heads, self.heads], 1)
        query = query.reshape(-1, self.heads, self.groups, self.head_size).permute(1, 2, 0, 3)
        return query.reshape(self.heads, -1, self.head_size), key, value

    def _attend(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        """query [H, G T, D], key and value [H, S + T, D] -> [T, E]."""
        scores = query @ key.transpose(1, 2)
        weights = torch.softmax(scores if mask is None else scores + mask, -1)
        mixed = (weights @ value).reshape(self.heads, self.groups, -1, self.head_size).permute(2, 0, 1, 3)
        return self.layer.self_attn.o_proj(mixed.reshape(-1, self.query_heads * self.head_size))

    def _feed_forward(self, hidden: Tensor, gate_up: Tensor) -> Tensor:
        norm = self.layer.post_attention_layernorm
        gate, up = F.linear(rms_norm(hidden, norm.weight, norm.variance_epsilon), gate_up).chunk(2, -1)
        return self.layer.mlp.down_proj(F.silu(gate) * up)


class ExpertLayer(DecoderLayer):
    """The same for the action expert, whose new rows nobody reads again."""

    def with_past(self, past: tuple[Tensor, Tensor], key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, None]:
        """past: keys and values [H, S, D], laid out once for all steps."""
        joined = [torch.cat([old, new.transpose(0, 1)], 1) for old, new in zip(past, (key, value))]
        return *joined, None


class TextGraph(nn.Module):
    """The text model: one graph for prefill, decoding, verification of a block and of a token tree."""

    def __init__(self, target: AlpamayoTarget, tap_layers: tuple[int, ...]):
        super().__init__()
        self.layers = nn.ModuleList(DecoderLayer(layer) for layer in target.language_model.layers)
        self.norm, self.lm_head, self.tap_layers = target.language_model.norm, target.vlm.lm_head, tap_layers

    def forward(self, hidden, cos, sin, mask, deepstack, logit_rows, past):
        """hidden [T, E], cos/sin [T, D], additive mask [T, S + T], deepstack [K, T, E], logit_rows [R],
        past L x [S, 2, H, D] -> logits [R, vocabulary], taps [T, n_taps E], L x new rows [T, 2, H, D]."""
        cos, sin = cos.unsqueeze(1), signed(sin).unsqueeze(1)
        mask = mask.repeat(self.layers[0].groups, 1)
        entering, news = [hidden], []
        for index, layer in enumerate(self.layers):
            hidden, new = layer(hidden, cos, sin, past[index], mask)
            if index < deepstack.shape[0]:
                hidden = hidden + deepstack[index]
            entering.append(hidden)
            news.append(new)
        taps = torch.cat([entering[k] for k in self.tap_layers], -1)
        last = rms_norm(hidden[logit_rows], self.norm.weight, self.norm.variance_epsilon)
        return self.lm_head(last), taps, *news


class VisionGraph(nn.Module):
    """The vision model over a batch of images of one size, so attention cannot leave an image."""

    def __init__(self, target: AlpamayoTarget):
        super().__init__()
        self.visual = target.vlm.model.visual
        self.levels = list(self.visual.deepstack_visual_indexes)

    def forward(self, patches, grid_rows, grid_weights, cos, sin):
        """patches [I, P, 3*2*16*16] in merge-block order; grid_rows [P, 4] and grid_weights [P, 4] say
        how the learned position grid is interpolated; cos/sin [P, D].

        Returns embeddings [I, V, E] and deepstack [K, I, V, E].
        """
        visual, sin = self.visual, signed(sin)
        projection = visual.patch_embed.proj
        positions = (visual.pos_embed.weight[grid_rows] * grid_weights.unsqueeze(-1)).sum(1)
        hidden = F.linear(patches, projection.weight.flatten(1), projection.bias) + positions
        levels = {}
        for index, block in enumerate(visual.blocks):
            hidden = hidden + self._attend(block.attn, block.norm1(hidden), cos, sin)
            hidden = hidden + block.mlp(block.norm2(hidden))
            if index in self.levels:
                level = self.levels.index(index)
                levels[level] = self._merge(visual.deepstack_merger_list[level], hidden)
        return self._merge(visual.merger, hidden), torch.stack([levels[level] for level in sorted(levels)])

    @staticmethod
    def _attend(attention: nn.Module, hidden: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """hidden [I, P, E] -> the same shape."""
        images, patches = hidden.shape[:2]
        heads = attention.qkv(hidden).reshape(images, patches, 3, attention.num_heads, attention.head_dim)
        query, key, value = heads.permute(2, 0, 3, 1, 4).unbind(0)
        query, key = rotate(query, cos, sin) * attention.scaling, rotate(key, cos, sin)
        mixed = torch.softmax(query @ key.transpose(2, 3), -1) @ value
        return attention.proj(mixed.transpose(1, 2).reshape(images, patches, -1))

    @staticmethod
    def _merge(merger: nn.Module, hidden: Tensor) -> Tensor:
        """[I, P, vision E] -> [I, V, text E]: four neighbours become one token."""
        images = hidden.shape[0]
        if not merger.use_postshuffle_norm:
            hidden = merger.norm(hidden)
        hidden = hidden.reshape(images, -1, merger.hidden_size)
        if merger.use_postshuffle_norm:
            hidden = merger.norm(hidden)
        return merger.linear_fc2(merger.act_fn(merger.linear_fc1(hidden)))


class ActionStep(nn.Module):
    """One Euler step of flow matching: the action expert reads the prompt's keys and values."""

    def __init__(self, target: AlpamayoTarget, steps: int = FLOW_STEPS):
        super().__init__()
        self.layers = nn.ModuleList(ExpertLayer(layer) for layer in target.expert.layers)
        self.norm, self.action_in, self.action_out = (
            target.expert.norm,
            target.action_in_proj,
            target.action_out_proj,
        )
        self.steps = steps

    def forward(self, noise, time, cos, sin, keys, values):
        """noise [W, 2] at flow time `time` [1, 1, 1] -> the same one step later. cos/sin [W, D], keys and values
        L x [H, S, D], of the rows waypoints may see."""
        return noise + self.velocity(noise, time, cos, sin, keys, values) / self.steps

    def velocity(self, x: Tensor, time: Tensor, cos: Tensor, sin: Tensor, keys, values) -> Tensor:
        """x [W, 2] -> [W, 2]. Waypoints see each other and all that is cached."""
        cos, sin = cos.unsqueeze(1), signed(sin).unsqueeze(1)
        hidden = self.action_in(x.unsqueeze(0), time).squeeze(0)
        for layer, *past in zip(self.layers, keys, values, strict=True):
            hidden, _ = layer(hidden, cos, sin, past, None)
        return self.action_out(rms_norm(hidden, self.norm.weight, self.norm.variance_epsilon))
