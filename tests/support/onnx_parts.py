"""A tiny Llama with random weights, and one text through its runtime, for tests of the onnxruntime backend."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from arbitrag.llm.engine.runtime import ForwardOutput
from arbitrag.llm.onnx.graph import Shape
from arbitrag.llm.onnx.optimum import OptimumRuntime

WORDS = 23
SHAPE = Shape(
    layers=2,
    hidden_size=16,
    heads=4,
    kv_heads=2,
    head_dim=8,
    intermediate_size=24,
    vocabulary=WORDS,
    context=48,
    rope_theta=10_000.0,
    norm_eps=1e-5,
)


def random_weights(name: str) -> np.ndarray | None:
    """The same for the same name; no biases, and an output of its own."""
    kinds = {
        "embed_tokens": (WORDS, 16),
        "lm_head": (WORDS, 16),
        "q_proj": (32, 16),
        "k_proj": (16, 16),
        "v_proj": (16, 16),
        "o_proj": (16, 32),
        "gate_proj": (24, 16),
        "up_proj": (24, 16),
        "down_proj": (16, 24),
        "norm": (16,),
    }
    if name.endswith(".bias"):
        return None
    size = next(size for kind, size in kinds.items() if name.removesuffix(".weight").endswith(kind))
    seed = int.from_bytes(name.encode()[-8:], "little") % 2**32
    found: np.ndarray = np.random.default_rng(seed).normal(0, 0.5, size).astype(np.float32)
    return found


TEXTS = ([3, 4, 5, 6, 7, 8], [9, 10, 11])


def alone(
    subject: OptimumRuntime, ids: Sequence[int], logits_to_keep: int, layers: Sequence[int] = ()
) -> ForwardOutput:
    """One text without padding."""
    count = len(ids)
    whole = np.arange(count)[None]
    return subject.forward(
        np.array([ids]), np.ones((1, count), bool), whole, None, logits_to_keep=logits_to_keep, layers=layers
    )
