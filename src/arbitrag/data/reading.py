"""A file, row by row: each a question with its gold answers, or what is wrong with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from arbitrag.data import own
from arbitrag.data.fields import Fields
from arbitrag.data.rows import Problem, json_rows
from arbitrag.evaluate.questions import Item
from arbitrag.text import one_line


@dataclass(frozen=True, slots=True)
class Read:
    """A row that was read: ``item`` is None where a problem is more than a warning. ``end`` counts bytes."""

    line: int
    item: Item | None
    problems: tuple[Problem, ...]
    end: int


def read(path: Path) -> Iterator[Read]:
    """Every row of a file. Raises DataError for a file that cannot be read at all."""
    lines_of: dict[str, int] = {}
    for raw in json_rows(path):
        if raw.plain is None:
            yield Read(raw.line, None, raw.problems, raw.end)
            continue
        row = Fields(raw.line, raw.plain)
        item = own.item(row)
        before = lines_of.setdefault(item.id, raw.line)
        if before != raw.line:
            row.fault(f"the id '{one_line(item.id)}' is that of line {before} already")
        yield Read(raw.line, None if row.bad else item, (*raw.problems, *row.problems), raw.end)
