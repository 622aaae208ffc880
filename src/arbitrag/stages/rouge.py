"""ROUGE-L: how much of two texts is one common subsequence of words.

    P = LCS / words of one,  R = LCS / words of the other,  F1 = 2 P R / (P + R)

Lin, C.-Y. (2004): ROUGE: A Package for Automatic Evaluation of Summaries. Words are stemmed
(``arbitrag.stages.porter``). The longest common subsequence is computed bit-parallel, a word being one character.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import TYPE_CHECKING

from arbitrag.retrieve.passages import UNSPACED
from arbitrag.stages.porter import stem

if TYPE_CHECKING:
    import numpy as np

_ASCII_WORD = re.compile(r"[a-z0-9]+")
_WORD = re.compile(rf"{UNSPACED.pattern}|(?:(?!{UNSPACED.pattern})\w)+")
_FIRST = 0x10000  # behind the surrogates, which no string of characters may hold


def ascii_words(text: str) -> list[str]:
    """Stemmed words as the package ``rouge_score`` counts them: runs of ASCII letters and digits, no others."""
    return _stemmed(_ASCII_WORD.findall(text.lower()))


def words(text: str) -> list[str]:
    """Stemmed words of any script; where no spaces separate words, characters."""
    return _stemmed(_WORD.findall(unicodedata.normalize("NFKC", text).casefold()))


def rouge_l(texts: Sequence[Sequence[str]]) -> np.ndarray:
    """F1 of every pair of texts, given as words: shape (texts, texts), float64. A text without words is like none."""
    import numpy as np
    from rapidfuzz.distance import LCSseq
    from rapidfuzz.process import cdist

    codes: dict[str, str] = {}
    spelled = ["".join(codes.setdefault(word, chr(_FIRST + len(codes))) for word in text) for text in texts]
    common = cdist(spelled, spelled, scorer=LCSseq.similarity, dtype=np.int32).astype(np.float64)
    lengths = np.array([max(len(text), 1) for text in spelled], np.float64)
    precision, recall = common / lengths[:, None], common / lengths[None, :]
    both = precision + recall
    # In this order of operations, so that it equals rouge_score in the last bit, also at a threshold.
    return np.divide(2 * precision * recall, both, out=np.zeros_like(common), where=both > 0)


def _stemmed(found: list[str]) -> list[str]:
    return [stem(word) if len(word) > 3 and word.isascii() else word for word in found]
