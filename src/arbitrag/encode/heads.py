"""How alike two texts are, by each of the heads that an encoder has.

dense     the cosine of two vectors                                                      any encoder
sparse    sum over the tokens that both texts have of the product of their weights       a ``MultiHead``
multi     mean over the tokens of the left text of their best cosine in the right one    a ``MultiHead``

The last is ColBERT's MaxSim divided by the number of tokens on the left. Reference: Chen et al. 2024, "BGE
M3-Embedding", section 3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

from arbitrag.encode.base import Encoder, Kind
from arbitrag.encode.later import LaterEncoder

if TYPE_CHECKING:
    import numpy as np

Head = Literal["dense", "sparse", "multi"]


@dataclass(frozen=True, slots=True)
class Heads:
    """One text: ``dense`` (width,) of length one, a weight per token, and ``multi`` (tokens, any) with unit rows."""

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
    """By head, the similarity of each pair; a head that the encoder lacks is not there."""

    heads: Mapping[str, tuple[float, ...]]


async def compare(
    pairs: Sequence[tuple[str, str]], encoder: Encoder, stored: Mapping[str, np.ndarray] | None = None
) -> Similarities:
    """How alike the two texts of each pair are. A text without a word is like nothing: 0 in every head.

    ``stored`` has vectors that this encoder made before, by their text. An encoder with one head does not make them
    again; one with three has to, since the other two are stored nowhere.
    """
    if isinstance(encoder, LaterEncoder):
        encoder = await encoder.opened()
    full = [pair for pair in pairs if all(text.strip() for text in pair)]
    texts = list(dict.fromkeys(text for pair in full for text in pair))
    found: dict[tuple[str, str], Mapping[Head, float]]
    heads: tuple[Head, ...]
    if isinstance(encoder, MultiHead):
        heads = ("dense", "sparse", "multi")
        known = dict(zip(texts, await encoder.encode_heads(texts, kind="passage"), strict=True)) if texts else {}
        found = {(left, right): similarities(known[left], known[right]) for left, right in full}
    else:
        heads = ("dense",)
        fresh = [text for text in texts if text not in (stored or {})]
        made = await encoder.encode(fresh, kind="passage") if fresh else ()
        rows = {**(stored or {}), **dict(zip(fresh, made, strict=True))}
        found = {(left, right): {"dense": float(rows[left] @ rows[right])} for left, right in full}
    return Similarities({head: tuple(found[pair][head] if pair in found else 0.0 for pair in pairs) for head in heads})


def similarities(left: Heads, right: Heads) -> Mapping[Head, float]:
    """The three similarities of two texts."""
    return {
        "dense": float(left.dense @ right.dense),
        "sparse": shared_weight(left.sparse, right.sparse),
        "multi": late_interaction(left.multi, right.multi),
    }


def shared_weight(left: Mapping[str, float], right: Mapping[str, float]) -> float:
    """The sum over common tokens of the products of their weights."""
    return float(sum(weight * right[token] for token, weight in left.items() if token in right))


def late_interaction(left: np.ndarray, right: np.ndarray) -> float:
    """The mean over the rows of ``left`` of their largest product with a row of ``right``; 0 when either has none."""
    if not len(left) or not len(right):
        return 0.0
    return float((left @ right.T).max(axis=1).mean())
