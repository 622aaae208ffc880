"""A randomly initialised Llama model, and random prompts for it: speed does not depend on the weights."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from arbitrag.lab.model import FOLDER
from arbitrag.llm.base import Prompt
from arbitrag.llm.engine.engine import Engine
from arbitrag.llm.tokenizer import Codec, TextCodec

LAYERS, QUICK_LAYERS = 15, 8  # 106 and 57 million parameters beside the embeddings
VOCABULARY = 5120
WORDS = ("river", "stone", "film", "city", "year", "born", "house", "paper", "light", "north", "king", "winter", "song")


class NumberCodec:
    """A tokenizer whose texts are token ids with spaces between them, so that a prompt has an exact length."""

    eos_ids: frozenset[int] = frozenset()
    identity = "numbers"

    def encode_prompt(self, prompt: Prompt) -> list[int]:
        return self.encode(prompt.text or "")

    def lead(self, prompt: Prompt) -> str:
        return prompt.lead

    def encode(self, text: str) -> list[int]:
        return [int(word) for word in text.split()]

    def decode(self, ids: Sequence[int]) -> str:
        return " ".join(map(str, ids))


def random_llama(seed: int, *, context: int = 4096, layers: int = LAYERS) -> Any:
    """A model in float32 on the CPU, whose vocabulary is at least that of the lab's tokenizer."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    config = LlamaConfig(
        hidden_size=768,
        intermediate_size=2048,
        num_hidden_layers=layers,
        num_attention_heads=12,
        num_key_value_heads=12,
        vocab_size=VOCABULARY,
        max_position_embeddings=context,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=None,
    )
    return LlamaForCausalLM(config).eval()  # type: ignore[no-untyped-call]


def engine_of(model: Any, codec: Codec | None = None, **options: Any) -> Engine:
    from arbitrag.llm.hf.cpu import optimise
    from arbitrag.llm.hf.runtime import TorchRuntime

    return Engine(optimise(TorchRuntime(model, identity="random")), codec or NumberCodec(), name="random", **options)


def lab_codec() -> TextCodec:
    """The embedded model's tokenizer without an end-of-text token, so that every completion has its full length."""
    codec = TextCodec.from_folder(FOLDER)
    assert codec.vocabulary_size <= VOCABULARY, "the lab's tokenizer has outgrown the random model"
    codec.eos_ids = frozenset()
    return codec


def random_prompt(draw: random.Random, tokens: int) -> Prompt:
    return Prompt(text=" ".join(str(draw.randrange(4, VOCABULARY)) for _ in range(tokens)), lead=" ")


def random_text(draw: random.Random, words: int) -> str:
    return " ".join(draw.choice(WORDS) for _ in range(words)) + "."
