"""The lab model's tokenizer: byte-level BPE over what the model is trained on, with every word of a name whole.

A word has a space before it wherever it stands, also at the beginning of a text, so that it is always the same token.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import TYPE_CHECKING

from arbitrag.lab.world import World
from training.samples import ASSISTANT, END, SYSTEM, USER, Samples

if TYPE_CHECKING:
    from tokenizers import Tokenizer

BEGIN, PAD = "<s>", "<pad>"
SPECIAL = (BEGIN, END, PAD, USER, ASSISTANT, SYSTEM)
CHAT_TEMPLATE = (
    "<s>{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}{% if m['role'] == 'assistant' %}</s>{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
_SAMPLES = 20_000
_WORD_COPIES = 60  # often enough that no word of a name is left in pieces
_NUMBERS = 30  # of passages


def train_tokenizer(world: World, *, vocabulary: int = 5120, samples: int = _SAMPLES) -> Tokenizer:
    """A tokenizer for this world; the same arguments give the same one."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        min_frequency=2,
        show_progress=False,
    )
    tokenizer.train_from_iterator(list(_texts(world, samples)), trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{BEGIN} $A", special_tokens=[(BEGIN, 0)])
    return tokenizer


def _texts(world: World, count: int) -> Iterator[str]:
    samples = Samples(world, random.Random("tok"))
    for _ in range(count):
        for piece in samples.draw(1.0).pieces:
            text = piece.text
            for token in SPECIAL:
                text = text.replace(token, "")
            yield text
    for word in world.names.words():
        yield from [f" {word}"] * _WORD_COPIES
    yield from [f"{number}." for number in range(1, _NUMBERS + 1)] * 20
