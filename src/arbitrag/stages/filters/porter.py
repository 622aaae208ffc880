"""The stem of an English word, by Porter's algorithm with the changes that NLTK made to it.

ROUGE as published numbers use it stems with NLTK's ``PorterStemmer``, so its decisions can only be repeated with the
same stems; NLTK itself takes two seconds to import. Other than the original, "flies" and "spied" keep an i, "dies" and
"tied" keep "ie", a y behind a vowel stays ("enjoy"), a few words are irregular, and two letters are left alone.

Porter, M. F. (1980): An algorithm for suffix stripping. Program 14 (3), 130-137.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

_IRREGULAR = {
    "skies": "sky",
    "sky": "sky",
    "dying": "die",
    "lying": "lie",
    "tying": "tie",
    "news": "news",
    "innings": "inning",
    "inning": "inning",
    "outings": "outing",
    "outing": "outing",
    "cannings": "canning",
    "canning": "canning",
    "howe": "howe",
    "proceed": "proceed",
    "exceed": "exceed",
    "succeed": "succeed",
}
_STEP_2 = {
    "ational": "ate",
    "tional": "tion",
    "enci": "ence",
    "anci": "ance",
    "izer": "ize",
    "bli": "ble",
    "alli": "al",
    "entli": "ent",
    "eli": "e",
    "ousli": "ous",
    "ization": "ize",
    "ation": "ate",
    "ator": "ate",
    "alism": "al",
    "iveness": "ive",
    "fulness": "ful",
    "ousness": "ous",
    "aliti": "al",
    "iviti": "ive",
    "biliti": "ble",
    "fulli": "ful",
}
_STEP_3 = {"icate": "ic", "ative": "", "alize": "al", "iciti": "ic", "ical": "ic", "ful": "", "ness": ""}
_STEP_4 = dict.fromkeys(
    [
        *("al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ion", "ou", "ism", "ate"),
        *("iti", "ous", "ive", "ize"),
    ],
    "",
)


@lru_cache(maxsize=1 << 16)
def stem(word: str) -> str:
    """The stem of a word in lower case."""
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    if len(word) <= 2:
        return word
    word = _step_1c(_step_1b(_step_1a(word)))
    word = _step_4(_swap(_step_2(word), _STEP_3))
    return _step_5(word)


def _step_1a(word: str) -> str:
    if word.endswith("ies"):
        return word[:-1] if len(word) == 4 else word[:-2]
    if word.endswith("sses"):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def _step_1b(word: str) -> str:
    if word.endswith("ied"):
        return word[:-1] if len(word) == 4 else word[:-2]
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    rest = next((word.removesuffix(end) for end in ("ed", "ing") if word.endswith(end)), word)
    if rest == word or "v" not in _shape(rest):
        return word
    if rest.endswith(("at", "bl", "iz")):
        return rest + "e"
    if _doubled(rest):
        return rest if rest[-1] in "lsz" else rest[:-1]
    return rest + "e" if _measure(rest) == 1 and _short(rest) else rest


def _step_1c(word: str) -> str:
    turns = word.endswith("y") and len(word) > 2 and _shape(word[:-1])[-1] == "c"
    return f"{word[:-1]}i" if turns else word


def _step_2(word: str) -> str:
    if word.endswith("alli") and _measure(word[:-4]) > 0:
        return _step_2(word[:-2])
    if word.endswith("logi"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    return _swap(word, _STEP_2)


def _step_4(word: str) -> str:
    if word.endswith("ion") and word[-4:-3] not in ("s", "t"):
        return word
    return _swap(word, _STEP_4, least=2)


def _step_5(word: str) -> str:
    if word.endswith("e"):
        measure = _measure(word[:-1])
        if measure > 1 or (measure == 1 and not _short(word[:-1])):
            word = word[:-1]
    return word[:-1] if word.endswith("ll") and _measure(word[:-1]) > 1 else word


def _swap(word: str, endings: Mapping[str, str], least: int = 1) -> str:
    """The word with its longest listed ending replaced, if what stands before it has the measure for that."""
    for length in range(min(7, len(word)), 1, -1):
        if word[-length:] in endings:
            rest = word[:-length]
            return rest + endings[word[-length:]] if _measure(rest) >= least else word
    return word


def _shape(word: str) -> str:
    """``c`` for each consonant and ``v`` for each vowel; a y is a vowel behind a consonant."""
    shape = ""
    for letter in word:
        vowel = letter in "aeiou" or (letter == "y" and shape.endswith("c"))
        shape += "v" if vowel else "c"
    return shape


def _measure(word: str) -> int:
    """Porter's m: how often a vowel is followed by a consonant."""
    return _shape(word).count("vc")


def _doubled(word: str) -> bool:
    return len(word) > 1 and word[-1] == word[-2] and _shape(word)[-1] == "c"


def _short(word: str) -> bool:
    """Porter's *o: ends in consonant, vowel, consonant, the last not w, x or y; or is a vowel and a consonant."""
    shape = _shape(word)
    return shape == "vc" or (shape.endswith("cvc") and word[-1] not in "wxy")
