"""Similarity of two texts by each head of an encoder: dense, sparse and multi-vector.

dense     the cosine of two vectors                                                      any encoder
sparse    sum over the tokens that both texts have of the product of their weights       a ``MultiHead``
multi     mean over the tokens of the left text of their best cosine in the right one    a ``MultiHead``

The last is ColBERT's MaxSim divided by the number of tokens on the left. Reference: Chen et al. 2024, "BGE
M3-Embedding", section 3.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import accumulate
from operator import add
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from arbitrag.encode.base import Encoder, Kind
from arbitrag.encode.lazy import LazyEncoder
from arbitrag.errors import CapabilityError

if TYPE_CHECKING:
    import numpy as np

Head = Literal["dense", "sparse", "multi"]
Weights = Mapping[str, float]  # by head
HEADS: Mapping[str, str] = {"dense": "dense", "sparse": "sparse", "multi": "multi-vector"}  # by name, in words
_PRODUCTS = 1 << 24  # of rows at a time: 64 MB


@dataclass(frozen=True, slots=True)
class Heads:
    """The heads' output for a text: ``dense`` (width,), a weight per token, ``multi`` (tokens, any); unit vectors."""

    dense: np.ndarray
    sparse: Mapping[str, float]
    multi: np.ndarray


@runtime_checkable
class MultiHead(Protocol):
    """An encoder with all three heads."""

    async def encode_heads(self, texts: Sequence[str], *, kind: Kind) -> list[Heads]:
        """One for each text. Raises BackendError when the model fails."""
        ...


@dataclass(frozen=True, slots=True)
class Similarities:
    """The similarity of each pair, by head; a head that the encoder lacks is missing."""

    heads: Mapping[str, tuple[float, ...]]


async def compare(
    pairs: Sequence[tuple[str, str]], encoder: Encoder, stored: Mapping[str, np.ndarray] | None = None
) -> Similarities:
    """The similarities of the two texts of each pair, by head; 0 in every head for a text without words.

    ``stored`` has vectors that this encoder made before, by their text. An encoder with one head does not make them
    again; one with three has to, since the other two are stored nowhere.
    """
    if isinstance(encoder, LazyEncoder):
        encoder = await encoder.opened()
    full = list(dict.fromkeys(pair for pair in pairs if all(text.strip() for text in pair)))
    texts = list(dict.fromkeys(text for pair in full for text in pair))
    found: dict[Head, dict[tuple[str, str], float]]
    if isinstance(encoder, MultiHead):
        known = dict(zip(texts, await encoder.encode_heads(texts, kind="passage"), strict=True)) if texts else {}
        found = {
            "dense": {(left, right): float(known[left].dense @ known[right].dense) for left, right in full},
            "sparse": {(left, right): shared_weight(known[left].sparse, known[right].sparse) for left, right in full},
            "multi": await asyncio.to_thread(_late_interactions, full, {text: known[text].multi for text in texts}),
        }
    else:
        fresh = [text for text in texts if text not in (stored or {})]
        made = await encoder.encode(fresh, kind="passage") if fresh else ()
        rows = {**(stored or {}), **dict(zip(fresh, made, strict=True))}
        found = {"dense": {(left, right): float(rows[left] @ rows[right]) for left, right in full}}
    return Similarities({head: tuple(each.get(pair, 0.0) for pair in pairs) for head, each in found.items()})


def normalised_weights(weights: Weights, heads: Sequence[str], encoder: str) -> dict[str, float]:
    """The weights of the available heads, scaled to sum to 1. Raises CapabilityError when their sum is 0."""
    there = {head: weights[head] for head in heads if weights[head] > 0}
    if not there:
        wanted = " and ".join(HEADS[head] for head, weight in weights.items() if weight > 0)
        has = " and ".join(HEADS[head] for head in heads)
        raise CapabilityError(
            f"the weights are for the heads {wanted}; the encoder {encoder} has {has}.\n"
            "Give one of its heads a weight (--set dense_weight=1), or another encoder (--encoder bge-m3:BAAI/bge-m3)."
        )
    total = reduce(add, there.values())  # in order, as arrays are added: sum() of floats is not, from Python 3.12 on
    return {head: weight / total for head, weight in there.items()}


def shared_weight(left: Mapping[str, float], right: Mapping[str, float]) -> float:
    """The sum over common tokens of the products of their weights."""
    return float(sum(weight * right[token] for token, weight in left.items() if token in right))


def late_interaction(lefts: Sequence[np.ndarray], rights: Sequence[np.ndarray]) -> np.ndarray:
    """The mean over the rows of each left of their largest product with a row of each right, (lefts, rights).

    0 where either has no rows. One product for all: many small ones would mostly wait for the threads of BLAS.
    """
    import numpy as np

    found = np.zeros((len(lefts), len(rights)))
    some_left, some_right = ([at for at, rows in enumerate(each) if len(rows)] for each in (lefts, rights))
    if not some_left or not some_right:
        return found
    products = np.concatenate([lefts[at] for at in some_left]) @ np.concatenate([rights[at] for at in some_right]).T
    lengths = [len(lefts[at]) for at in some_left]
    best = np.maximum.reduceat(products, _starts([len(rights[at]) for at in some_right]), axis=1)
    means = np.add.reduceat(best, _starts(lengths), axis=0) / np.array(lengths)[:, None]
    found[np.ix_(some_left, some_right)] = means
    return found


def _starts(lengths: Sequence[int]) -> list[int]:
    return [0, *accumulate(lengths[:-1])]


def _late_interactions(
    pairs: Sequence[tuple[str, str]], known: Mapping[str, np.ndarray]
) -> dict[tuple[str, str], float]:
    """By pair; left texts that are compared with the same right ones are compared together, up to a bound."""
    asked: dict[str, list[str]] = {}
    for left, right in pairs:
        asked.setdefault(left, []).append(right)
    groups: dict[tuple[str, ...], list[list[str]]] = {}
    for left, rights in asked.items():
        blocks = groups.setdefault(tuple(rights), [[]])
        rows = sum(len(known[text]) for text in (*blocks[-1], left))
        if rows * sum(len(known[text]) for text in rights) > _PRODUCTS and blocks[-1]:
            blocks.append([])
        blocks[-1].append(left)
    found: dict[tuple[str, str], float] = {}
    for rights_of, blocks in groups.items():
        for lefts in blocks:
            table = late_interaction([known[text] for text in lefts], [known[text] for text in rights_of]).tolist()
            found |= {
                (left, right): table[row][at] for row, left in enumerate(lefts) for at, right in enumerate(rights_of)
            }
    return found
