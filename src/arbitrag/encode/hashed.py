"""A feature-hashing encoder without a model: cosines are high for texts that share words or character trigrams.

It knows no meaning: "car" and "automobile" are as far apart as any two words. What it adds to BM25 is spelling
(plurals, inflection, typing errors) at 256 numbers per passage and no download. That makes it the embedded default, and
fast enough to measure an index with.

A word w has the direction

    d(w) = sqrt(1/2) * s(w) + sqrt(1/2 / |grams(w)|) * sum of s(g) over g in grams(w)

where ``s(feature)`` is a vector of 256 signs, the bits of the feature's BLAKE2b digest (a signed random projection of
the one-hot feature space; Achlioptas 2003, "Database-friendly random projections"), and grams are the runs of 3
characters in "<w>". A text is

    sum over its distinct words of (1 + ln count(w)) * weight(w) * d(w),   weight(w) = min(1, (length(w) / 6)^2)

divided by its length; that is the dense head. The sparse head is the same weights of the words, of length one together,
and the multi-vector head d(w) of length one for every word of 4 letters and more.

No document frequencies are needed: by Zipf's law of abbreviation the words that are everywhere
are short, so length stands in for rarity, and a text's vector depends on nothing but the text.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import re
import threading
from collections import Counter
from collections.abc import Sequence

import numpy as np

from arbitrag.encode.base import Kind, unit_rows
from arbitrag.encode.similarity import Heads

WIDTH = 256
_WORD = re.compile(r"\w{1,32}")  # a longer run without a gap is read in pieces, so that no text makes a huge word
_FULL_WEIGHT = 6  # characters
_TELLING = 4  # characters of a word that the multi-vector head looks for
_BATCH = 256  # texts whose words are learned together
_KEPT_WORDS = 1 << 17  # directions kept for words already seen: 128 MB, if there are so many


class HashEncoder:
    """The encoder ``hash``: 256 wide, the same in every process and on every machine."""

    name = "hash"
    identity = "hash:256:1"

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rows: dict[str, int] = {}
        self._directions = np.empty((0, WIDTH), np.float32)

    @property
    def width(self) -> int:
        return WIDTH

    async def encode(self, texts: Sequence[str], *, kind: Kind) -> np.ndarray:
        """Unit vectors (texts, 256) float32; queries and passages are read alike; zeros for a text without words."""
        if len(texts) == 1:
            return self._encode(texts)  # a query takes less time than the way to a thread
        return await asyncio.to_thread(self._encode, texts)

    async def encode_heads(self, texts: Sequence[str], *, kind: Kind) -> list[Heads]:
        """Three heads of each text, see above; nothing is computed twice for a word."""
        return await asyncio.to_thread(self._heads, texts)

    async def aclose(self) -> None:
        pass

    def _encode(self, texts: Sequence[str]) -> np.ndarray:
        vectors = np.zeros((len(texts), WIDTH), np.float32)
        for start in range(0, len(texts), _BATCH):
            counts = [Counter(_WORD.findall(text.lower())) for text in texts[start : start + _BATCH]]
            with self._lock:
                self._learn(set().union(*counts))
                for row, counted in enumerate(counts, start):
                    if counted:
                        vectors[row] = self._sum(counted)
        return unit_rows(vectors)

    def _heads(self, texts: Sequence[str]) -> list[Heads]:
        found = []
        for text, dense in zip(texts, self._encode(texts), strict=True):
            counts = Counter(_WORD.findall(text.lower()))
            weights = np.array([(1 + math.log(count)) * _weight(word) for word, count in counts.items()])
            lexical = dict(zip(counts, (weights / np.linalg.norm(weights)).tolist(), strict=True)) if counts else {}
            telling = [word for word in counts if len(word) >= _TELLING] or list(counts)
            with self._lock:
                self._learn(set(telling))
                rows = self._directions[[self._rows[word] for word in telling]]
            found.append(Heads(dense, lexical, unit_rows(rows)))
        return found

    def _sum(self, counts: Counter[str]) -> np.ndarray:
        """The weighted sum of the directions of a text's words, (256,)."""
        rows = [self._rows[word] for word in counts]
        weights = 1 + np.log(np.fromiter(counts.values(), np.float32, len(counts)))
        # Not a matrix product: for sums this small the threads of BLAS would mostly wait for each other.
        return np.asarray(np.einsum("n,nw->w", weights, self._directions[rows]))

    def _learn(self, words: set[str]) -> None:
        """Make sure that every word has a row in the table of directions, emptying a full table first."""
        fresh = sorted(word for word in words if word not in self._rows)
        if len(self._rows) + len(fresh) > _KEPT_WORDS:
            self._rows.clear()
            fresh = sorted(words)
        if not fresh:
            return
        needed = len(self._rows) + len(fresh)
        if needed > len(self._directions):
            grown = np.empty((max(needed, 2 * len(self._directions)), WIDTH), np.float32)
            grown[: len(self._rows)] = self._directions[: len(self._rows)]
            self._directions = grown
        self._directions[len(self._rows) : needed] = _directions(fresh)
        self._rows.update(zip(fresh, range(len(self._rows), needed), strict=True))


def _directions(words: Sequence[str]) -> np.ndarray:
    """Weight times direction of each word, (words, 256)."""
    grams = [_grams(word) for word in words]
    signs = _signs(words)
    starts = np.cumsum([0, *map(len, grams[:-1])])
    # A word has at most 32 grams, so their signs add up within int8, which is several times faster than anything wider.
    spelling = np.add.reduceat(_signs([gram for of_word in grams for gram in of_word]), starts, axis=0, dtype=np.int8)
    shares = np.sqrt(0.5 / np.array([len(of_word) for of_word in grams], np.float32))[:, None]
    weights = np.array([_weight(word) for word in words], np.float32)[:, None]
    return np.asarray(weights * (np.sqrt(np.float32(0.5)) * signs + shares * spelling))


def _weight(word: str) -> float:
    return min(1.0, (len(word) / _FULL_WEIGHT) ** 2)


def _grams(word: str) -> list[str]:
    """The runs of 3 characters in ``<word>``; every word has at least one."""
    marked = f"<{word}>"
    return [marked[at : at + 3] for at in range(len(word))]


def _signs(features: Sequence[str]) -> np.ndarray:
    """A row of 256 signs for each feature: the bits of its digest, 1 as +1 and 0 as -1; (features, 256) int8."""
    digests = [hashlib.blake2b(each.encode("utf-8", "surrogatepass"), digest_size=32).digest() for each in features]
    bits = np.unpackbits(np.frombuffer(b"".join(digests), np.uint8)).view(np.int8)
    return bits.reshape(len(features), WIDTH) * np.int8(2) - np.int8(1)
