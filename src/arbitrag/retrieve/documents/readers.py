"""Turn one file into a title and passages: plain text, Markdown, HTML, PDF and JSON lines.

A reader streams; what it cannot use it names. ``NotReadable`` means the whole file is of no use, a note means that
something in it was passed over.
"""

from __future__ import annotations

import codecs
import hashlib
import io
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Any, BinaryIO

from arbitrag.errors import DataError
from arbitrag.retrieve.documents.chunking import Piece, cut
from arbitrag.storage.lines import TextLine, lines_of
from arbitrag.types import Passage

_CHUNK = 1 << 18  # bytes or characters read at a time
_LONGEST_ROW = 1 << 25  # bytes of one line of JSON
LARGEST_PAGE = 1 << 26  # bytes of one HTML file, which is parsed as a whole
_LONGEST_EXTRAS = 1 << 16  # characters of a row beside its text, which each of its passages repeats
_NAMED_ROWS = 20  # bad rows of one file that are named one by one
_BAD_BYTES = 0.01  # the share of invalid bytes from which a file is not text
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_CHARSET = re.compile(rb"<meta[^>]{0,200}?charset\s*+=[\s\"']*+([\w.:-]{1,40})", re.IGNORECASE)
_WEB_ENCODINGS = ("utf-8", "iso8859", "cp", "koi8", "gb", "big5", "euc", "shift_jis", "iso2022", "mac", "tis")
# Marks at a heading's end are taken off afterwards: in the pattern, a long run of spaces would be tried in every way.
_HEADING = re.compile(r"^ {0,3}#{1,6}[ \t]+(\S.*)$|^(\S[^\n]*)\n(?:={3,}|-{3,})[ \t]*$", re.MULTILINE)
_FENCE = re.compile(r"^(```|~~~).*?(?:^\1|\Z)|\A---\n.*?^---$", re.MULTILINE | re.DOTALL)
LONGEST_TITLE = 300  # characters: every passage of a document repeats it
_LONGEST_FRONT = 4096  # characters in which front matter ends


class NotReadable(DataError):
    """A file that is of no use, in a few words that follow its name. ``lasting`` is false when its bytes are not to
    blame, so that the next run looks at it again."""

    def __init__(self, reason: str, *, lasting: bool = True) -> None:
        super().__init__(reason)
        self.lasting = lasting


@dataclass(frozen=True)
class Document:
    """A file that is being read. ``notes`` fills up and ``position`` (bytes read) grows as ``passages`` is consumed."""

    passages: Iterator[Passage]
    notes: list[str] = field(default_factory=list)
    position: Callable[[], int] = lambda: 0


Reader = Callable[[Path, str, int], Document]


def chunk_id(source: str, offset: int, text: str) -> str:
    """16 hex digits that stay the same as long as the passage does."""
    return hashlib.blake2b(f"{source}\0{offset}\0{text}".encode("utf-8", "replace"), digest_size=8).hexdigest()


def read_text(path: Path, source: str, tokens: int) -> Document:
    """A plain text file; its title is its name."""
    return _read_plain(path, source, tokens, lambda _: PurePosixPath(source).stem)


def read_markdown(path: Path, source: str, tokens: int) -> Document:
    """A Markdown file, its marks kept, so that lines are those of the file; its title is its first heading."""
    return _read_plain(path, source, tokens, lambda head: heading(head) or PurePosixPath(source).stem)


def read_html(path: Path, source: str, tokens: int) -> Document:
    """The visible text of an HTML file without navigation and the like; lines and offsets are in that text."""
    if path.stat().st_size > LARGEST_PAGE:
        raise NotReadable(f"an HTML file of over {LARGEST_PAGE >> 20} MB")
    notes: list[str] = []
    encoding = sound_encoding(path, notes, declared=_declared_charset)
    title, text = page_text(path.read_text(encoding, errors="replace"))
    if not text.strip():
        raise NotReadable("holds no text")
    return Document(passages_of(source, title or PurePosixPath(source).stem, cut(text, tokens)), notes)


def page_text(page: str, *, boilerplate: bool = False) -> tuple[str, str]:
    """The title and the visible text of HTML, see ``visible_text``. Raises NotReadable for what no parser can bear."""
    from arbitrag.retrieve.documents.html import is_too_deep, visible_text

    if is_too_deep(page):
        raise NotReadable("an HTML file with too many elements left open inside each other")
    return visible_text(page, boilerplate=boilerplate)


def read_jsonl(path: Path, source: str, tokens: int) -> Document:
    """One passage or more per line ``{"text": …}``; ``title``, ``id``, ``source`` and ``date`` are taken over, every
    other key becomes metadata, as does what an object called ``metadata`` holds.

    ``line`` is the line in the file, ``offset`` counts in the row's text. A row that names its own source has no line.
    """
    notes: list[str] = []
    sound_encoding(path, notes)
    file = path.open("rb")
    return Document(_jsonl_passages(file, source, tokens, notes), notes, _position(file))


def _read_plain(path: Path, source: str, tokens: int, title: Callable[[str], str]) -> Document:
    notes: list[str] = []
    encoding = sound_encoding(path, notes)
    raw = path.open("rb")
    file = io.TextIOWrapper(raw, encoding=encoding, errors="replace")
    head = file.read(_CHUNK)

    def chunks() -> Iterator[str]:
        with file:
            chunk = head
            while chunk:
                yield chunk
                chunk = file.read(_CHUNK)

    return Document(passages_of(source, title(head), cut(chunks(), tokens)), notes, _position(raw))


def _position(file: IO[bytes]) -> Callable[[], int]:
    return lambda: sys.maxsize if file.closed else file.tell()


def part_passages(source: str, title: str, text: str, offset: int, tokens: int, **metadata: str) -> Iterator[Passage]:
    """The passages of a page or another part of a file, which begins at ``offset``; they have no lines."""
    title = short_title(title)
    for piece in cut(text, tokens):
        at = offset + piece.offset
        place = chunk_id(source, at, piece.text)
        yield Passage(piece.text, id=place, title=title, source=source, offset=at, metadata=metadata)


def short_title(title: str) -> str:
    return " ".join(title[: 4 * LONGEST_TITLE].split())[:LONGEST_TITLE].rstrip()


def passages_of(source: str, title: str, pieces: Iterable[Piece]) -> Iterator[Passage]:
    title = short_title(title)
    for piece in pieces:
        yield Passage(
            piece.text,
            id=chunk_id(source, piece.offset, piece.text),
            title=title,
            source=source,
            line=piece.line,
            offset=piece.offset,
        )


def sound_encoding(path: Path, notes: list[str], declared: Callable[[bytes], str | None] | None = None) -> str:
    """The encoding of a text file: by its byte order mark, what it declares, or UTF-8.

    Raises NotReadable for an empty file and for one that is not text.
    """
    with path.open("rb") as file:
        head = file.read(2048)
        if not head:
            raise NotReadable("empty")
        marked = next((encoding for mark, encoding in _BYTE_ORDER_MARKS if head.startswith(mark)), None)
        encoding = marked or (declared and declared(head)) or "utf-8"
        file.seek(0)
        bad = size = 0
        decoder = codecs.getincrementaldecoder(encoding)("replace")
        while block := file.read(_CHUNK):
            if not marked and b"\0" in block:
                raise NotReadable("binary, not text")
            genuine = 0 if marked else block.count("\ufffd".encode())
            bad += decoder.decode(block).count("\ufffd") - genuine
            size += len(block)
        bad = max(0, bad + decoder.decode(b"", final=True).count("\ufffd"))
    if bad >= _BAD_BYTES * size:
        raise NotReadable(f"not {encoding.upper()} text ({bad / size:.1%} of its bytes are invalid)")
    if bad:
        notes.append(f"{bad} invalid {encoding.upper()} byte{'s' * (bad > 1)} replaced")
    return encoding


def _declared_charset(head: bytes) -> str | None:
    """The charset of a meta element, where it is one of those that the web uses."""
    found = _CHARSET.search(head)
    try:
        name = codecs.lookup(found[1].decode("ascii")).name if found else ""
    except LookupError:
        return None
    if name in ("iso8859-1", "ascii"):
        return "cp1252"  # what browsers read when a page says so
    return name if name.startswith(_WEB_ENCODINGS) else None


def heading(head: str) -> str:
    """The title of a Markdown text: in its front matter, or its first heading outside of code."""
    if title := _front_title(head):
        return title
    found = _HEADING.search(_FENCE.sub("", head))
    if not found:
        return ""
    return found[2].strip() if found[2] else found[1].rstrip().rstrip("#").rstrip()


def _front_title(head: str) -> str:
    """The value of ``title`` between two lines of three dashes at the very start; empty without them."""
    opening, *lines = head[:_LONGEST_FRONT].split("\n")
    if opening != "---" or "---" not in lines:
        return ""
    values = (line.removeprefix("title:") for line in lines[: lines.index("---")] if line.startswith("title:"))
    return next((title for value in values if (title := _unquoted(value.strip()))), "")


def _unquoted(value: str) -> str:
    return value[value[:1] in ("'", '"') : len(value) - (value[-1:] in ("'", '"'))].strip()


def _jsonl_passages(file: BinaryIO, source: str, tokens: int, notes: list[str]) -> Iterator[Passage]:
    used = bad = 0
    first = ""
    with file:
        for line in lines_of(file, _LONGEST_ROW):
            if not line.text.strip() and not line.fault:
                continue
            try:
                yield from _row_passages(_row(line), source, line.number, tokens)
                used += 1
            except NotReadable as error:
                bad += 1
                first = first or f"line {line.number}: {error}"
                if bad <= _NAMED_ROWS:
                    notes.append(f"line {line.number} passed over: {error}")
    if not used:
        raise NotReadable(f"no usable row; {first}" if first else "holds no row")
    if bad > _NAMED_ROWS:
        notes.append(f"{bad - _NAMED_ROWS:,} more lines passed over")


def _row(line: TextLine) -> Mapping[str, Any]:
    """The object in a line, in which bytes that are no UTF-8 are replaced and NaN is a number."""
    if not line.text:
        raise NotReadable(line.fault)
    try:
        row = json.loads(line.text)
    except (ValueError, RecursionError):
        raise NotReadable("not JSON") from None
    if not isinstance(row, dict):
        raise NotReadable(f'{_kind(row)}; expected an object {{"text": …}}')
    if "text" not in row:
        raise NotReadable(f"has no 'text'; its keys are {', '.join(map(repr, row)) or 'none'}"[:200])
    for key in ("text", "title", "source", "date"):
        if not isinstance(row.get(key), str | None):
            raise NotReadable(f"{key!r} is {_kind(row[key])}; expected a string")
    if not (row["text"] or "").strip():
        raise NotReadable("'text' is empty")
    return row


def _row_passages(row: Mapping[str, Any], source: str, number: int, tokens: int) -> Iterator[Passage]:
    own = row.get("source") or ""
    title = row.get("title") or PurePosixPath(own or source).stem
    metadata = _metadata(row)
    extras = sum(map(len, [title, own, *metadata, *metadata.values()]))
    if extras > _LONGEST_EXTRAS:
        raise NotReadable(f"its title and metadata have {extras:,} characters; at most {_LONGEST_EXTRAS:,} are kept")
    given = "" if row.get("id") is None else _plain(row["id"])
    for count, piece in enumerate(cut(row["text"], tokens)):
        part = given and (f"{given}#{count + 1}" if count else given)
        yield Passage(
            piece.text,
            id=part or chunk_id(f"{source}:{number}", piece.offset, piece.text),
            title=title,
            source=own or source,
            line=None if own else number,
            offset=piece.offset,
            date=row.get("date") or "",
            metadata=metadata,
        )


_TAKEN = frozenset(("text", "title", "id", "source", "date"))


def _metadata(row: Mapping[str, Any]) -> dict[str, str]:
    pairs = {key: value for key, value in row.items() if key not in _TAKEN}
    if isinstance(pairs.get("metadata"), dict):
        pairs |= pairs.pop("metadata")
    return {key: _plain(value) for key, value in pairs.items() if value is not None}


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "a truth value", type(None): "null"}
    return names.get(type(value), "a number")
