"""Made-up words for large collections of passages."""

from __future__ import annotations

_SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]


def word(rank: int) -> str:
    """The word of each frequency rank from 0, shorter for frequent ones: ba, be, … baba."""
    text, rank = _SYLLABLES[rank % len(_SYLLABLES)], rank // len(_SYLLABLES)
    while rank:
        rank -= 1
        text, rank = _SYLLABLES[rank % len(_SYLLABLES)] + text, rank // len(_SYLLABLES)
    return text
