"""Truncate passages to a token limit, by one rule for every method, and report every cut.

A passage costs what the model's tokenizer counts, and at least one token for every ``BLANKS_PER_TOKEN`` characters of
white space and invisible characters: some tokenizers drop those, and megabytes of them would otherwise cost nothing.

Passages are taken in their order. The first that does not fit is cut at the last word that does (in a script without
spaces, at the last character); those after it are dropped, as is one of which not a single word fits.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from arbitrag.text import INVISIBLE
from arbitrag.types import Cut, Dropped, Passage

Count = Callable[[int, Passage], int]

BLANKS_PER_TOKEN = 8  # ordinary text has about one blank a token, so that the tokenizer's own count decides there
NO_ROOM = "beyond the token limit"  # why a passage was dropped

# Thai, Lao, Burmese, Khmer, kana, and Han: scripts that put no spaces between words.
_UNSPACED = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_PIECE = re.compile(rf"[{_UNSPACED}]|[^\s{_UNSPACED}]+")

_BLANKS = re.compile(rf"[\s{INVISIBLE}]+")


@dataclass(frozen=True, slots=True)
class Fit:
    """The result of truncation: ``kept`` is what the model reads; ``cuts`` names the passage that was shortened.

    ``doubt`` says why something that was lost might have fitted after all: tokens were estimated.
    """

    kept: tuple[Passage, ...]
    dropped: tuple[Dropped, ...] = ()
    cuts: tuple[Cut, ...] = ()
    doubt: str = ""

    def then(self, tighter: Fit) -> Fit:
        """This fit followed by another one of what it kept: what both lost, with cuts measured from the whole."""
        tokens = {cut.passage_id: cut.tokens for cut in self.cuts}
        again = {cut.passage_id for cut in tighter.cuts} | {each.passage.id for each in tighter.dropped}
        cuts = [replace(cut, tokens=tokens.get(cut.passage_id, cut.tokens)) for cut in tighter.cuts]
        return Fit(
            tighter.kept,
            (*tighter.dropped, *self.dropped),
            (*cuts, *(cut for cut in self.cuts if cut.passage_id not in again)),
            tighter.doubt or self.doubt,
        )


def fit(passages: Sequence[Passage], room: int, count: Count) -> Fit:
    """The passages that fit into ``room`` tokens; ``count(number, passage)`` gives the tokens of one as prompted."""
    kept: list[Passage] = []
    count = partial(_tokens, count)
    for number, passage in enumerate(passages, 1):
        tokens = count(number, passage)
        if tokens <= room:
            kept.append(passage)
            room -= tokens
            continue
        dropped = [Dropped(later, NO_ROOM, no_room=True) for later in passages[number:]]
        shorter = _cut(passage, room, partial(count, number))
        if shorter is None:
            return Fit(tuple(kept), (Dropped(passage, NO_ROOM, no_room=True), *dropped))
        cut = Cut(passage.id or passage.place, count(number, shorter), tokens)
        return Fit((*kept, shorter), tuple(dropped), (cut,))
    return Fit(tuple(kept))


def _tokens(count: Count, number: int, passage: Passage) -> int:
    blanks = sum(map(len, _BLANKS.findall(passage.text)))
    return max(count(number, passage), blanks // BLANKS_PER_TOKEN)


def _cut(passage: Passage, room: int, count: Callable[[Passage], int]) -> Passage | None:
    ends = _ends(passage.text)
    low, high = 0, len(ends) - 1  # the first `low` pieces fit; all of them do not
    while low < high:
        middle = (low + high + 1) // 2
        if count(replace(passage, text=passage.text[: ends[middle - 1]])) <= room:
            low = middle
        else:
            high = middle - 1
    return replace(passage, text=passage.text[: ends[low - 1]]) if low else None


def _ends(text: str) -> list[int]:
    """Where a text may be cut: after each piece, but not before an accent or vowel sign that belongs to it."""
    ends = (match.end() for match in _PIECE.finditer(text))
    return [end for end in ends if not unicodedata.category(text[end : end + 1] or " ").startswith("M")]
