"""Text analysis for BM25: tokens and stems, equal for passages and queries.

Words are runs of letters and digits, in lower case, without accents, reduced to their English stem ("running",
"runs" → "run"). Text written without spaces between words (Chinese, Japanese, Korean, Thai …) is searched by
characters and pairs of neighbours. No word is left out: "The Who" and "to be or not to be" can be found.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

from arbitrag.errors import unknown
from arbitrag.retrieve.documents.chunking import UNSPACED

if TYPE_CHECKING:
    import tantivy

LANGUAGES = frozenset(
    re.findall(
        r"\w+",
        "arabic danish dutch english finnish french german greek hungarian italian norwegian portuguese romanian "
        "russian spanish swedish tamil turkish none",
    )
)
NAME = "arbitrag"  # of the analyzer in a schema
_LONGEST_WORD = 64  # bytes; what is longer is encoded data
_UNSPACED_RUN = re.compile(f"{UNSPACED.pattern}+")


def searchable(text: str) -> str:
    """``text`` in the form that is handed to the analyzer: composed, and unspaced scripts spread out by spaces."""
    if text.isascii():
        return text
    # Halves of surrogate pairs come out of careless JSON; no UTF-8 holds them.
    text = unicodedata.normalize("NFKC", text.encode("utf-8", "replace").decode())
    return _UNSPACED_RUN.sub(_spread, text)


def analyzer(language: str) -> tantivy.TextAnalyzer:
    """The analyzer for a language, whose only effect is on the stem of words; ``none`` keeps them whole."""
    from tantivy import Filter, TextAnalyzerBuilder, Tokenizer

    if language not in LANGUAGES:
        raise unknown("language", language, LANGUAGES)
    builder = TextAnalyzerBuilder(Tokenizer.simple()).filter(Filter.remove_long(_LONGEST_WORD))
    builder = builder.filter(Filter.lowercase()).filter(Filter.ascii_fold())
    if language != "none":
        builder = builder.filter(Filter.stemmer(language))
    return builder.build()


def _spread(run: re.Match[str]) -> str:
    characters = run.group()
    pairs = (characters[at : at + 2] for at in range(len(characters) - 1))
    return f" {' '.join(characters)} {' '.join(pairs)} "
