"""Made-up web pages of many templates, each with the text that a reader came for and the text around it.

A page in ``pages`` has marks: ``{{ … }}`` around text that has to be kept, ``[[ … ]]`` around text that has to go, as
menus, footers and banners do. What is in neither does not count. Pages named ``later-…`` were written when the rules of
``arbitrag.retrieve.documents.boilerplate`` were finished, and none of those was changed for them.
"""

from __future__ import annotations

import html
import re
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).with_name("pages")
_MARKS = re.compile(r"\{\{(.*?)\}\}|\[\[(.*?)\]\]", re.DOTALL)
_TAGS = re.compile(r"<[^>]*>")


@dataclass(frozen=True)
class Page:
    """``kept`` and ``left_out`` are pieces of text in single spaces, in their order."""

    name: str
    html: str
    kept: tuple[str, ...]
    left_out: tuple[str, ...]


def _page(name: str, source: str) -> Page:
    kept: list[str] = []
    left_out: list[str] = []
    for keep, leave in _MARKS.findall(source):
        pieces = kept if keep else left_out
        pieces += [text for part in _TAGS.split(keep or leave) if (text := " ".join(html.unescape(part).split()))]
    plain = re.sub(r"\{\{|\}\}|\[\[|\]\]", "", source)
    return Page(name, plain, tuple(kept), tuple(left_out))


def recall(page: Page, text: str) -> float:
    """The share of the words to keep whose piece is in a text."""
    return _share(page.kept, text)


def precision(page: Page, text: str) -> float:
    """Of the words of a page's pieces that are in a text, the share to keep; 1 where none is there."""
    kept, left = _words(page.kept, text), _words(page.left_out, text)
    return kept / (kept + left) if kept + left else 1.0


def _share(pieces: tuple[str, ...], text: str) -> float:
    return _words(pieces, text) / sum(len(piece.split()) for piece in pieces)


def _words(pieces: tuple[str, ...], text: str) -> int:
    """The words of the pieces that are there; one of one or two words has to stand by itself between others."""
    flat = f" {_flat(text)} "
    looked_for = ((piece, _flat(piece)) for piece in pieces)
    there = (
        piece for piece, flat_piece in looked_for if (flat_piece if " " in flat_piece else f" {flat_piece} ") in flat
    )
    return sum(len(piece.split()) for piece in there)


def _flat(text: str) -> str:
    return " ".join(re.sub(r"[|•]", " ", text).split())


PAGES = [_page(path.stem, path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.html"))]
