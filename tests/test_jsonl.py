from __future__ import annotations

import io
import re
from pathlib import Path

import pytest

from arbitrag.errors import DataError
from arbitrag.jsonl import read_passages, read_questions
from arbitrag.types import Passage, Question


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "rows.jsonl"


def test_questions_as_json(file: Path) -> None:
    file.write_text('{"question": "Who?", "id": "a"}\n\n{"question": "Which?", "options": ["x", "y"]}\n')
    assert read_questions(file) == [Question("Who?", id="a"), Question("Which?", ("x", "y"), "3")]


def test_questions_as_plain_lines(file: Path) -> None:
    file.write_text('Who?\n  \n"Hamlet" is by whom? \n[1] means what?')
    assert [(question.id, question.text) for question in read_questions(file)] == [
        ("1", "Who?"),
        ("3", '"Hamlet" is by whom?'),
        ("4", "[1] means what?"),
    ]


def test_a_byte_order_mark_and_windows_line_ends(file: Path) -> None:
    file.write_bytes('\ufeff{"question": "Wer, ß?"}\r\n{"question": "Was?"}\r\n'.encode())
    assert [question.text for question in read_questions(file)] == ["Wer, ß?", "Was?"]


def test_only_line_feeds_end_a_line(file: Path) -> None:
    file.write_text("one\u2028still one\x0b?\n", encoding="utf-8")
    assert len(read_questions(file)) == 1


def test_questions_on_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"Who?\n")))
    assert read_questions("-") == [Question("Who?", id="1")]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", " has no questions; a line is a question, or"),
        ("\n \n", " has no questions"),
        ('{"question": "a"}\n{"question": 5}', " line 2: 'question' is a whole number; expected a string"),
        ('{"question": "a"}\n\n{"q": "a"}', " line 3: 'q' is not known"),
        ('{"questoin": "a"}', " line 1: 'questoin' is not known; did you mean 'question'?"),
        ('{"id": "a"}', " line 1: 'question' is missing"),
        ('{"question": " "}', " line 1: 'question' is empty"),
        ('{"question": "a", "options": "b"}', " line 1: 'options' is a string; expected a list"),
        ('{"question": "a", "options": ["b", null]}', " line 1: 'options[1]' is null; expected a string"),
        ('{"question": "a", "id": 7}', " line 1: 'id' is a whole number; expected a string"),
        ('{"question": "a"}\n["b"]', " line 2: a list; expected a JSON object"),
        ('{"question": "a"}\nWho?', " line 2: not valid JSON (Expecting value"),
        ('{"question": "a"', " line 1: not valid JSON ("),
        ('Who?\n{"question": "a"}', " line 2 is JSON, but the file began with plain questions"),
        ('{"question": "a", "id": "x"}\n{"question": "b", "id": "x"}', " line 2: the id 'x' is that of line 1 already"),
        ('{"question": "a", "id": "2"}\n{"question": "b"}', " line 2: the id '2' is that of line 1 already"),
        (b"Who?\nWh\xff\n", " line 2: not UTF-8 at byte 3"),
    ],
)
def test_lines_that_are_no_questions(content: str | bytes, message: str, file: Path) -> None:
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DataError, match=f"^{re.escape(str(file) + message)}"):
        read_questions(file)


def test_passages(file: Path) -> None:
    file.write_text('{"text": "It rained.", "id": "a", "title": "T", "metadata": {"lang": "en"}}\n{"text": "Dry."}\n')
    assert read_passages(file) == [
        Passage("It rained.", id="a", title="T", metadata={"lang": "en"}),
        Passage("Dry.", id="2"),
    ]


def test_no_passages(file: Path) -> None:
    file.write_text("")
    assert read_passages(file) == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("plain words", " line 1: not valid JSON"),
        ('"a string"', " line 1: a string; expected a JSON object"),
        ('{"txet": "a"}', " line 1: 'txet' is not known; did you mean 'text'?"),
        ('{"text": ["a"]}', " line 1: 'text' is a list; expected a string"),
        ('{"text": ""}', " line 1: 'text' is empty"),
        ('{"text": "a", "score": NaN}', " line 1: not valid JSON (NaN is not JSON)"),
        ('{"text": "a", "id": "p"}\n{"text": "b", "id": "p"}', " line 2: the id 'p' is that of line 1 already"),
    ],
)
def test_lines_that_are_no_passages(content: str, message: str, file: Path) -> None:
    file.write_text(content)
    with pytest.raises(DataError, match=f"^{re.escape(str(file) + message)}"):
        read_passages(file)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nothing\.jsonl cannot be read: No such file"):
        read_questions(tmp_path / "nothing.jsonl")
    with pytest.raises(DataError, match="cannot be read: Is a directory"):
        read_passages(tmp_path)
