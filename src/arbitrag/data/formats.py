"""Which format a file is in, by what it holds and never by its name; of others that are known, the name of each."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from arbitrag.data import csv_dataset, jsonl_dataset, poisonedrag, realtimeqa
from arbitrag.data.fields import Fields
from arbitrag.data.options import Options
from arbitrag.data.rows import Raw, json_rows, plain_rows
from arbitrag.errors import DataError
from arbitrag.evaluate.questions import Item
from arbitrag.storage.lines import Readable
from arbitrag.text import one_line
from arbitrag.types import Passage, Question

_HEAD = 1 << 16  # bytes that are looked at
_RUN = b"ARBT"  # the application in the header of a run file


@dataclass(frozen=True)
class Format:
    """How a file is read: its rows, and the question of each with the options of its address.

    ``for_asking`` are the fields that decide what is asked; ``asked`` gives that, without the rest. A format of
    somebody else's has none: its question is asked as its ``item`` has it.
    """

    name: str
    options: type[Options]
    rows: Callable[[Readable], Iterator[Raw]]
    item: Callable[[Fields, Any], Item]
    for_asking: tuple[str, ...] = jsonl_dataset.ASKED
    has: Callable[[set[str]], bool] = lambda keys: False  # whether rows with these keys, "question" apart, are of it
    asked: Callable[[Fields, Any], tuple[Question, tuple[Passage, ...] | None]] | None = None


OWN = Format(
    "JSON lines",
    jsonl_dataset.Own,
    json_rows,
    jsonl_dataset.item,
    has=lambda keys: bool(keys & {"answers", "scenario"}),
    asked=jsonl_dataset.asked,
)
TABLE = Format("a table (CSV)", jsonl_dataset.Own, csv_dataset.csv_rows, jsonl_dataset.item, asked=jsonl_dataset.asked)
# JSON lines, one row for each format, from the most telling on: a file is of the first whose keys its rows have.
FORMATS = (
    Format(
        "RealTime QA with poison",
        realtimeqa.RealTimeQA,
        json_rows,
        realtimeqa.item,
        ("id", "question", "choices", "clean", "poisoned"),
        has=lambda keys: "poisoned" in keys and bool(keys & {"clean", "choice_index"}),
    ),
    Format(
        "PoisonedRAG",
        poisonedrag.PoisonedRAG,
        json_rows,
        poisonedrag.item,
        ("id", "question", "poisoned"),
        has=lambda keys: {"poisoned", "wrong_answer"} <= keys and "passages" not in keys,
    ),
    OWN,
)
_ANY_TABLE = replace(TABLE, rows=partial(csv_dataset.csv_rows, only_known=False))
_PLAIN = Format("a question a line", jsonl_dataset.Own, plain_rows, jsonl_dataset.item, asked=jsonl_dataset.asked)

_SHAPE = 'a question set is JSON lines, {"question": "...", "answers": ["..."]}, or CSV with these columns'
_TO_ASK = 'to ask, give a question a line, JSON lines, {"question": "..."}, or CSV with the column \'question\''
_LATER = "that format is not read yet; SHAPE"
_HEADINGS = frozenset(
    {"question", "questions", "query", "prompt", "answer", "answers", "gold", "label", "id", "options", "scenario"}
    | {"context", "passages", "wrong_answer", "planted", "poisoned", "group"}
)
_LIST = re.compile(r"\[\s*(?:[\[{\"]|\]|-?\d+\s*,)")

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
        "it holds verdicts, and no gold answers; SHAPE",
    ),
    ("a trace", frozenset({"calls", "prompts", "limits"}), "type: arbitrag replay FILE"),
    ("passages or documents", frozenset({"text"}), "to search them, index them: arbitrag index FILE -o docs.idx"),
)


def format_of(path: Readable, *, to_ask: bool = False) -> Format:
    """The format of a file of questions and answers; ``to_ask`` of one whose questions are only to be asked.

    That may also be a question a line, or rows without answers and with other fields; a table that lacks the column
    'question' is refused even so, because its lines would be taken for questions, right answers included.

    Raises DataError for a file that cannot be read, is empty, or is in another format, which it names.
    """
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD)
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from None
    try:
        return _found(head, to_ask)
    except _Another as error:
        hint = error.hint.replace("SHAPE", _TO_ASK if to_ask else _SHAPE).replace("FILE", str(path))
        raise DataError(f"{path} {error.what}; {hint}") from None


class _Another(Exception):
    """The file is of no format that is read; in ``hint`` stand ``FILE`` and ``SHAPE`` for its name and what is read."""

    def __init__(self, what: str, hint: str) -> None:
        self.what, self.hint = what, hint


def _found(head: bytes, to_ask: bool) -> Format:
    _refuse_binary(head)
    text = head.decode("utf-8", "replace").removeprefix("\ufeff").lstrip()
    if not text:
        raise _Another("has no questions" if to_ask else "is empty", "SHAPE")
    if text[0] == "{":
        return _of_objects(text, to_ask)
    if text[0] == "[" and (not to_ask or _LIST.match(text)):
        raise _looks(*(_kind(_keys(text)) or ("a JSON list", "a row is one object on a line: jq -c '.[]' FILE")))
    heading = text.split("\n", 1)[0].rstrip("\r")
    if csv_dataset.columns(heading):
        return _ANY_TABLE if to_ask else TABLE
    seen = f"a table without the column 'question'; its first line is '{one_line(heading)}'"
    if not to_ask:
        raise _looks(f"plain text, or {seen}", "SHAPE")
    if _is_table(text, len(head) == _HEAD):
        raise _looks(seen, "SHAPE")
    return _PLAIN


def _is_table(text: str, cut: bool) -> bool:
    """Whether lines are rather those of a table: the first names a column, or all have as many short cells as it has.

    ``cut`` says that the last line is not whole.
    """
    lines = [line for line in text.split("\n")[: -1 if cut else None] if line.strip()]
    for delimiter in csv_dataset.DELIMITERS:
        names = lines[0].rstrip("\r").split(delimiter)
        if len(names) < 2:
            continue
        if any(name.strip().casefold() in _HEADINGS for name in names):
            return True
        brief = all(name and name == name.strip() and "?" not in name and len(name.split()) <= 3 for name in names)
        if brief and len(lines) > 1 and all(line.count(delimiter) >= len(names) - 1 for line in lines):
            return True
    return False


def _refuse_binary(head: bytes) -> None:
    if head.startswith(b"SQLite format 3\x00"):
        if head[68:72] == _RUN:
            raise _looks("the file of a run", "type: arbitrag bench report FILE")
        raise _looks("an sqlite database", "SHAPE")
    for magic, name, hint in _BINARY:
        if head.startswith(magic):
            raise _looks(name, hint)
    if b"\x00" in head[:1024]:
        raise _looks("binary data", "SHAPE")


def _of_objects(text: str, to_ask: bool) -> Format:
    """The format of a file that begins with an object: one per line, unless the first one goes on over many."""
    rows = _objects(text)
    keys = {key for row in rows for key in row}
    if (found := _read(keys)) is not None:
        return found
    deep = _keys(text) if not rows or keys & {"data", "Data"} else set()
    if (kind := _kind(keys) or _kind(deep)) is not None:
        raise _looks(*kind)
    if to_ask and "question" in keys:
        return OWN
    if "question" in keys and keys <= {"question", "id", "options"}:
        raise _looks("questions without answers", "to ask them: arbitrag ask --questions FILE; SHAPE")
    if not rows and text.split("\n", 1)[0].strip() == "{":
        raise _looks("one JSON document over many lines", "a row is one object on a line: jq -c . FILE")
    return _read(deep) or OWN


def _read(keys: set[str]) -> Format | None:
    """The format of rows with these keys, where it is read."""
    return next((each for each in FORMATS if "question" in keys and each.has(keys)), None)


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


def _looks(name: str, hint: str) -> _Another:
    return _Another(f"looks like {name}", hint)
