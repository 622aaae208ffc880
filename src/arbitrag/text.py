"""Text rules that set a measurement exist once, here: what an answer is, when two agree, what may reach a terminal."""

from __future__ import annotations

import re
import string

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_LABEL = re.compile(r"^(?:(?:final\s+)?answer\s*[:\-]|the\s+answer\s+is\s*:?)\s*", re.IGNORECASE)
_QUOTES = " \t\r\n\"'`"
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
# Control characters and the bidirectional overrides that can make a terminal or a reader see another text.
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")


def normalize_answer(text: str) -> str:
    """SQuAD normalisation: lower case, no punctuation, no articles, single spaces (Rajpurkar et al. 2016).

    A text that would vanish ("The", "A") keeps its bare lower-case form, so that it can be matched exactly.
    """
    bare = text.lower().translate(_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", bare).split()) or " ".join(bare.split())


def agree(left: str, right: str) -> bool:
    """Whether two answers are the same after normalisation."""
    return normalize_answer(left) == normalize_answer(right)


def clean_answer(text: str) -> str:
    """The short answer in a model's reply: first line, without a leading label, quotes or a final full stop."""
    answer = _LABEL.sub("", text.strip()).lstrip()
    answer = answer.split("\n", 1)[0].strip(_QUOTES)
    return answer.removesuffix(".").strip(_QUOTES)


def declines(answer: str) -> bool:
    """Whether a short answer only says that it is not known."""
    return normalize_answer(answer) in _DECLINES


def printable(text: str) -> str:
    """``text`` with control and direction characters made visible, safe for a terminal, a log or a page."""
    return _UNPRINTABLE.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


def one_line(text: str, width: int = 80) -> str:
    """``text`` printable, on one line, shortened to ``width`` characters with an ellipsis."""
    flat = " ".join(printable(text).split())
    return flat if len(flat) <= width else flat[: width - 1].rstrip() + "…"
