"""The networks that measure_gpu.py times: layers of one shape with random weights, each stage of a cycle as a call.

Sizes are those of the released model (Qwen3-VL 8B and an action expert of 2.3B); an answer means nothing. Needs torch
and nothing of this repository.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass(frozen=True)
class Shape:
    """Sizes of one model: text, its vision, its action expert; prompt and frames of a cycle."""

    layers: int = 36
    hidden: int = 4096
    inner: int = 12288
    heads: int = 32
    kv_heads: int = 8
    head: int = 128
    vocabulary: int = 155697
    vision_layers: int = 27
    vision_hidden: int = 1152
    vision_inner: int = 4304
    vision_heads: int = 16
    patches: int = 720
    images: int = 16
    prompt: int = 3027
    capacity: int = 4096
    expert_hidden: int = 2048
    expert_inner: int = 8256
    expert_heads: int = 16
    waypoints: int = 64
    flow_steps: int = 10
    draft_words: int = 32000
    dflash_layers: int = 5
    block: int = 16


TINY = Shape(
    layers=2, hidden=64, inner=128, heads=4, kv_heads=2, head=16, vocabulary=500, vision_layers=2, vision_hidden=32,
    vision_inner=64, vision_heads=2, patches=16, images=2, prompt=24, capacity=128, expert_hidden=32, expert_inner=64,
    expert_heads=4, waypoints=8, flow_steps=2, draft_words=100, dflash_layers=1, block=4,
)  # fmt: skip
SHAPES = {"10b": Shape(), "tiny": TINY}


class Layer(nn.Module):
    """A decoder layer that writes its keys and values into a cache of fixed capacity and reads `visible` rows of it."""

    def __init__(self, hidden: int, inner: int, heads: int, kv_heads: int, head: int, source: int = 0):
        super().__init__()
        self.heads, self.kv_heads, self.head = heads, kv_heads, head
        self.qkv = nn.Linear(source or hidden, (heads + 2 * kv_heads) * head, bias=False)
        self.out = nn.Linear(heads * head, hidden, bias=False)
        self.gate_up = nn.Linear(hidden, 2 * inner, bias=False)
        self.down = nn.Linear(inner, hidden, bias=False)
        self.norm, self.norm2 = (nn.Parameter(torch.ones(size)) for size in (source or hidden, hidden))

    def forward(self, x, cache, start: int, mask, joined=None, causal=False):
        """x [T, E]; cache [2, H, capacity, D]; mask [T, start + T] additive or None; joined: what is attended instead;
        causal: of a prompt, whose attention then takes the fast way that knows no masks."""
        tokens = x.shape[0]
        source = F.rms_norm(x if joined is None else joined, self.norm.shape, self.norm)
        query, key, value = (
            self.qkv(source).view(tokens, -1, self.head).split([self.heads, self.kv_heads, self.kv_heads], 1)
        )
        cache[0, :, start : start + tokens] = key.transpose(0, 1)
        cache[1, :, start : start + tokens] = value.transpose(0, 1)
        keys, values = (cache[index, None, :, : start + tokens] for index in (0, 1))
        mixed = F.scaled_dot_product_attention(
            query.transpose(0, 1)[None], keys, values, mask, is_causal=causal, enable_gqa=True
        )
        x = x + self.out(mixed[0].transpose(0, 1).reshape(tokens, -1))
        gate, up = self.gate_up(F.rms_norm(x, self.norm2.shape, self.norm2)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Block(nn.Module):
    """A vision block: attention inside each image."""

    def __init__(self, hidden: int, inner: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, inner), nn.Linear(inner, hidden)

    def forward(self, x):
        images, patches, _ = x.shape
        qkv = self.qkv(self.norm1(x)).view(images, patches, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(*qkv).transpose(1, 2).reshape(images, patches, -1)
        x = x + self.out(mixed)
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Stages:
    """The networks of one shape on one device, and each stage of a cycle as a call without arguments."""

    def __init__(self, shape: Shape, device: torch.device, dtype: torch.dtype):
        self.shape, self.device, self.dtype = shape, device, dtype
        with torch.device("meta"):
            s = shape
            self.text = nn.ModuleList(Layer(s.hidden, s.inner, s.heads, s.kv_heads, s.head) for _ in range(s.layers))
            self.head = nn.Linear(s.hidden, s.vocabulary, bias=False)
            self.vision = nn.ModuleList(
                Block(s.vision_hidden, s.vision_inner, s.vision_heads) for _ in range(s.vision_layers)
            )
            self.merge = nn.Sequential(
                nn.Linear(4 * s.vision_hidden, 4 * s.vision_hidden), nn.GELU(), nn.Linear(4 * s.vision_hidden, s.hidden)
            )
            self.expert = nn.ModuleList(
                Layer(s.expert_hidden, s.expert_inner, s.expert_heads, s.kv_heads, s.head) for _ in range(s.layers)
            )
            self.action_in, self.action_out = nn.Linear(60, s.expert_hidden), nn.Linear(s.expert_hidden, 2)
            self.eagle = Layer(s.hidden, s.inner, s.heads, s.kv_heads, s.head, source=2 * s.hidden)
            self.eagle_head = nn.Linear(s.hidden, s.draft_words, bias=False)
            self.fuse = nn.Linear(3 * s.hidden, s.hidden, bias=False)
            self.dflash = nn.ModuleList(
                Layer(s.hidden, s.inner, s.heads, s.kv_heads, s.head) for _ in range(s.dflash_layers)
            )
        for name, part in vars(self).items():
            if isinstance(part, nn.Module):
                setattr(self, name, self._real(part))
        self.cache = self._zeros(s.layers, 2, s.kv_heads, s.capacity, s.head)
        self.draft_cache = self._zeros(s.dflash_layers, 2, s.kv_heads, s.capacity, s.head)

    def _real(self, part: nn.Module) -> nn.Module:
        """Random weights made on the device, in the type they are used in: never twice in memory."""
        part = part.to(self.dtype).to_empty(device=self.device).requires_grad_(False)
        for weight in part.parameters():
            weight.normal_(0, 0.02) if weight.ndim > 1 else weight.fill_(1)
        return part

    def _zeros(self, *size):
        return torch.zeros(size, dtype=self.dtype, device=self.device)

    def _input(self, *size):
        return torch.randn(size, dtype=self.dtype, device=self.device)

    def parameters(self) -> int:
        parts = (part for part in vars(self).values() if isinstance(part, nn.Module))
        return sum(weight.numel() for part in parts for weight in part.parameters())

    def encode(self, images: int):
        s, x = self.shape, self._input(images, self.shape.patches, self.shape.vision_hidden)

        def run():
            y = x
            for block in self.vision:
                y = block(y)
            return self.merge(y.view(images, s.patches // 4, -1))

        return run

    def extend(self, tokens: int, start: int, logits: int):
        """tokens new rows behind `start` cached ones, under a tree's mask where there are some."""
        x = self._input(tokens, self.shape.hidden)
        mask = self._causal(tokens, start) if tokens > 1 and start else None

        def run():
            y = x
            for layer, cache in zip(self.text, self.cache):
                y = layer(y, cache, start, mask, causal=not start)
            return self.head(y[-logits:]).argmax(-1)

        return run

    def _causal(self, tokens: int, start: int):
        mask = torch.zeros(tokens, start + tokens, dtype=self.dtype, device=self.device)
        hidden = torch.ones(tokens, tokens, dtype=torch.bool, device=self.device).triu(1)
        mask[:, start:].masked_fill_(hidden, -math.inf)
        return mask

    def act(self, start: int):
        s, x, features = self.shape, self._input(self.shape.waypoints, 2), self._input(self.shape.waypoints, 60)

        def run():
            state = x
            for _ in range(s.flow_steps):
                y = self.action_in(features + state.sum(-1, keepdim=True))
                for layer, cache in zip(self.expert, self.cache):
                    y = layer(y, cache, start, None)
                state = state + self.action_out(y) / s.flow_steps
            return state

        return run

    def eagle_step(self, beams: int, start: int):
        embeddings, hidden = (self._input(beams, self.shape.hidden) for _ in "ab")

        def run():
            y = self.eagle(hidden, self.draft_cache[0], start, None, torch.cat([embeddings, hidden], -1))
            return self.eagle_head(y).topk(10)

        return run

    def eagle_newest(self, tokens: int, start: int):
        embeddings, taps = self._input(tokens, self.shape.hidden), self._input(tokens, 3 * self.shape.hidden)

        def run():
            hidden = self.fuse(taps)
            y = self.eagle(hidden, self.draft_cache[0], start, None, torch.cat([embeddings, hidden], -1))
            return self.eagle_head(y[-1:]).topk(10)

        return run

    def dflash_block(self, start: int):
        x = self._input(self.shape.block, self.shape.hidden)

        def run():
            y = x
            for layer, cache in zip(self.dflash, self.draft_cache):
                y = layer(y, cache, start, None)
            return self.head(y).argmax(-1)

        return run
