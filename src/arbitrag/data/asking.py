"""Questions to be asked, from the files that ``open_set`` reads, and from plain text: what a method may see, no more.

The same reader finds the format and reads the rows. Right answers, scenarios and what an attack planted stay behind
here: they are of no use to ``ask``, and whatever it is given could reach a prompt.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arbitrag.data.fields import Fields
from arbitrag.data.formats import Format, format_of
from arbitrag.data.jsonl_dataset import KEYS, Own
from arbitrag.data.options import Options, options_from
from arbitrag.data.reading import open_source, place_and_query
from arbitrag.data.rows import Raw
from arbitrag.errors import DataError
from arbitrag.storage.lines import STANDARD_INPUT, Readable, readable
from arbitrag.text import one_line
from arbitrag.types import Passage, Question

_LIKE = 0.8  # how much a field's name must look like another for it to be a slip of the pen


@dataclass(frozen=True)
class Asked:
    """``passages`` are those that the questions bring, by the questions' ids; ``ignored`` names the fields left out."""

    name: str
    questions: list[Question]
    passages: Mapping[str, tuple[Passage, ...]]
    ignored: tuple[str, ...]


def questions_to_ask(address: str | Path) -> Asked:
    """The questions at an address, as ``open_set`` takes it, or on standard input for ``-``.

    A question without an id is called by its line. Raises DataError for a file in another format, for one without
    questions, or for a bad row, which it names; UsageError for a wrong option.
    """
    if str(address).startswith("lab:"):
        source = open_source(address)
        items = [row.item for row in source.rows() if row.item is not None]
        own = {item.id: item.passages for item in items if item.passages is not None}
        return Asked(source.name, [item.question for item in items], own, ())
    file, query = _file(address)
    format = format_of(file, to_ask=True)
    reading = _Reading(str(file), format, options_from(format.options, query, str(file)))
    for raw in format.rows(file):
        reading.add(raw)
    if not reading.questions:
        raise DataError(f'{file} has no questions; a line is a question, or {{"question": "..."}}')
    return Asked(str(file), reading.questions, reading.passages, tuple(reading.ignored))


def _file(address: str | Path) -> tuple[Readable, str]:
    if str(address) == STANDARD_INPUT:
        return readable(address), ""
    place, query = place_and_query(str(address))
    return Path(place), query


class _Reading:
    """What was read so far, row by row."""

    def __init__(self, name: str, format: Format, options: Options) -> None:
        self.questions: list[Question] = []
        self.passages: dict[str, tuple[Passage, ...]] = {}
        self.ignored: dict[str, None] = {}
        self._name, self._format, self._options = name, format, options
        self._lines: dict[str, int] = {}

    def add(self, raw: Raw) -> None:
        """One more row; raises DataError for a bad one."""
        row = Fields(raw.line, self._fields(raw.plain or {}))
        row.problems += raw.problems
        if raw.plain is not None:
            self._check_names(row, raw.plain)
            question, passages = self._asked(row)
            before = self._lines.setdefault(question.id, raw.line)
            if before != raw.line:
                row.fault(f"the id '{one_line(question.id)}' is that of line {before} already")
        if row.bad:
            worst = next(problem for problem in row.problems if not problem.warning)
            raise DataError(f"{self._name} line {worst.line}: {worst.text}")
        self.questions.append(question)
        if passages is not None:
            self.passages[question.id] = passages

    def _fields(self, plain: Mapping[str, Any]) -> dict[str, Any]:
        """What is read of a row; all of it where the format is somebody else's."""
        if self._format.asked is None:
            return dict(plain)
        mixing = isinstance(self._options, Own) and self._options.mixture() is not None
        wanted = (*self._format.for_asking, *(["poisoned"] if mixing else []))
        return {name: value for name, value in plain.items() if name in wanted}

    def _check_names(self, row: Fields, plain: Mapping[str, Any]) -> None:
        missing = [name for name in self._format.for_asking if name not in plain]
        for name in _others(plain, self._format.for_asking):
            close = difflib.get_close_matches(name, missing, n=1, cutoff=_LIKE)
            if close and name not in KEYS:
                row.fault(f"'{one_line(name)}' is not known; did you mean '{close[0]}'?")
            self.ignored[name] = None

    def _asked(self, row: Fields) -> tuple[Question, tuple[Passage, ...] | None]:
        if self._format.asked is not None:
            return self._format.asked(row, self._options)
        item = self._format.item(row, self._options)
        return item.question, item.passages


def _others(plain: Mapping[str, Any], wanted: Collection[str]) -> Iterator[str]:
    return (name for name in plain if name not in wanted)
