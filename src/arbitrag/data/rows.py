"""The rows of a file as they stand there, and what is wrong with them; nothing is read ahead or kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from typing import Any, BinaryIO, Literal, Protocol

from arbitrag.errors import DataError
from arbitrag.serialization import describe, parse_json
from arbitrag.text import one_line

LONGEST_LINE = 64 << 20  # bytes; a question with all its passages takes a thousandth of that
_MARK = b"\xef\xbb\xbf"  # the byte order mark that some editors put first


class Readable(Protocol):
    """What rows are read from: a ``Path``, or ``Piped``. ``str`` of it is its name in errors."""

    def open(self, mode: Literal["rb"], /) -> BinaryIO: ...


@dataclass(frozen=True)
class Piped:
    """Bytes that came through standard input, to be read as a file is."""

    content: bytes

    def open(self, mode: Literal["rb"], /) -> BinaryIO:
        return BytesIO(self.content)

    def __str__(self) -> str:
        return "standard input"


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong in a line, counted from 1; a warning keeps no row from being used."""

    line: int
    text: str
    warning: bool = False


@dataclass(frozen=True, slots=True)
class Raw:
    """One row: its fields by name, or None where the line is not one, which ``problems`` explain.

    ``end`` is the number of bytes of the file up to the end of the row.
    """

    line: int
    plain: dict[str, Any] | None
    problems: tuple[Problem, ...] = ()
    end: int = 0


@dataclass(frozen=True, slots=True)
class Line:
    """A line without its end. ``fault`` says why it is no text; then ``text`` is what could be made of it."""

    number: int
    text: str
    fault: str
    end: int


def json_rows(path: Readable) -> Iterator[Raw]:
    """A JSON object per line; empty lines are skipped. Raises DataError for a file that cannot be read."""
    for line in lines(path):
        if line.fault or line.text.strip():
            yield _raw(line)


def plain_rows(path: Readable) -> Iterator[Raw]:
    """A question per line; empty lines are skipped. Raises DataError for a file that cannot be read."""
    for line in lines(path):
        text = line.text.strip()
        why = line.fault
        if text.startswith("{"):
            why = why or "JSON, but the file began with plain questions; use one of the two"
        if why:
            yield Raw(line.number, None, (Problem(line.number, why),), line.end)
        elif text:
            yield Raw(line.number, {"question": text}, (), line.end)


def _raw(line: Line) -> Raw:
    def bad(why: str) -> Raw:
        return Raw(line.number, None, (Problem(line.number, why),), line.end)

    if line.fault:
        return bad(line.fault)
    try:
        plain = parse_json(line.text)
    except ValueError as error:
        return bad(f"not valid JSON ({one_line(str(error))})")
    if not isinstance(plain, dict):
        return bad(f"{describe(plain)}; expected a JSON object")
    return Raw(line.number, plain, (), line.end)


def lines(path: Readable) -> Iterator[Line]:
    """The lines of a UTF-8 file, empty ones too, without a byte order mark and their ends.

    Raises DataError for a file that cannot be read.
    """
    try:
        with path.open("rb") as file:
            number = end = 0
            while line := file.readline(LONGEST_LINE + 1):
                number, end = number + 1, end + len(line)
                if len(line) > LONGEST_LINE:
                    while (rest := file.readline(LONGEST_LINE)) and not rest.endswith(b"\n"):
                        end += len(rest)
                    end += len(rest)
                    yield Line(number, "", f"longer than {LONGEST_LINE >> 20} MB; a line is one question", end)
                else:
                    yield _decoded(number, line, end)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from None


def _decoded(number: int, line: bytes, end: int) -> Line:
    bare = line.removesuffix(b"\n").removesuffix(b"\r")
    bare = bare.removeprefix(_MARK) if number == 1 else bare
    try:
        return Line(number, bare.decode("utf-8"), "", end)
    except UnicodeDecodeError as error:
        return Line(number, bare.decode("utf-8", "replace"), f"not UTF-8 at byte {error.start + 1}", end)
