"""Cut text into passages at sentence ends, streaming: a file of any size passes through in pieces.

Every passage is an exact slice of the text it was cut from, so ``text[offset : offset + len(passage)] == passage``.
Tokens are estimated without a model: per word 1.3, never less than a quarter of its letters, and one per character
in scripts that are written without spaces.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

TOKENS_PER_WORD = 1.3
LETTERS_PER_TOKEN = 4
_ROUNDING = 1e-6  # sums of tenths are not exact
_WINDOW = 32_768  # characters looked at together; no sentence that a person wrote is longer

# Scripts written without spaces between words: Thai to Myanmar, Khmer, kana, Han, Hangul and the extensions of Han.
UNSPACED = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    r"\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]"
)
_BREAK = re.compile(
    r"""
      (?<![.!?…]) [.!?…]+ ["'”’»)\]]* \s+   # end marks (looked at from the first), closing quotes, and space
    | [。！？｡．]+ ["'”’」』）】〉》]* \s*      # the full-width marks need no space
    | \n [ \t]* \n \s*                      # a blank line
    | \n (?= [ \t]* (?: \#{1,6} | [*+•-] | \d{1,3}[.)] ) [ \t] )  # the next line is a heading or a list item
    """,
    re.VERBOSE,
)
_OPENING = "([{<\"'“‘«*_"
_ABBREVIATIONS = frozenset(
    re.findall(
        r"\w+",
        "al approx art ave bd bzw ca cap cf ch chap co col corp dept dr ed eds eg eq esp est etc ex fig figs "
        "gen gov hon ie inc jr lt ltd max messrs min misc mr mrs ms mt nr no nos op para pp prof pt ref resp "
        "rev sec sect sen sgt sr st str tab tel univ usw viz vol vols vs",
    )
)


@dataclass(frozen=True, slots=True)
class Piece:
    """A slice of a text: ``line`` counts from 1 and ``offset`` counts characters from 0."""

    text: str
    line: int
    offset: int


def estimate_tokens(text: str) -> float:
    """About how many tokens a language model would make of ``text``."""
    unspaced = 0 if text.isascii() else len(UNSPACED.findall(text))
    words = text.split()
    letters = sum(map(len, words)) - unspaced
    # A run of unspaced characters is also one "word" of split(); it only adds when there is nothing else to count.
    spaced = len(words) if not unspaced else sum(1 for word in words if not UNSPACED.match(word))
    return unspaced + max(TOKENS_PER_WORD * spaced, letters / LETTERS_PER_TOKEN)


def cut(text: str | Iterable[str], tokens: int) -> Iterator[Piece]:
    """Passages of at most ``tokens`` estimated tokens, whole sentences as far as they fit, in their order.

    A sentence that is longer by itself is cut at words, a longer word at characters. A last passage of less than an
    eighth of ``tokens`` joins the one before, which may then be that much longer. Nothing but white space is lost.
    ``text`` may come in chunks of any size.
    """
    chunks = [text] if isinstance(text, str) else text
    offset, line = 0, 1
    for group in _joined_tail(_groups(segments(chunks), tokens), tokens / 8):
        body = group.lstrip()
        skipped = group[: len(group) - len(body)]
        if body:
            yield Piece(body.rstrip(), line + skipped.count("\n"), offset + len(skipped))
        offset += len(group)
        line += group.count("\n")


def segments(chunks: Iterable[str]) -> Iterator[str]:
    """Sentences with the white space after them; joined again they are the text. At most 32,768 characters each."""
    waiting: list[str] = []
    size = 0
    for chunk in chunks:
        waiting.append(chunk)
        size += len(chunk)
        if size < 2 * _WINDOW:
            continue
        # The last sentence may go on in the next chunk, so it waits.
        *whole, last = _bounded(sentences("".join(waiting)))
        yield from whole
        waiting, size = [last], len(last)
    yield from _bounded(sentences("".join(waiting)))


def sentences(text: str) -> Iterator[str]:
    """The sentences of a text with the white space behind them; joined they are the text."""
    start = 0
    for found in _BREAK.finditer(text):
        if _ends_sentence(text, found):
            yield text[start : found.end()]
            start = found.end()
    if start < len(text):
        yield text[start:]


def _ends_sentence(text: str, found: re.Match[str]) -> bool:
    """Whether a break is one: a single full stop may also belong to an abbreviation, initials or a number."""
    mark = found.group()
    if mark[0] != "." or mark.startswith("..") or mark.count("\n") > 1:
        return True
    if text[found.end() : found.end() + 1].islower():
        return False
    before = text[max(0, found.start() - 20) : found.start()].split()
    word = before[-1].lstrip(_OPENING).lower() if before else ""
    initials = all(len(part) == 1 and part.isalpha() for part in word.split("."))
    return not (initials or word in _ABBREVIATIONS)


def _bounded(sentences: Iterable[str]) -> Iterator[str]:
    for sentence in sentences:
        while len(sentence) > _WINDOW:
            space = sentence.rfind(" ", 1, _WINDOW) + 1 or _WINDOW
            yield sentence[:space]
            sentence = sentence[space:]
        yield sentence


def _groups(sentences: Iterable[str], tokens: int) -> Iterator[tuple[str, float]]:
    """Sentences joined as long as they stay within ``tokens``; each group with its estimate."""
    group: list[str] = []
    total = 0.0
    for sentence in sentences:
        size = estimate_tokens(sentence)
        parts = [(sentence, size)] if size <= tokens else _words(sentence, tokens)
        for part, part_size in parts:
            if group and total + part_size > tokens + _ROUNDING:
                yield "".join(group), total
                group, total = [], 0.0
            group.append(part)
            total += part_size
    if group:
        yield "".join(group), total


def _words(sentence: str, tokens: int) -> Iterator[tuple[str, float]]:
    """The words of a sentence that is too long, with the space after each; no part is over ``tokens`` characters."""
    for word in re.findall(r"\S+\s*|\s+", sentence):
        for start in range(0, len(word), tokens):
            part = word[start : start + tokens]
            yield part, estimate_tokens(part)


def _joined_tail(groups: Iterable[tuple[str, float]], small: float) -> Iterator[str]:
    """The groups; a last one under ``small`` tokens is joined to the one before."""
    waiting: list[tuple[str, float]] = []
    for group in groups:
        waiting.append(group)
        if len(waiting) > 2:
            yield waiting.pop(0)[0]
    if len(waiting) == 2 and waiting[1][1] < small:
        yield waiting[0][0] + waiting[1][0]
    else:
        yield from (text for text, _ in waiting)
