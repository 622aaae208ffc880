"""Jupyter notebooks: the text and the code of their cells, without what the code printed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from arbitrag.retrieve.documents.chunking import cut
from arbitrag.retrieve.documents.readers import (
    LARGEST_PAGE,
    Document,
    NotReadable,
    heading,
    passages_of,
    sound_encoding,
)


def read_ipynb(path: Path, source: str, tokens: int) -> Document:
    """The cells of a notebook in their order; its title is its first heading. Lines are those of the cells together.

    Raises NotReadable for what is no notebook, or over the size of a page.
    """
    if path.stat().st_size > LARGEST_PAGE:
        raise NotReadable(f"a notebook of over {LARGEST_PAGE >> 20} MB")
    notes: list[str] = []
    encoding = sound_encoding(path, notes)
    try:
        cells = _cells(json.loads(path.read_text(encoding, errors="replace")))
    except (ValueError, RecursionError):
        raise NotReadable("not JSON") from None
    texts = [text for kind in cells if (text := _source(kind))]
    if not texts:
        raise NotReadable("holds no text")
    first = next(
        (title for cell in cells if cell.get("cell_type") == "markdown" and (title := heading(_source(cell)))), ""
    )
    return Document(passages_of(source, first or PurePosixPath(source).stem, cut(_joined(texts), tokens)), notes)


def _cells(notebook: Any) -> list[dict[str, Any]]:
    """The cells of a notebook, also of the format before 2015, which has them in sheets."""
    if not isinstance(notebook, dict) or "nbformat" not in notebook:
        raise NotReadable("JSON, but not a notebook")
    written = notebook.get("worksheets")
    sheets: list[Any] = written if isinstance(written, list) else []
    found = [notebook.get("cells"), *(sheet.get("cells") for sheet in sheets if isinstance(sheet, dict))]
    return [cell for cells in found if isinstance(cells, list) for cell in cells if isinstance(cell, dict)]


def _source(cell: dict[str, Any]) -> str:
    written = cell.get("source", cell.get("input", ""))
    lines = written if isinstance(written, list) else [written]
    return "".join(line for line in lines if isinstance(line, str)).strip("\n")


def _joined(texts: list[str]) -> Iterator[str]:
    for number, text in enumerate(texts):
        yield f"\n\n{text}" if number else text
