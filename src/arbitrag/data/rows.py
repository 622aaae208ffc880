"""The rows of a file as they stand there, and what is wrong with them; nothing is read ahead or kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from arbitrag.storage.jsonl import json_object
from arbitrag.storage.lines import Readable, TextLine, lines


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


def _raw(line: TextLine) -> Raw:
    try:
        if line.fault:
            raise ValueError(line.fault)
        return Raw(line.number, json_object(line.text), (), line.end)
    except ValueError as error:
        return Raw(line.number, None, (Problem(line.number, str(error)),), line.end)
