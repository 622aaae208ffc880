"""E-books (EPUB 2 and 3): a zip archive of HTML pages, read in the order of the book with the reader of HTML.

Links are never followed, and nothing but the pages that the book lists is read.
"""

from __future__ import annotations

import codecs
import posixpath
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from urllib.parse import unquote

from arbitrag.retrieve.documents.archive import parse_xml, read_members
from arbitrag.retrieve.documents.readers import Document, NotReadable, page_text, part_passages, short_title
from arbitrag.types import Passage

_CONTAINER = "META-INF/container.xml"
_READ = (".xml", ".opf", ".xhtml", ".html", ".htm")
_PAGES = ("application/xhtml+xml", "text/html")


def read_epub(path: Path, source: str, tokens: int) -> Document:
    """The text of a book; a passage's title is the book's, and the chapter's where its page has one.

    Raises NotReadable for what is no EPUB, is encrypted, broken or too large.
    """
    members = read_members(path, "epub", lambda name: name.lower().endswith(_READ))
    if "META-INF/encryption.xml" in members and b"EncryptedKey" in members["META-INF/encryption.xml"]:
        raise NotReadable("encrypted")  # fonts alone may be hidden without a key
    title, pages = _book(members)
    title = short_title(title) or PurePosixPath(source).stem
    notes: list[str] = []
    return Document(_passages(source, title, [(page, members[page]) for page in pages], tokens, notes), notes)


def _passages(
    source: str, book: str, pages: list[tuple[str, bytes]], tokens: int, notes: list[str]
) -> Iterator[Passage]:
    offset, empty = 0, True
    for name, content in pages:
        try:
            # A book has no menus; what is an aside there is a footnote.
            chapter, text = page_text(content.decode(_encoding(content), "replace"), boilerplate=True)
        except NotReadable as error:
            notes.append(f"{name} passed over: {error}")
            continue
        title = f"{book}, {chapter}" if chapter and chapter != book else book
        for passage in part_passages(source, title, text, offset, tokens):
            empty = False
            yield passage
        offset += len(text) + 1
    if empty:
        raise NotReadable("holds no text")


def _book(members: Mapping[str, bytes]) -> tuple[str, list[str]]:
    """The title of a book and its pages, each once, in the order in which they are read."""
    roots: list[str] = []
    if _CONTAINER not in members:
        raise NotReadable("not a readable epub file (no container.xml)")
    parse_xml(
        members[_CONTAINER],
        lambda name, attributes: roots.append(attributes.get("full-path", "")) if _is(name, "rootfile") else None,
    )
    if not roots or roots[0] not in members:
        raise NotReadable("not a readable epub file (it names no package that is there)")
    return _package(members, roots[0])


def _package(members: Mapping[str, bytes], root: str) -> tuple[str, list[str]]:
    pages: dict[str, str] = {}  # the name of each page by its identity
    order: list[str] = []
    title: list[str] = []
    inside = ""

    def begins(name: str, attributes: dict[str, str]) -> None:
        nonlocal inside
        inside = name
        if (
            _is(name, "item")
            and attributes.get("media-type") in _PAGES
            and "nav" not in attributes.get("properties", "")
        ):
            path = posixpath.join(posixpath.dirname(root), unquote(attributes.get("href", "").partition("#")[0]))
            pages[attributes.get("id", "")] = posixpath.normpath(path)
        elif _is(name, "itemref"):
            order.append(attributes.get("idref", ""))

    parse_xml(members[root], begins, lambda text: title.append(text) if _is(inside, "title") else None)
    named = (pages.get(identity, "") for identity in order)
    return "".join(title), list(dict.fromkeys(page for page in named if page in members))


def _encoding(page: bytes) -> str:
    """UTF-16 by its byte order mark, else UTF-8: an EPUB allows no others."""
    return "utf-16" if page.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"


def _is(name: str, local: str) -> bool:
    return name.rpartition(":")[2] == local
