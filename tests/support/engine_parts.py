"""Parts for tests of the in-process engine: a tiny random model, a codec of numbers, and the plain computation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from arbitrag.llm.base import Prompt
from arbitrag.llm.engine.engine import Engine
from arbitrag.llm.engine.runtime import Block, ForwardOutput, OutOfMemory
from arbitrag.llm.hf.cpu import optimise
from arbitrag.llm.hf.kv_cache import Cache
from arbitrag.llm.hf.runtime import TorchRuntime

VOCABULARY = 64
CONTEXT = 256
EOS = 1


class NumberCodec:
    """Texts are numbers with spaces between them: "5 17 3" is the tokens 5, 17 and 3."""

    eos_ids = frozenset([EOS])
    identity = "numbers"

    def encode_prompt(self, prompt: Prompt) -> list[int]:
        return self.encode(prompt.text if prompt.text is not None else prompt.messages[-1].text)

    def lead(self, prompt: Prompt) -> str:
        return prompt.lead

    def encode(self, text: str) -> list[int]:
        return [int(word) for word in text.split()]

    def decode(self, ids: Sequence[int]) -> str:
        return " ".join(str(id) for id in ids)


def words(ids: Sequence[int]) -> str:
    return NumberCodec().decode(ids)


def ask(ids: Sequence[int]) -> Prompt:
    return Prompt(text=words(ids), lead=" ")


def for_use(model: Any) -> Any:
    """The model without dropout; also one that a type checker knows less about than transformers says."""
    return model.eval()


@cache
def tiny_model(seed: int = 0) -> Any:
    """Two layers, width 32, grouped heads; weights large enough that no two tokens are about equally likely."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=VOCABULARY,
        max_position_embeddings=CONTEXT,
        initializer_range=0.3,
        tie_word_embeddings=False,
    )
    return for_use(LlamaForCausalLM(config))


def tiny_runtime(seed: int = 0, *, optimised: bool = True) -> TorchRuntime:
    runtime = TorchRuntime(tiny_model(seed), identity=f"tiny {seed}")
    return optimise(runtime) if optimised else runtime


def tiny_engine(runtime: Any = None, **options: Any) -> Engine:
    """The window is long, so that a busy machine does not tear apart what arrives together."""
    options.setdefault("window_s", 10.0)
    return Engine(runtime or tiny_runtime(), NumberCodec(), name="tiny", **options)


@cache
def plain_logits(ids: tuple[int, ...]) -> np.ndarray:
    """Log-probabilities (len(ids), vocabulary) by one plain pass over one row."""
    with torch.inference_mode():
        logits = tiny_model()(input_ids=torch.tensor([ids]), use_cache=False).logits[0]
        found: np.ndarray = logits.log_softmax(-1).numpy()
        return found


def plain_scores(prompt: Sequence[int], continuation: Sequence[int]) -> list[float]:
    rows = plain_logits((*prompt, *continuation))[len(prompt) - 1 : -1]
    return [float(row[id]) for row, id in zip(rows, continuation, strict=True)]


def plain_greedy(prompt: Sequence[int], limit: int) -> list[int]:
    """Greedy tokens up to the limit or the end token, which is left out."""
    ids = list(prompt)
    while len(ids) < len(prompt) + limit:
        following = int(plain_logits(tuple(ids))[-1].argmax())
        if following == EOS:
            break
        ids.append(following)
    return ids[len(prompt) :]


class Wrapped:
    """A runtime that another stands behind; tests change what they need."""

    def __init__(self, inner: TorchRuntime | None = None) -> None:
        self.inner = inner or tiny_runtime()
        self.info = self.inner.info
        self.shapes: list[tuple[int, int, int]] = []  # (rows, new tokens, past slots) of every pass

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def forward(
        self, ids: np.ndarray, mask: np.ndarray, positions: np.ndarray, cache: Cache | None, **options: Any
    ) -> ForwardOutput:
        self.shapes.append((*ids.shape, mask.shape[-1] - ids.shape[1]))
        return self.inner.forward(ids, mask, positions, cache, **options)


class Unpacked(Wrapped):
    """Does not take a mask for each token, so that every continuation needs a row of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.info = replace(self.info, packs=False)


class Cramped(Wrapped):
    """A device with room for so many slots of keys and values in one batch."""

    def __init__(self, slots: int) -> None:
        super().__init__()
        self.slots = slots
        self.failures = 0

    def _check(self, slots: int) -> None:
        if slots > self.slots:
            self.failures += 1
            raise OutOfMemory

    def forward(self, ids: np.ndarray, mask: np.ndarray, *rest: Any, **options: Any) -> ForwardOutput:
        self._check(len(ids) * mask.shape[-1])
        return super().forward(ids, mask, *rest, **options)

    def assemble(self, rows: Sequence[Sequence[Block]], *, single_pass: bool = False) -> Cache | None:
        self._check(len(rows) * max(sum(keys.shape[2] for keys, _ in blocks) for blocks in rows))
        return self.inner.assemble(rows, single_pass=single_pass)

    def join(self, first: Cache, second: Cache) -> Cache:
        self._check((first.rows + second.rows) * max(first.slots, second.slots))
        return self.inner.join(first, second)
