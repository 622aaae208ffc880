"""JSON lines of other people's data sets, plain or packed, read one by one."""

from __future__ import annotations

import bz2
import gzip
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

from arbitrag.data.fields import Fields
from arbitrag.errors import DataError
from arbitrag.storage.jsonl import json_objects

_OPENERS: Mapping[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open}


@dataclass(frozen=True)
class _Packed:
    """A file that is unpacked as it is read, where its name ends in .gz or .bz2."""

    path: Path

    def open(self, mode: Literal["rb"], /) -> BinaryIO:
        return cast(BinaryIO, _OPENERS.get(self.path.suffix, open)(self.path, mode))

    def __str__(self) -> str:
        return str(self.path)


def json_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a file (also .gz or .bz2) with the numbers of their lines.

    The file may be one list with an element on each line, as Wikidata's dumps are. Raises DataError with the line of
    whatever is not an object.
    """
    try:
        yield from json_objects(_Packed(path), listed=True)
    except (EOFError, zlib.error) as error:
        raise DataError(f"{path} is cut short or damaged ({error}); fetch it again") from None


def raise_first(path: Path, row: Fields) -> None:
    """Raise DataError for the first problem of a row, if there is one that is more than a warning."""
    for problem in row.problems:
        if not problem.warning:
            raise DataError(f"{path} line {problem.line}: {problem.text}")
