"""Read a UTF-8 file line by line, with line numbers; an invalid line is reported, not raised.

So one bad line does not hide the others from a checker; who needs every line raises for the first fault.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, Literal, Protocol

from arbitrag.errors import DataError

STANDARD_INPUT = "-"
LONGEST_LINE = 64 << 20  # bytes; a question with all its passages takes a thousandth of that
_MARK = b"\xef\xbb\xbf"  # the byte order mark that some editors put first


class Readable(Protocol):
    """What lines are read from: a ``Path``, or ``Piped``. ``str`` of it is its name in errors."""

    def open(self, mode: Literal["rb"], /) -> BinaryIO: ...


@dataclass(frozen=True)
class Piped:
    """Bytes that came through standard input, to be read as a file is."""

    content: bytes

    def open(self, mode: Literal["rb"], /) -> BinaryIO:
        return BytesIO(self.content)

    def __str__(self) -> str:
        return "standard input"


def readable(path: str | Path) -> Readable:
    """The file at a path, or what comes through standard input for ``-``."""
    return Piped(sys.stdin.buffer.read()) if str(path) == STANDARD_INPUT else Path(path)


@dataclass(frozen=True, slots=True)
class TextLine:
    """A line without its end, counted from 1. ``end`` is the number of bytes of the file up to the end of the line.

    ``fault`` says why it is no text; then ``text`` is what could be made of it, nothing of a line that is too long.
    ``ended`` is false for a last line without an end, which may have been cut off.
    """

    number: int
    text: str
    fault: str
    end: int
    ended: bool = True


def lines(source: Readable) -> Iterator[TextLine]:
    """The lines of a file, empty ones too, without a byte order mark. Raises DataError when it cannot be read."""
    try:
        with source.open("rb") as file:
            yield from lines_of(file, LONGEST_LINE)
    except OSError as error:
        raise DataError(f"{source} cannot be read: {error.strerror or error}") from None


def lines_of(file: BinaryIO, longest: int) -> Iterator[TextLine]:
    """The lines of an open file, as ``lines`` gives them; of one of over ``longest`` bytes no text. Raises OSError."""
    number = end = 0
    while line := file.readline(longest + 1):
        number, end = number + 1, end + len(line)
        if len(line) <= longest:
            yield _decoded(number, line, end)
            continue
        while not line.endswith(b"\n") and (line := file.readline(longest)):
            end += len(line)
        yield TextLine(number, "", f"longer than {longest >> 20} MB; a line holds one row", end)


def _decoded(number: int, line: bytes, end: int) -> TextLine:
    bare = line.removesuffix(b"\n").removesuffix(b"\r")
    bare = bare.removeprefix(_MARK) if number == 1 else bare
    try:
        text, fault = bare.decode("utf-8"), ""
    except UnicodeDecodeError as error:
        text, fault = bare.decode("utf-8", "replace"), f"not UTF-8 at byte {error.start + 1}"
    return TextLine(number, text, fault, end, line.endswith(b"\n"))
