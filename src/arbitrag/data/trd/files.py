"""JSON lines of other people's data sets, plain or packed, read one by one."""

from __future__ import annotations

import bz2
import gzip
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, cast

from arbitrag.data.fields import Fields
from arbitrag.errors import DataError
from arbitrag.serialization import describe, parse_json
from arbitrag.text import one_line

_OPENERS: Mapping[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open}


def json_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a file (also .gz or .bz2) with the numbers of their lines.

    The brackets and commas of a list that is written one element a line, as Wikidata's dumps are, are passed over.
    Raises DataError with the line of whatever is not an object.
    """
    for number, raw in _lines(path):
        try:
            text = raw.decode("utf-8").strip().removesuffix(",")
        except UnicodeDecodeError as error:
            raise DataError(f"{path} line {number}: not UTF-8 at byte {error.start + 1}") from None
        if text in ("", "[", "]"):
            continue
        try:
            plain = parse_json(text)
        except ValueError as error:
            raise DataError(f"{path} line {number}: not valid JSON ({one_line(str(error))})") from None
        if not isinstance(plain, dict):
            raise DataError(f"{path} line {number}: {describe(plain)}; expected a JSON object")
        yield number, plain


def raise_first(path: Path, row: Fields) -> None:
    """Raise DataError for the first problem of a row, if there is one that is more than a warning."""
    for problem in row.problems:
        if not problem.warning:
            raise DataError(f"{path} line {problem.line}: {problem.text}")


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    opener = _OPENERS.get(path.suffix, open)
    try:
        with cast(IO[bytes], opener(path, "rb")) as file:
            yield from enumerate(file, 1)
    except (EOFError, zlib.error) as error:
        raise DataError(f"{path} is cut short or damaged ({error}); fetch it again") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from None
