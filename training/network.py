"""The lab model in training: a Llama decoder with fused projection matrices.

Weights are float32; all but the normalisations is computed in ``precision``: bfloat16 where the processor has
arithmetic for it (without, it takes seven times as long as float32). ``transformers_weights`` gives the weights the
names and shapes of a transformers checkpoint, which computes the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  (its usual name)

CONTEXT = 1024
THETA = 1e4
EPSILON = 1e-5
# What transformers calls the parts of each weight of a block; those of one weight are stacked.
_PARTS = {
    "query_key_value": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "output": ("self_attn.o_proj",),
    "gate_up": ("mlp.gate_proj", "mlp.up_proj"),
    "down": ("mlp.down_proj",),
    "attention_norm": ("input_layernorm",),
    "feed_forward_norm": ("post_attention_layernorm",),
}
STACKED = {name: len(parts) for name, parts in _PARTS.items()}


def precision(device: str) -> torch.dtype:
    """The fastest suitable dtype on this device."""
    if not device.startswith("cpu"):
        return torch.bfloat16
    able = torch.cpu.get_capabilities()
    return torch.bfloat16 if able.get("amx_bf16") or able.get("avx512_bf16") else torch.float32


@dataclass(frozen=True)
class Shape:
    """Sizes of a decoder; every head has ``head_width`` of the ``width`` features."""

    layers: int = 6
    width: int = 192
    inner_width: int = 512
    head_width: int = 32
    vocabulary: int = 5120

    @property
    def heads(self) -> int:
        return self.width // self.head_width


class Decoder(nn.Module):
    """``compiled`` compiles a block with torch.compile, which takes a minute and then computes twice as fast."""

    cosines: Tensor  # (CONTEXT, head_width / 2)
    sines: Tensor

    def __init__(self, shape: Shape, *, dtype: torch.dtype = torch.bfloat16, compiled: bool = False) -> None:
        super().__init__()
        self.shape = shape
        self._dtype = dtype
        width, inner = shape.width, shape.inner_width
        spread, small = 0.7 * width**-0.5, 0.006  # standard deviations
        self.embedding = _normal(shape.vocabulary, width, spread=0.06)
        self.blocks = nn.ModuleList(
            nn.ParameterDict(
                {
                    "query_key_value": _normal(3 * width, width, spread=spread),
                    "output": _normal(width, width, spread=small),
                    "gate_up": _normal(2 * inner, width, spread=spread),
                    "down": _normal(width, inner, spread=small),
                    "attention_norm": nn.Parameter(torch.ones(width)),
                    "feed_forward_norm": nn.Parameter(torch.ones(width)),
                }
            )
            for _ in range(shape.layers)
        )
        self.norm = nn.Parameter(torch.ones(width))
        speeds = THETA ** (-torch.arange(0, shape.head_width, 2).float() / shape.head_width)
        angles = torch.arange(CONTEXT).float()[:, None] * speeds
        self.register_buffer("cosines", angles.cos().to(dtype), persistent=False)
        self.register_buffer("sines", angles.sin().to(dtype), persistent=False)
        self._block: Callable[..., Tensor] = torch.compile(_block, dynamic=True) if compiled else _block

    def forward(self, ids: Tensor, chosen: Tensor) -> Tensor:
        """Logits (N, vocabulary), float32, at the N places where ``chosen`` (B, T) is true; ``ids`` (B, T) int64.

        Shorter rows are padded at their end.
        """
        hidden = F.embedding(ids, self.embedding).to(self._dtype)
        length = ids.shape[1]
        turn = self.cosines[:length], self.sines[:length]
        mask = torch.full((length, length), -1e4, dtype=self._dtype, device=ids.device).triu(1)
        for block in self.blocks:
            assert isinstance(block, nn.ParameterDict)
            matrices = [block[name].to(self._dtype) for name in ("query_key_value", "output", "gate_up", "down")]
            norms = block["attention_norm"], block["feed_forward_norm"]
            hidden = self._block(hidden, *matrices, *norms, *turn, mask, self.shape.head_width)
        return F.linear(_normalised(hidden[chosen], self.norm), self.embedding.to(self._dtype)).float()

    @torch.no_grad()
    def load_transformers(self, weights: Mapping[str, Tensor]) -> None:
        """Take the weights that ``transformers_weights`` gave. Raises KeyError when one is missing."""
        self.embedding.copy_(weights["model.embed_tokens.weight"])
        self.norm.copy_(weights["model.norm.weight"])
        for number, block in enumerate(self.blocks):
            assert isinstance(block, nn.ParameterDict)
            for name, parts in _PARTS.items():
                found = [weights[f"model.layers.{number}.{part}.weight"] for part in parts]
                block[name].copy_(torch.cat(found))

    def transformers_weights(self) -> Mapping[str, Tensor]:
        """Float32 copies under the names of a LlamaForCausalLM whose output is tied to its embedding."""
        found = {"model.embed_tokens.weight": self.embedding, "model.norm.weight": self.norm}
        for number, block in enumerate(self.blocks):
            assert isinstance(block, nn.ParameterDict)
            for name, parts in _PARTS.items():
                for part, weight in zip(parts, block[name].chunk(len(parts)), strict=True):
                    found[f"model.layers.{number}.{part}.weight"] = weight
        return {name: weight.detach().float().cpu().clone() for name, weight in found.items()}


def _block(
    hidden: Tensor,
    query_key_value: Tensor,
    output: Tensor,
    gate_up: Tensor,
    down: Tensor,
    attention_norm: Tensor,
    feed_forward_norm: Tensor,
    cosines: Tensor,
    sines: Tensor,
    mask: Tensor,
    head_width: int,
) -> Tensor:
    """One decoder layer on (B, T, width). On a CPU, attention written out compiles to less than torch's own."""
    batch, length, width = hidden.shape
    both = F.linear(_normalised(hidden, attention_norm), query_key_value)
    parts = both.view(batch, length, 3, width // head_width, head_width)
    query, key, value = (parts[:, :, number].transpose(1, 2) for number in range(3))  # (B, heads, T, head_width)
    scores = (_turned(query, cosines, sines) * head_width**-0.5) @ _turned(key, cosines, sines).transpose(-1, -2)
    mixed = torch.softmax(scores + mask, -1) @ value
    hidden = hidden + F.linear(mixed.transpose(1, 2).reshape(batch, length, width), output)
    gate, up = F.linear(_normalised(hidden, feed_forward_norm), gate_up).chunk(2, -1)
    return hidden + F.linear(F.silu(gate) * up, down)


def _turned(heads: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Rotary position embedding, applied to the two halves of a head."""
    first, second = heads.chunk(2, -1)
    return torch.cat([first * cosines - second * sines, second * cosines + first * sines], -1)


def _normalised(hidden: Tensor, weight: Tensor) -> Tensor:
    """Root-mean-square normalisation, computed in float32."""
    wide = hidden.float()
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + EPSILON) * weight).to(hidden.dtype)


def _normal(*size: int, spread: float) -> nn.Parameter:
    return nn.Parameter(torch.randn(*size) * spread)
