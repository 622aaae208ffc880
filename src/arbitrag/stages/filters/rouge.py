"""ROUGE-L: how much of two texts is one common subsequence of words.

    P = LCS / words of one,  R = LCS / words of the other,  F1 = 2 P R / (P + R)

Lin, C.-Y. (2004): ROUGE: A Package for Automatic Evaluation of Summaries. Words are stemmed
(``arbitrag.stages.filters.porter``).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING

from arbitrag.retrieve.documents.chunking import UNSPACED
from arbitrag.stages.filters.porter import stem

if TYPE_CHECKING:
    import numpy as np

_ASCII_WORD = re.compile(r"[a-z0-9]+")
_WORD = re.compile(rf"{UNSPACED.pattern}|(?:(?!{UNSPACED.pattern})\w)+")


def ascii_words(text: str) -> list[str]:
    """Stemmed words as the package ``rouge_score`` counts them: runs of ASCII letters and digits, no others."""
    return _stemmed(_ASCII_WORD.findall(text.lower()))


def words(text: str) -> list[str]:
    """Stemmed words of any script; where no spaces separate words, characters."""
    return _stemmed(_WORD.findall(unicodedata.normalize("NFKC", text).casefold()))


def rouge_l(texts: Sequence[Sequence[str]], wanted: np.ndarray | None = None) -> np.ndarray:
    """F1 of every pair of texts, given as words: shape (texts, texts), float64. A text without words is like none.

    ``wanted`` (texts, texts), bool and symmetric, leaves out the pairs that are not, which then have 0.
    """
    import numpy as np

    common = np.zeros((len(texts), len(texts)))
    pairs = np.triu(np.ones(common.shape, bool) if wanted is None else wanted)
    for row in np.flatnonzero(pairs.any(1)).tolist():
        places = _places(texts[row])
        for column in np.flatnonzero(pairs[row]).tolist():
            common[row, column] = common[column, row] = _common(places, len(texts[row]), texts[column])
    lengths = np.array([max(len(text), 1) for text in texts], np.float64)
    precision, recall = common / lengths[:, None], common / lengths[None, :]
    both = precision + recall
    # In this order of operations, so that it equals rouge_score in the last bit, also at a threshold.
    return np.divide(2 * precision * recall, both, out=np.zeros_like(common), where=both > 0)


def _places(text: Sequence[str]) -> dict[str, int]:
    """For each word a number whose bits are the places where it stands."""
    places: dict[str, int] = {}
    for place, word in enumerate(text):
        places[word] = places.get(word, 0) | 1 << place
    return places


def _common(places: dict[str, int], length: int, other: Sequence[str]) -> int:
    """The length of the longest common subsequence of two texts, of which one is given by ``places``.

    Bit-parallel: a bit of ``row`` is 0 where the subsequence grows, and a word of the other text updates all of them at
    once (Hyyrö 2004: Bit-parallel LCS-length computation revisited).
    """
    full = row = (1 << length) - 1
    for word in other:
        matching = row & places.get(word, 0)
        row = ((row + matching) | (row - matching)) & full
    return length - row.bit_count()


def _stemmed(found: list[str]) -> list[str]:
    return [stem(word) if len(word) > 3 and word.isascii() else word for word in found]
