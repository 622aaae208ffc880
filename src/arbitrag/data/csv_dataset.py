"""Question sets of one's own, as a table: CSV with a heading, UTF-8. The format is this project's.

The columns are the fields of ``own``; a cell may hold several answers, options, wrong answers or poisoned passages,
separated by ``|``. Passages are separated so, too, or a JSON list as in ``own``. An empty cell is a field that is not
given. Commas, semicolons or tabs separate the cells; a cell that holds one of these, a quote or a line end stands in
double quotes. A made-up example::

    question,answers,wrong_answer,passages
    Which town is home to the Ardenfall Museum?,Ardenfall|New Ardenfall,Brackwater,The museum opened in Ardenfall.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from itertools import chain
from typing import Any

from arbitrag.data.jsonl_dataset import KEYS
from arbitrag.data.rows import Problem, Raw
from arbitrag.errors import DataError, nearest
from arbitrag.serialization import parse_json
from arbitrag.storage.lines import LONGEST_LINE, Readable, TextLine, lines
from arbitrag.text import one_line

SEPARATOR = "|"
_SEVERAL = frozenset({"answers", "options", "planted", "wrong_answer", "poisoned", "passages"})
DELIMITERS = ",;\t"


def columns(heading: str) -> tuple[str, tuple[str, ...]] | None:
    """What separates the cells of a heading, and their names; None for a line that has no column 'question'."""
    for delimiter in DELIMITERS:
        try:
            cells = next(csv.reader([heading], delimiter=delimiter), [])
        except csv.Error:  # a line end in the middle of it
            continue
        names = tuple(name.strip() for name in cells)
        if "question" in names:
            return delimiter, names
    return None


def csv_rows(path: Readable, *, only_known: bool = True) -> Iterator[Raw]:
    """A row for each that is not blank, called by the line on which it begins.

    Raises DataError for a file that cannot be read, or a heading that is none, which one with a column that is not
    among ``KEYS`` is, unless others than the ``only_known`` may be there.
    """
    source = _Lines(path)
    heading = next(source, "")
    delimiter, names = columns(heading) or (",", ())
    _check_heading(path, names, only_known)
    bound = csv.field_size_limit(LONGEST_LINE)  # of the module; passages are longer than its default
    try:
        yield from _rows(source, delimiter, names)
    finally:
        csv.field_size_limit(bound)


def _check_heading(path: Readable, names: tuple[str, ...], only_known: bool) -> None:
    for number, name in enumerate(names):
        if name in names[:number]:
            raise DataError(f"{path} line 1: the column '{one_line(name)}' is there twice")
        if only_known and name not in KEYS:
            close = nearest(name, KEYS)
            guess = f"did you mean '{close}'?" if close else f"known: {', '.join(KEYS)}"
            raise DataError(f"{path} line 1: the column '{one_line(name)}' is not known; {guess}")


def _rows(source: _Lines, delimiter: str, names: tuple[str, ...]) -> Iterator[Raw]:
    while (first := next(source, None)) is not None:
        begin = source.number
        reader = csv.reader(chain([first], source), delimiter=delimiter, strict=True)
        try:
            cells = next(reader)
        except csv.Error as error:
            source.faults.append(Problem(begin, f"not a row of a table ({one_line(str(error))})"))
            cells = []
        if not any(cell.strip() for cell in cells) and not source.faults:
            continue
        yield _raw(begin, names, cells, source)
        source.faults.clear()


def _raw(line: int, names: tuple[str, ...], cells: list[str], source: _Lines) -> Raw:
    problems = list(source.faults)
    if not problems and len(cells) != len(names):
        problems.append(Problem(line, f"{_counted(len(cells), 'cell')}; the heading has {len(names)}"))
    plain: dict[str, Any] = {}
    for name, cell in zip(names, cells, strict=False):
        if cell.strip():
            try:
                plain[name] = _value(name, cell)
            except ValueError as error:
                problems.append(Problem(line, f"'{name}' begins with '[', but is no JSON ({one_line(str(error))})"))
    return Raw(line, None if problems else plain, tuple(problems), source.end)


def _value(name: str, cell: str) -> Any:
    if name == "passages" and cell.lstrip().startswith("["):
        return parse_json(cell)
    return [part.strip() for part in cell.split(SEPARATOR)] if name in _SEVERAL else cell.strip()


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


class _Lines:
    """The lines of a file with their ends, for ``csv``; what is wrong with one is kept in ``faults``."""

    def __init__(self, path: Readable) -> None:
        self._lines: Iterator[TextLine] = lines(path)
        self.faults: list[Problem] = []
        self.number = self.end = 0

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        line = next(self._lines)
        self.number, self.end = line.number, line.end
        if line.fault:
            self.faults.append(Problem(line.number, line.fault))
        return line.text + "\n"
