"""Passages from files: a JSON object per line with the fields of ``Passage``, of which only "text" must be there.

Every error names the file and the line. Questions are read by ``data``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from arbitrag.errors import DataError
from arbitrag.serialization import describe, from_plain, parse_json
from arbitrag.text import one_line
from arbitrag.types import Passage

T = TypeVar("T")

STANDARD_INPUT = "-"


def read_passages(path: str | Path) -> list[Passage]:
    """The passages in a file; one without an id is called by its line number.

    An empty file gives no passages. Raises DataError for a line that is not a passage, or an id that was there before.
    """
    name = _named(path)
    numbered = [(number, _row(name, number, Passage, _object(name, number, line))) for number, line in _lines(path)]
    for number, passage in numbered:
        if not passage.text.strip():
            raise DataError(f"{name} line {number}: 'text' is empty")
    passages = [(number, replace(passage, id=passage.id or str(number))) for number, passage in numbered]
    _refuse_twins(name, ((number, passage.id) for number, passage in passages))
    return [passage for _, passage in passages]


def _object(name: str, number: int, line: str) -> dict[str, Any]:
    try:
        plain = parse_json(line)
    except ValueError as error:
        raise DataError(f"{name} line {number}: not valid JSON ({one_line(str(error))})") from None
    if not isinstance(plain, dict):
        raise DataError(f"{name} line {number}: {describe(plain)}; expected a JSON object")
    return plain


def _row(name: str, number: int, kind: type[T], plain: dict[str, Any]) -> T:
    try:
        return from_plain(kind, plain)
    except ValueError as error:
        raise DataError(f"{name} line {number}: {one_line(str(error), 200)}") from None


def _refuse_twins(name: str, ids: Iterable[tuple[int, str]]) -> None:
    seen: dict[str, int] = {}
    for number, each in ids:
        if each in seen:
            raise DataError(f"{name} line {number}: the id '{one_line(each)}' is that of line {seen[each]} already")
        seen[each] = number


def _lines(path: str | Path) -> Iterator[tuple[int, str]]:
    """The lines that are not empty, numbered from 1, without a byte order mark and their ends."""
    name = _named(path)
    try:
        raw = sys.stdin.buffer.read() if str(path) == STANDARD_INPUT else Path(path).read_bytes()
    except OSError as error:
        raise DataError(f"{name} cannot be read: {error.strerror}") from None
    for number, line in enumerate(raw.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            yield number, line.decode("utf-8").rstrip("\r")
        except UnicodeDecodeError as error:
            raise DataError(f"{name} line {number}: not UTF-8 at byte {error.start + 1}") from None


def _named(path: str | Path) -> str:
    return "standard input" if str(path) == STANDARD_INPUT else str(path)
