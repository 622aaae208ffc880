"""JSON lines: one JSON object on each line of a UTF-8 file; also passages, with the fields of ``Passage``.

Every error names the file and the line. Questions are read by ``data``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from arbitrag.errors import DataError
from arbitrag.serialization import describe, from_plain, parse_json
from arbitrag.storage.lines import Readable, lines, readable
from arbitrag.text import one_line
from arbitrag.types import Passage


def json_object(line: str) -> dict[str, Any]:
    """The JSON object in a line. Raises ValueError with the reason."""
    try:
        plain = parse_json(line)
    except ValueError as error:
        raise ValueError(f"not valid JSON ({one_line(str(error))})") from None
    if not isinstance(plain, dict):
        raise ValueError(f"{describe(plain)}; expected a JSON object")
    return plain


def json_objects(source: Readable, *, listed: bool = False) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a file with the numbers of their lines; empty lines are skipped.

    With ``listed`` the file may be one JSON list with an element on each line, whose brackets and commas are skipped.
    Raises DataError for a file that cannot be read, and for the first line that is not an object.
    """
    for line in lines(source):
        text = line.text.strip().removesuffix("," if listed else "")
        if not (text or line.fault) or (listed and text in ("[", "]")):
            continue
        try:
            if line.fault:
                raise ValueError(line.fault)
            yield line.number, json_object(text)
        except ValueError as error:
            raise DataError(f"{source} line {line.number}: {error}") from None


def read_passages(path: str | Path) -> list[Passage]:
    """The passages in a file, of which only "text" must be there; one without an id is called by its line number.

    An empty file gives no passages. Raises DataError for a line that is not a passage, or an id that was there before.
    """
    source = readable(path)
    found: dict[str, tuple[int, Passage]] = {}
    for number, plain in json_objects(source):
        try:
            passage = from_plain(Passage, plain)
            passage = replace(passage, id=passage.id or str(number))
            if not passage.text.strip():
                raise ValueError("'text' is empty")
            if passage.id in found:
                before, _ = found[passage.id]
                raise ValueError(f"the id '{one_line(passage.id)}' is that of line {before} already")
        except ValueError as error:
            raise DataError(f"{source} line {number}: {one_line(str(error), 200)}") from None
        found[passage.id] = number, passage
    return [passage for _, passage in found.values()]
