"""Text rules: answer normalisation and comparison, options, declines, and safe text for terminals."""

from __future__ import annotations

import re
import string
from collections.abc import Sequence
from functools import lru_cache

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
# Replies are untrusted: two neighbours that can match the same characters would make a pattern quadratic (`*+` gives
# nothing back; tests/test_linear_patterns.py measures each).
_LABEL = re.compile(r"^(?:(?:(?:final\s+)?answer\s*[:\-]|the\s+answer\s+is\b(?:\s*:)?)\s*+)+", re.IGNORECASE)
_MARK = re.compile(r"\b(?:answer\s*:|the\s+answer\s+is\b(?:\s*:)?)\s*+(?=\S)", re.IGNORECASE)
_RUN_ON = re.compile(r"\n[ \t]*question\s*:", re.IGNORECASE)
_THOUGHTS = re.compile(r"\s*<(think|thinking|reasoning)>.*?(?:</\1>|\Z)", re.IGNORECASE | re.DOTALL)
# Only A to Z: without regard to case, [a-z] would match letters such as ſ and İ as well, which stand for no option.
_LETTER = re.compile(r"\W*(?:(?:option|choice|answer)\s+)?(?-i:([A-Za-z]))(?:[).:\]]|\W*$)", re.IGNORECASE)
_QUOTES = " \t\r\n\"'`"
_FILLER = " .-_*…–—"
_DECLINES = frozenset(
    [
        "i dont know",
        "i do not know",
        "dont know",
        "unknown",
        "not sure",
        "im not sure",
        "i cannot answer",
        "no answer",
    ]
)
# What no reader sees, for a character class: control characters that are no white space, and Unicode's
# Default_Ignorable_Code_Point (invisible spaces and joiners, soft hyphens, variation selectors, tags). The Hangul
# fillers among them are blank, but letters to ``\w``.
FILLERS = r"\u115f\u1160\u3164\uffa0"
INVISIBLE = (
    rf"\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u00ad\u034f\u061c{FILLERS}\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    r"\u2060-\u206f\ufe00-\ufe0f\ufeff\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
# What can make a terminal or a reader see another text, or see a line end where there is none: control characters,
# invisible ones, and direction overrides. Lone surrogates (undecodable bytes of a file name) cannot even be written.
SURROGATE = re.compile("[\ud800-\udfff]")  # half of a pair, which UTF-8 cannot hold
_UNPRINTABLE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb"
    r"\U000e0000-\U000e007f]"
)


@lru_cache(maxsize=1024)  # a measurement asks again and again for the same gold answer
def normalize_answer(text: str) -> str:
    """SQuAD normalisation: lower case, no punctuation, no articles, single spaces (Rajpurkar et al. 2016).

    A text that would vanish keeps its articles ("The", "A") or its signs ("$", "++"), so that it can be matched
    exactly and two of them are not equal by both being nothing.
    """
    lower = text.lower()
    bare = lower.translate(_PUNCTUATION)
    kept = (_ARTICLES.sub(" ", bare), bare, lower)
    return next((words for words in (" ".join(form.split()) for form in kept) if words), "")


@lru_cache(maxsize=1024)
def vanishes(text: str) -> bool:
    """Whether SQuAD normalisation would leave nothing of ``text``: it is blank, or all articles and signs."""
    return not _ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).strip()


def agree(left: str, right: str) -> bool:
    """Whether two answers are the same after normalisation."""
    return normalize_answer(left) == normalize_answer(right)


def clean_answer(text: str) -> str:
    """The short answer in a model's reply: one line, without labels, quotes or a final full stop.

    It is the first line, or what follows "Answer:" or "the answer is" where the reply leads up to it. A question that
    the model goes on to ask itself is no part of the reply, and neither are its thoughts. A reply of dots and dashes
    is no answer: it comes out empty.
    """
    reply = _RUN_ON.split(without_thoughts(text).strip(), maxsplit=1)[0].rstrip()
    mark = _MARK.search(reply)
    answer = _LABEL.sub("", reply[mark.end() :] if mark else reply).lstrip()
    answer = answer.split("\n", 1)[0].strip(_QUOTES)
    answer = answer.removesuffix(".").strip(_QUOTES)
    return answer if answer.strip(_FILLER) else ""


def without_thoughts(reply: str) -> str:
    """A reply without the ``<think>…</think>`` that some models begin with; one cut off in it leaves nothing."""
    thoughts = _THOUGHTS.match(reply)
    return reply[thoughts.end() :] if thoughts else reply


def declines(answer: str) -> bool:
    """Whether a short answer only says that it is not known."""
    return normalize_answer(answer.replace("’", "'")) in _DECLINES


def choose(reply: str, options: Sequence[str]) -> int | None:
    """The number, from 0, of the option that a reply chooses; None where that is none or not clear.

    By falling precedence: the reply is the text of an option; it begins with an option's letter ("B", "b)", "Option
    B: ...") and names no other option; it names one option, as whole words. Of "July 1" and "July 1 2020" in one reply
    only the longer counts.
    """
    texts = [normalize_answer(option) for option in options]
    text = normalize_answer(reply)
    if text in texts:
        return texts.index(text)
    named = {number for number, option in enumerate(texts) if _has_words(text, option)}
    named -= {n for n in named for longer in named if texts[n] != texts[longer] and _has_words(texts[longer], texts[n])}
    letter = _LETTER.match(reply)
    lettered = string.ascii_lowercase.index(letter[1].lower()) if letter else len(options)
    if lettered < len(options) and named <= {lettered}:
        return lettered
    return named.pop() if len(named) == 1 and lettered >= len(options) else None


def as_option(answer: str, options: Sequence[str]) -> str:
    """The text of the option that an answer chooses; the answer itself where that is none, or there are no options."""
    number = choose(answer, options)
    return answer if number is None else options[number]


def final_answer(answer: str, options: Sequence[str] = ()) -> str | None:
    """The answer as it is reported: an option's text where it chooses one, None where it declines."""
    text = as_option(answer, options)
    return None if not text or declines(text) else text


def printable(text: str) -> str:
    """``text`` with control and direction characters made visible, safe for a terminal, a log or a page.

    Tabs and line feeds stay.
    """
    return _UNPRINTABLE.sub(_visible, text)


def encodable(text: str) -> str:
    """``text`` with U+FFFD for each lone surrogate.

    Careless JSON and undecodable bytes of an argument bring them, and no tokenizer, socket or database takes one.
    """
    return SURROGATE.sub("\ufffd", text)


def _visible(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def one_line(text: str, width: int = 80) -> str:
    """``text`` printable, on one line, shortened to ``width`` characters with an ellipsis."""
    flat = " ".join(printable(text).split())
    return flat if len(flat) <= width else flat[: width - 1].rstrip() + "…"


def listed(words: Sequence[str], last: str = "and") -> str:
    """The words as a phrase: ``generate, score and retrieve``; an empty text for none."""
    return " ".join(filter(None, [", ".join(words[:-1]), last if len(words) > 1 else "", *words[-1:]]))


def _has_words(text: str, words: str) -> bool:
    return f" {words} " in f" {text} "
