"""A file of rows that a run can be taken up from: ``{"id": …, "question": …, …, "run": …}``, one per line.

Every row is handed to the system when it is written. A row that was cut off by a crash, and rows of questions that
failed, are dropped when the file is opened again, so that their questions are asked again; everything else stays. Each
row has a checksum, so that one which was damaged is not kept in silence.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from arbitrag.errors import DataError, UsageError
from arbitrag.serialization import to_plain
from arbitrag.storage.checksums import seal, unseal
from arbitrag.storage.files import check_plain, check_writable, encoded, open_plain, replacing
from arbitrag.storage.jsonl import json_object
from arbitrag.storage.lines import TextLine, lines
from arbitrag.storage.lock import Lock
from arbitrag.text import one_line
from arbitrag.types import Question

FORMAT = 2  # of a row, kept in its ``run``; 1 had no number, and counted prompt tokens without the cached ones
_BEGINNING = '{"id": '


@dataclass
class ResultFile:
    """``finished`` holds, by id, where a row lies in the file: its first byte and its length.

    ``spent`` is what the finished rows cost when the file was opened: tokens in all, and money where it is known.
    """

    path: Path
    finished: dict[str, tuple[int, int]] = field(default_factory=dict)
    given: Mapping[str, str] = field(default_factory=dict)
    spent: tuple[int, float] = (0, 0.0)
    _file: BinaryIO | None = None

    @classmethod
    @contextmanager
    def opened(
        cls, path: Path, questions: Sequence[Question], run: Mapping[str, Any], given: Mapping[str, str] = {}
    ) -> Iterator[ResultFile]:
        """The rows at ``path``, ready to be added to; when the block ends, they are put in the order of the questions.

        ``given`` are hashes of the passages that come with the questions, by id: rows made of others are asked again.

        Raises DataError for a file that is not one of rows or that another process is writing, UsageError for rows
        that another run made.
        """
        check_writable(path)
        check_plain(path)
        results = cls(path)
        asked = {question.id: to_plain(question) for question in questions}
        results.given = given
        read = _state(path)
        superfluous = results._read(asked, run)
        with Lock(path):  # not before the file is known to be one of ours, so that nothing comes to lie beside another
            if _state(path) != read:
                superfluous = results._read(asked, run)
            if superfluous:
                results._rewrite(list(results.finished))
            with results._writing():
                yield results
            results._sort([question.id for question in questions])

    def append(self, row: Mapping[str, Any]) -> None:
        """Write a row; raises DataError when that fails."""
        assert self._file is not None
        line = encoded(json.dumps(seal(row), ensure_ascii=False, allow_nan=False)) + b"\n"
        try:
            self.finished[row["id"]] = (self._file.tell(), len(line))
            self._file.write(line)
        except OSError as error:
            raise self._unwritable(error) from None

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            self._file = open_plain(self.path, "ab", buffering=0)
        except OSError as error:
            raise self._unwritable(error) from None
        with self._file:
            yield

    def _unwritable(self, error: OSError) -> DataError:
        return DataError(f"cannot write {self.path}: {error.strerror}")

    def _read(self, questions: Mapping[str, Any], run: Mapping[str, Any]) -> bool:
        """Find the finished rows; True when the file holds others, which have to go."""
        self.finished, self.spent = {}, (0, 0.0)
        offset, superfluous = 0, False
        for line in lines(self.path) if self.path.exists() else ():
            row = self._row(line, questions, run)
            if row is None or not self._is_finished(row):
                superfluous = True
            else:
                superfluous |= row["id"] in self.finished
                self.finished[row["id"]] = (offset, line.end - offset)
                self.spent = _with_usage(self.spent, row.get("usage"))
            offset = line.end
        return superfluous

    def _row(self, line: TextLine, questions: Mapping[str, Any], run: Mapping[str, Any]) -> dict[str, Any] | None:
        """The row in a line; None for one that was cut off while it was written."""
        where = f"{self.path} line {line.number}"
        if not line.ended and line.text[: len(_BEGINNING)] == _BEGINNING[: len(line.text)]:
            return None
        try:
            row = json_object(line.text)
            key, question, made = row["id"], row["question"], row["run"]
            if line.fault or not isinstance(key, str) or not isinstance(question, dict):
                raise TypeError
        except (ValueError, TypeError, KeyError):
            raise DataError(f"{where} is not a row of verdicts; give -o another file") from None
        try:
            unseal(row)
        except ValueError as error:
            raise DataError(
                f"{where} cannot be kept: {error}.\nDelete the line, and its question is asked again; or give -o "
                "another file"
            ) from None
        made_as = made.get("format", 1) if isinstance(made, Mapping) else None
        if made_as != FORMAT:
            raise UsageError(
                f"{where} is a row of format {one_line(str(made_as))}; this Arbitrag goes on with format {FORMAT}. "
                "Give -o another file"
            )
        if made != run:
            raise UsageError(f"{where} was made with {_difference(made, run)}; give -o another file")
        if questions.get(key, question) != question:
            text = one_line(str(question.get("text", "")), 40)
            raise UsageError(
                f"{where}: '{one_line(str(key))}' is another question there (“{text}”); give -o another file"
            )
        return row

    def _is_finished(self, row: Mapping[str, Any]) -> bool:
        return "error" not in row and row.get("given") == self.given.get(row["id"], row.get("given"))

    def _sort(self, order: Sequence[str]) -> None:
        """Rows in the order of the questions, after those of questions that are no longer asked."""
        asked = set(order)
        wanted = [key for key in self.finished if key not in asked] + [key for key in order if key in self.finished]
        if wanted != list(self.finished):
            self._rewrite(wanted)

    def _rewrite(self, wanted: Sequence[str]) -> None:
        """Replace the file by these rows of it, in one step."""
        places, offset = {}, 0
        with self.path.open("rb") as old, replacing(self.path) as new:
            for key in wanted:
                start, length = self.finished[key]
                old.seek(start)
                new.write(old.read(length))
                places[key] = (offset, length)
                offset += length
        self.finished = places


def _with_usage(spent: tuple[int, float], usage: Any) -> tuple[int, float]:
    """With what a row says that it cost; what another program wrote there may say nothing."""
    known = usage if isinstance(usage, Mapping) else {}
    kinds = ("prompt_tokens", "completion_tokens", "money")
    prompt, completion, money = (value if isinstance(value, int | float) else 0 for value in map(known.get, kinds))
    return spent[0] + int(prompt + completion), spent[1] + money


def _state(path: Path) -> tuple[int, int, int] | None:
    """What changes when a file is written; None where there is none."""
    if not path.exists():
        return None
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


def _difference(made: Any, run: Mapping[str, Any]) -> str:
    """The first setting in which two runs differ, in words."""
    if not isinstance(made, Mapping):
        return "other settings"
    for key, value in run.items():
        before = made.get(key)
        if before != value:
            if isinstance(value, Mapping) and isinstance(before, Mapping):
                return _difference(before, value)
            return f"{key} {one_line(str(before))} instead of {one_line(str(value))}"
    return "other settings"
