"""Word, PowerPoint and Excel documents (docx, pptx, xlsx) by office_oxide, a parser in Rust without dependencies.

It gets an archive of the XML alone, which was decompressed within bounds and is well-formed, so that pictures, macros,
embedded files and bombs never reach it. It opens no file and no connection.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from arbitrag.errors import MissingExtra
from arbitrag.retrieve.documents.archive import pack, read_members
from arbitrag.retrieve.documents.office_limits import checked
from arbitrag.retrieve.documents.readers import Document, NotReadable, part_passages, short_title
from arbitrag.text import one_line
from arbitrag.types import Passage

# Bytes of XML. A parsed slide takes 30 times its XML, a Word document 16 times, a sheet 10 times.
_LARGEST = {"docx": 1 << 25, "pptx": 1 << 24, "xlsx": 1 << 26}
_WITHOUT_TEXT = ("/theme/", "/charts/", "/diagrams/", "/tags/", "customXml/")
_MOST_CELLS_APART = 200_000  # of a workbook that is read as a tree, which takes about a kilobyte for each
_ESCAPED = re.compile(r"\\([!-/:-@\[-`{-~])")

_Kind = Literal["docx", "pptx", "xlsx"]


def read_docx(path: Path, source: str, tokens: int) -> Document:
    """The text of a Word document as Markdown, headings, lists and tables included."""
    return _read(path, source, tokens, "docx")


def read_pptx(path: Path, source: str, tokens: int) -> Document:
    """The text of a presentation, slide by slide with the speaker's notes, the slide's number in the metadata."""
    return _read(path, source, tokens, "pptx")


def read_xlsx(path: Path, source: str, tokens: int) -> Document:
    """The cells of a workbook as they are shown, sheet by sheet, a row on a line, the sheet's name in the metadata."""
    return _read(path, source, tokens, "xlsx")


def _read(path: Path, source: str, tokens: int, kind: _Kind) -> Document:
    """Raises NotReadable without the extra ``office``, and for what is encrypted, broken or too large."""
    try:
        import office_oxide
    except ImportError:
        raise NotReadable(str(MissingExtra("office", f"reading {kind}")), lasting=False) from None
    members = read_members(path, kind, _is_text, _LARGEST[kind])
    title, cells = checked(members, _LARGEST[kind])
    document = _parsed(lambda: office_oxide.Document.from_bytes(pack(members), kind), kind)
    parts, notes = _PARTS[kind](document), []
    if cells > _MOST_CELLS_APART:
        parts, notes = _cells(document), ["a large workbook: its passages do not say which sheet they are of"]
    return Document(_passages(source, short_title(title) or PurePosixPath(source).stem, parts, tokens), notes)


def _is_text(name: str) -> bool:
    return name.endswith((".xml", ".rels")) and not any(folder in name for folder in _WITHOUT_TEXT)


def _parsed(parse: Callable[[], Any], kind: str) -> Any:
    """What the parser makes of a document; NotReadable for whatever it raises."""
    try:
        return parse()
    except Exception as error:
        raise NotReadable(one_line(f"not a readable {kind} file ({error})", 200)) from error
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # how a failed assertion in Rust arrives; it has no class to name
            raise
        raise NotReadable(f"not a readable {kind} file (the parser failed)") from error


def _passages(source: str, title: str, parts: Iterator[tuple[dict[str, str], str]], tokens: int) -> Iterator[Passage]:
    offset, empty = 0, True
    for metadata, text in parts:
        for passage in part_passages(source, title, text, offset, tokens, **metadata):
            empty = False
            yield passage
        offset += len(text) + 1
    if empty:
        raise NotReadable("holds no text")


def _whole(document: Any) -> Iterator[tuple[dict[str, str], str]]:
    yield {}, _ESCAPED.sub(r"\1", _parsed(document.to_markdown, "docx").replace("<br>", " "))


def _slides(document: Any) -> Iterator[tuple[dict[str, str], str]]:
    for number, section in enumerate(_parsed(document.to_ir, "pptx")["sections"], 1):
        blocks = [*_texts(section.get("elements", [])), *_texts(section.get("speaker_notes") or [])]
        yield {"slide": str(number)}, "\n\n".join(block for block in blocks if block.strip())


def _texts(node: Any) -> Iterator[str]:
    """The text of each block under a node of the parser's tree, in its order; a table's rows are lines."""
    if isinstance(node, list):
        for each in node:
            yield from _texts(each)
    elif isinstance(node, dict):
        if node.get("type") == "table":
            yield "\n".join(filter(None, map(_row, node.get("rows", []))))
        elif node.get("type") in ("paragraph", "heading"):
            yield "".join(_inline(node.get("content", [])))
        else:
            for key in ("content", "items", "elements"):
                yield from _texts(node.get(key))


def _row(row: dict[str, Any]) -> str:
    cells = [" ".join(" ".join(_texts(cell)).split()) for cell in row.get("cells", [])]
    while cells and not cells[-1]:
        cells.pop()
    return " | ".join(cells).strip()


def _inline(nodes: list[Any]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node.get("text"), str):
            yield node["text"]
        elif isinstance(node.get("content"), list):
            yield from _inline(node["content"])
        elif "break" in str(node.get("type")):
            yield "\n"


def _sheets(document: Any) -> Iterator[tuple[dict[str, str], str]]:
    for section in _parsed(document.to_ir, "xlsx")["sections"]:
        yield {"sheet": section.get("title") or ""}, "\n\n".join(_texts(section.get("elements", [])))


def _cells(document: Any) -> Iterator[tuple[dict[str, str], str]]:
    """All sheets at once: the tree of a large workbook would take gigabytes."""
    yield {}, _parsed(document.plain_text, "xlsx").replace("\t", " | ")


_PARTS = {"docx": _whole, "pptx": _slides, "xlsx": _sheets}
