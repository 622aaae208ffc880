"""PDF files, page by page, by pypdf."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from arbitrag.errors import MissingExtra
from arbitrag.retrieve.readers import Document, NotReadable, part_passages
from arbitrag.types import Passage


def read_pdf(path: Path, source: str, tokens: int) -> Document:
    """The text of a PDF, page by page, the page number in the metadata; offsets are in the whole text.

    Raises NotReadable without the extra ``pdf``, and for files that are encrypted or broken.
    """
    try:
        import pypdf
    except ImportError:
        raise NotReadable(str(MissingExtra("pdf", "reading PDF")), lasting=False) from None
    try:
        reader = pypdf.PdfReader(path)
        if reader.is_encrypted and not reader.decrypt(""):
            raise NotReadable("an encrypted PDF")
        title = str((reader.metadata and reader.metadata.title) or "").strip()
        pages = len(reader.pages)
    except NotReadable:
        raise
    except Exception as error:  # a broken PDF can raise nearly anything; the failure is carried on
        raise NotReadable(f"not a PDF that can be read ({type(error).__name__})") from error
    notes: list[str] = []
    texts = (_page_text(reader, number, notes) for number in range(pages))
    return Document(_pdf_passages(source, title or PurePosixPath(source).stem, texts, tokens), notes)


def _page_text(reader: Any, number: int, notes: list[str]) -> str:
    try:
        return str(reader.pages[number].extract_text())
    except Exception as error:  # noqa: BLE001  one broken page costs that page, and is named
        notes.append(f"page {number + 1} passed over ({type(error).__name__})")
        return ""


def _pdf_passages(source: str, title: str, pages: Iterable[str], tokens: int) -> Iterator[Passage]:
    offset, empty = 0, True
    for number, text in enumerate(pages, 1):
        for passage in part_passages(source, title, text, offset, tokens, page=str(number)):
            empty = False
            yield passage
        offset += len(text) + 1  # pages are joined by a line end
    if empty:
        raise NotReadable("holds no text (scanned pages?)")
