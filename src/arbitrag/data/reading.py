"""The set at an address, row by row: each a question with its gold answers, or what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from arbitrag.data.fields import Fields
from arbitrag.data.formats import Format, format_of
from arbitrag.data.options import Options, options_from
from arbitrag.data.rows import Problem
from arbitrag.errors import UsageError
from arbitrag.evaluate.questions import Item
from arbitrag.text import one_line

LAB = "lab:questions"


@dataclass(frozen=True, slots=True)
class Read:
    """A row that was read: ``item`` is None where a problem is more than a warning. ``end`` counts bytes."""

    line: int
    item: Item | None
    problems: tuple[Problem, ...]
    end: int


@dataclass(frozen=True)
class QuestionSource:
    """A set that can be read, as often as one likes: ``rows`` begins anew.

    ``name`` shows the options that matter, ``format`` is in words, ``size`` in bytes, 0 where no file is read.
    """

    address: str
    name: str
    format: str
    size: int
    rows: Callable[[], Iterator[Read]]


def open_source(address: str | Path) -> QuestionSource:
    """The set at an address: ``FILE``, ``FILE?OPTION=VALUE&...`` or ``lab:questions?...``.

    Raises UsageError for an unknown option or value, DataError for a file that is missing or in another format.
    """
    text = str(address)
    if text.startswith("lab:"):
        return _lab_source(text)
    place, query = place_and_query(text)
    path = Path(place)
    reader = format_of(path)
    options = options_from(reader.options, query, place)
    rows = partial(_rows, path, reader, options)
    return QuestionSource(text, _name(path.stem, options), reader.name, path.stat().st_size, rows)


def _lab_source(address: str) -> QuestionSource:
    from arbitrag.data.lab import Lab, items

    def rows() -> Iterator[Read]:
        for number, item in enumerate(items(options), 1):
            yield Read(number, item, (), 0)

    place, query = _split(address)
    if place != LAB:
        raise UsageError(f"the lab has no set '{one_line(place)}'; one is {LAB}?count=500&kinds=known,late")
    options = options_from(Lab, query, place)
    return QuestionSource(address, _name(place, options), "questions of the lab", 0, rows)


def place_and_query(address: str) -> tuple[str, str]:
    """The file of an address, and its options; a file that is there may have a question mark in its name."""
    return (address, "") if Path(address).exists() else _split(address)


def _split(address: str) -> tuple[str, str]:
    """What stands before the last question mark, and behind it."""
    place, mark, query = address.rpartition("?")
    return (place, query) if mark else (query, "")


def _name(place: str, options: Options) -> str:
    shown = options.shown()
    return f"{place}?{shown}" if shown else place


def _rows(path: Path, reader: Format, options: Options) -> Iterator[Read]:
    lines_of: dict[str, int] = {}
    for raw in reader.rows(path):
        if raw.plain is None:
            yield Read(raw.line, None, raw.problems, raw.end)
            continue
        row = Fields(raw.line, raw.plain)
        item = reader.item(row, options)
        before = lines_of.setdefault(item.id, raw.line)
        if before != raw.line:
            row.fault(f"the id '{one_line(item.id)}' is that of line {before} already")
        yield Read(raw.line, None if row.bad else item, (*raw.problems, *row.problems), raw.end)
