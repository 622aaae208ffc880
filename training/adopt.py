"""Initialise a lab model from another one's weights: embeddings are mapped to the new vocabulary.

Reading comes late and costs a small model millions of tokens; it does not depend on the world. So the layers are taken
over as they are, and the embeddings by what they stand for: a token that both have keeps its own; the words of the
world's names take those of the other's whole words that look like names, one each; any other token is the mean of its
parts. The facts that come along belong to other names, and are soon overwritten.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from arbitrag.errors import DataError
from arbitrag.lab.world import World
from training.checkpoint import read_llama

if TYPE_CHECKING:
    from tokenizers import Tokenizer

EMBEDDING = "model.embed_tokens.weight"
_SPACE = "Ġ"  # a space before a word, as byte-level tokens write it


def adopt(folder: Path, tokenizer: str, world: World, fresh: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """The weights of the checkpoint in ``folder``, a lab model of any world, for a tokenizer (in JSON) of this world.

    ``fresh`` are the weights that a training begins with; layers beyond those of the checkpoint stay as they are there,
    which is close to doing nothing. Raises DataError for a folder that holds no checkpoint of a lab model.
    """
    from tokenizers import Tokenizer

    there = read_llama(folder)
    old, new = Tokenizer.from_str(there.tokenizer), Tokenizer.from_str(tokenizer)
    if EMBEDDING not in there.weights:
        raise DataError(f"{folder} has no {EMBEDDING}; a lab model ties its output to its embedding")
    embedding = there.weights[EMBEDDING].float()
    return {**fresh, **there.weights, EMBEDDING: _embedding(embedding, old, new, world)}


def _embedding(known: Tensor, old: Tokenizer, new: Tokenizer, world: World) -> Tensor:
    """Embeddings (new vocabulary, width) from those of the old vocabulary; all of about the same length."""
    vocabulary = old.get_vocab()
    names = paired(vocabulary, new.get_vocab(), world)
    length = known.norm(dim=1).mean()
    rows = []
    for token, number in sorted(new.get_vocab().items(), key=lambda item: item[1]):
        if (same := vocabulary.get(names.get(token, token))) is not None:
            rows.append(known[same])
            continue
        special = token.startswith("<") and token.endswith(">")  # a prompt without turns ends in a colon
        text = ":" if special else new.decode([number], skip_special_tokens=False)
        mean = known[old.encode(text, add_special_tokens=False).ids].mean(0)
        rows.append(mean * (length / mean.norm()))
    return torch.stack(rows)


def paired(old: dict[str, int], new: dict[str, int], world: World) -> dict[str, str]:
    """Tokens of this world's names that the old vocabulary lacks, each with a token of the old that the new lacks.

    What byte-pair encoding merged last comes first: those are whole words.
    """
    wanted = [token for word in world.names.words() if (token := f"{_SPACE}{word}") in new and token not in old]
    free = [
        token
        for token in sorted(old, key=old.__getitem__, reverse=True)
        if len(token) > 4 and token[:1] == _SPACE and token[1:].istitle() and token[1:].isalpha() and token not in new
    ]
    return dict(zip(wanted, free, strict=False))
