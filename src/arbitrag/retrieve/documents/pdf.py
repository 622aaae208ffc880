"""PDF files, page by page, by pypdf."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from arbitrag.errors import MissingExtra
from arbitrag.retrieve.documents.readers import Document, NotReadable, part_passages
from arbitrag.types import Passage

# What the pages of a file may unpack to, in bytes: pages can share one packed stream, and each is read for itself.
_CONTENT = 4_000_000
_CONTENT_PER_BYTE = 20  # of the file; text packs to a fourth or a tenth


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
    texts = _texts(reader, pages, _CONTENT + _CONTENT_PER_BYTE * path.stat().st_size, notes)
    return Document(_pdf_passages(source, title or PurePosixPath(source).stem, texts, tokens), notes)


def _texts(reader: Any, pages: int, allowed: int, notes: list[str]) -> Iterator[str]:
    """The text of each page, up to the page whose content is more than what is left of the ``allowed`` bytes."""
    for number in range(pages):
        allowed -= _content_bytes(reader, number)
        if allowed < 0:
            rest = f"page {number + 1}" if number + 1 == pages else f"pages {number + 1} to {pages}"
            notes.append(f"{rest} passed over (unpacked, the pages are too large for a file of this size)")
            return
        yield _page_text(reader, number, notes)


def _content_bytes(reader: Any, number: int) -> int:
    """The unpacked size of a page's content in bytes; 0 where it cannot be read, as then its text cannot either."""
    try:
        contents = reader.pages[number].get_contents()
        return len(contents.get_data()) if contents is not None else 0
    except Exception:  # noqa: BLE001  the page is named when its text is asked for
        return 0


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
