"""Which format a file is in, by what it holds and never by its name; of others that are known, the name of each."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arbitrag.data import own, poisonedrag, realtimeqa, table
from arbitrag.data.fields import Fields
from arbitrag.data.options import Options
from arbitrag.data.rows import Raw, json_rows
from arbitrag.errors import DataError
from arbitrag.evaluate.questions import Item
from arbitrag.text import one_line

_HEAD = 1 << 16  # bytes that are looked at
_RUN = b"ARBT"  # the application in the header of a run file


@dataclass(frozen=True)
class Format:
    """How a file is read: its rows, and the question of each with the options of its address."""

    name: str
    options: type[Options]
    rows: Callable[[Path], Iterator[Raw]]
    item: Callable[[Fields, Any], Item]


OWN = Format("JSON lines", own.Own, json_rows, own.item)
TABLE = Format("a table (CSV)", own.Own, table.csv_rows, own.item)
REALTIMEQA = Format("RealTime QA with poison", realtimeqa.RealTimeQA, json_rows, realtimeqa.item)
POISONEDRAG = Format("PoisonedRAG", poisonedrag.PoisonedRAG, json_rows, poisonedrag.item)

_SHAPE = 'a question set is JSON lines, {"question": "...", "answers": ["..."]}, or CSV with these columns'
_LATER = "that format is not read yet; " + _SHAPE

_BINARY = (
    (b"\x1f\x8b", "a gzip archive", "unpack it first: gunzip FILE"),
    (b"BZh", "a bzip2 archive", "unpack it first: bunzip2 FILE"),
    (b"\xfd7zXZ\x00", "an xz archive", "unpack it first: unxz FILE"),
    (b"\x28\xb5\x2f\xfd", "a zstd archive", "unpack it first: unzstd FILE"),
    (b"PK\x03\x04", "a zip archive or an office document", "unpack it, or save the sheet as CSV (UTF-8)"),
    (b"PAR1", "Parquet", "write it as JSON lines first"),
    (b"ARROW1", "Arrow", "write it as JSON lines first"),
    (b"%PDF", "a PDF", "to search documents, index them: arbitrag index FILE -o docs.idx"),
    (b"\xff\xfe", "UTF-16 text", "save it as UTF-8"),
    (b"\xfe\xff", "UTF-16 text", "save it as UTF-8"),
)

# Keys that a file of a kind has near its beginning, from the most telling kind on, and what to do about it.
_KINDS: tuple[tuple[str, frozenset[str], str], ...] = (
    ("a SQuAD v2 JSON", frozenset({"paragraphs", "qas", "is_impossible"}), _LATER),
    ("a SQuAD v1 JSON", frozenset({"paragraphs", "qas"}), _LATER),
    ("a 2WikiMultiHopQA JSON", frozenset({"_id", "supporting_facts", "context", "evidences"}), _LATER),
    ("a HotpotQA JSON", frozenset({"supporting_facts", "context", "question"}), _LATER),
    ("a MuSiQue file", frozenset({"question_decomposition", "paragraphs"}), _LATER),
    ("a TriviaQA JSON", frozenset({"QuestionId", "Question"}), _LATER),
    ("a Natural Questions file", frozenset({"annotations", "question_text"}), _LATER),
    ("a KILT file", frozenset({"input", "output"}), _LATER),
    ("an RGB file", frozenset({"query", "positive", "negative"}), _LATER),
    ("a FEVER file", frozenset({"claim", "label"}), _LATER),
    ("BEIR queries or a BEIR corpus", frozenset({"_id", "text"}), _LATER),
    (
        "results of arbitrag ask",
        frozenset({"strategy", "usage", "run"}),
        "it holds verdicts, and no gold answers; " + _SHAPE,
    ),
    ("a trace", frozenset({"calls", "prompts", "limits"}), "type: arbitrag replay FILE"),
    ("passages or documents", frozenset({"text"}), "to search them, index them: arbitrag index FILE -o docs.idx"),
)


def format_of(path: Path) -> Format:
    """The format of a file.

    Raises DataError for a file that cannot be read, is empty, or is in another format, which it names.
    """
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from None
    _refuse_binary(path, head)
    text = head.decode("utf-8", "replace").removeprefix("\ufeff").lstrip()
    if not text:
        raise DataError(f"{path} is empty; {_SHAPE}")
    if text[0] == "{":
        return _of_objects(path, text)
    if text[0] == "[":
        raise _another(
            path, *(_kind(_keys(text)) or ("a JSON list", "a row is one object on a line: jq -c '.[]' FILE"))
        )
    heading = text.split("\n", 1)[0].rstrip("\r")
    if table.columns(heading):
        return TABLE
    listed = f"its first line is '{one_line(heading)}'"
    raise _another(path, "plain text, or a table without the column 'question'", f"{listed}; {_SHAPE}")


def _refuse_binary(path: Path, head: bytes) -> None:
    if head.startswith(b"SQLite format 3\x00"):
        if head[68:72] == _RUN:
            raise _another(path, "the file of a run", "type: arbitrag bench report FILE")
        raise _another(path, "an sqlite database", _SHAPE)
    for magic, name, hint in _BINARY:
        if head.startswith(magic):
            raise _another(path, name, hint)
    if b"\x00" in head[:1024]:
        raise _another(path, "binary data", _SHAPE)


def _of_objects(path: Path, text: str) -> Format:
    """The format of a file that begins with an object: one per line, unless the first one goes on over many."""
    rows = _objects(text)
    keys = {key for row in rows for key in row}
    if (found := _read(keys)) is not None:
        return found
    deep = _keys(text) if not rows or keys & {"data", "Data"} else set()
    if (kind := _kind(keys) or _kind(deep)) is not None:
        raise _another(path, *kind)
    if "question" in keys and keys <= {"question", "id", "options"}:
        raise _another(path, "questions without answers", f"to ask them: arbitrag ask --questions FILE; {_SHAPE}")
    if not rows and text.split("\n", 1)[0].strip() == "{":
        raise _another(path, "one JSON document over many lines", "a row is one object on a line: jq -c . FILE")
    return _read(deep) or OWN


def _read(keys: set[str]) -> Format | None:
    """The format of rows with these keys, where it is read."""
    if "question" not in keys:
        return None
    if "poisoned" in keys and keys & {"clean", "choice_index"}:
        return REALTIMEQA
    if {"poisoned", "wrong_answer"} <= keys and "passages" not in keys:
        return POISONEDRAG
    return OWN if keys & {"answers", "scenario"} else None


def _objects(text: str) -> list[dict[str, Any]]:
    """The lines that are whole objects."""
    found = []
    for line in text.split("\n"):
        with suppress(ValueError, RecursionError):
            found.append(json.loads(line))
    return [each for each in found if isinstance(each, dict)]


def _keys(text: str) -> set[str]:
    return set(re.findall(r'"(\w+)"\s*:', text))


def _kind(keys: set[str]) -> tuple[str, str] | None:
    return next(((name, hint) for name, telling, hint in _KINDS if telling <= keys), None)


def _another(path: Path, name: str, hint: str) -> DataError:
    return DataError(f"{path} looks like {name}; {hint.replace('FILE', str(path))}")
