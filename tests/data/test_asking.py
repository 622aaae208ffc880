"""What is asked of a file: the same formats as for an evaluation, with nothing that only an evaluation may know."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest

from arbitrag.data import open_set
from arbitrag.data.asking import questions_to_ask
from arbitrag.errors import DataError, UsageError
from arbitrag.types import Question


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "rows.jsonl"


def test_questions_as_json(file: Path) -> None:
    file.write_text('{"question": "Who?", "id": "a"}\n\n{"question": "Which?", "options": ["x", "y"]}\n')
    assert questions_to_ask(file).questions == [Question("Who?", id="a"), Question("Which?", ("x", "y"), "3")]


def test_questions_as_plain_lines(file: Path) -> None:
    file.write_text('Who?\n  \n"Hamlet" is by whom? \n[1] means what?')
    assert [(question.id, question.text) for question in questions_to_ask(file).questions] == [
        ("1", "Who?"),
        ("3", '"Hamlet" is by whom?'),
        ("4", "[1] means what?"),
    ]


def test_a_byte_order_mark_and_windows_line_ends(file: Path) -> None:
    file.write_bytes('\ufeff{"question": "Wer, ß?"}\r\n{"question": "Was?"}\r\n'.encode())
    assert [question.text for question in questions_to_ask(file).questions] == ["Wer, ß?", "Was?"]


def test_only_line_feeds_end_a_line(file: Path) -> None:
    file.write_text("one\u2028still one?\n", encoding="utf-8")
    assert len(questions_to_ask(file).questions) == 1


def test_questions_on_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"Who?\n")))
    assert questions_to_ask("-").questions == [Question("Who?", id="1")]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", " has no questions; to ask, give a question a line, JSON lines,"),
        ("\n \n", " has no questions; "),
        ('{"question": "a"}\n{"question": 5}', " line 2: 'question' is a whole number; expected a string"),
        ('{"question": "a"}\n\n{"q": "a"}', " line 3: 'question' is missing"),
        ('{"questoin": "a"}', " line 1: 'questoin' is not known; did you mean 'question'?"),
        ('{"id": "a"}', " line 1: 'question' is missing"),
        ('{"question": " "}', " line 1: 'question' is empty"),
        ('{"question": "a", "options": "b"}', " line 1: 'options' has one option; give two or more, or none"),
        ("Who?\nWho\x0b?", " line 2: 'question' has a control character, \\u000b"),
        ('{"question": "a", "options": ["b", null]}', " line 1: 'options[1]' is null; expected a string"),
        ('{"question": "a", "id": 7}', " line 1: 'id' is a whole number; expected a string"),
        ('{"question": "a"}\n["b"]', " line 2: a list; expected a JSON object"),
        ('{"question": "a"}\nWho?', " line 2: not valid JSON (Expecting value"),
        ('{"question": "a"', " line 1: not valid JSON ("),
        ('Who?\n{"question": "a"}', " line 2: JSON, but the file began with plain questions"),
        ('{"question": "a", "id": "x"}\n{"question": "b", "id": "x"}', " line 2: the id 'x' is that of line 1 already"),
        ('{"question": "a", "id": "2"}\n{"question": "b"}', " line 2: the id '2' is that of line 1 already"),
        (b"Who?\nWh\xff\n", " line 2: not UTF-8 at byte 3"),
    ],
)
def test_lines_that_are_no_questions(content: str | bytes, message: str, file: Path) -> None:
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DataError, match=f"^{re.escape(str(file) + message)}"):
        questions_to_ask(file)


def test_a_table_is_read_as_one_and_its_right_answers_stay_behind(file: Path) -> None:
    file.write_text(
        'id,question,answers,options,group\na,"Who, of these?",Ada|Ada L.,Ada|Bea,people\n,Where?,Nulbot,,places\n'
    )
    asked = questions_to_ask(file)
    assert asked.questions == [Question("Who, of these?", ("Ada", "Bea"), "a"), Question("Where?", (), "3")]
    assert asked.ignored == ("answers", "group")
    assert not asked.passages
    assert [item.question for item in open_set(file).items] == asked.questions


def test_a_table_may_have_columns_that_nobody_knows(file: Path) -> None:
    file.write_text("question;section;notes\nWho?;3;hard\n")
    asked = questions_to_ask(file)
    assert asked.questions == [Question("Who?", (), "2")]
    assert asked.ignored == ("section", "notes")
    with pytest.raises(DataError, match="the column 'section' is not known"):
        open_set(file)


def test_labels_of_json_lines_are_ignored_whatever_they_hold(file: Path) -> None:
    file.write_text(
        '{"question": "Who?", "answers": 7, "scenario": "?", "planted": {}, "poisoned": ["x"], "group": 1}\n'
    )
    asked = questions_to_ask(file)
    assert asked.questions == [Question("Who?", (), "1")]
    assert asked.ignored == ("answers", "scenario", "planted", "poisoned", "group")


def test_passages_come_as_in_an_evaluation(file: Path) -> None:
    file.write_text(
        '{"id": "a", "question": "Who?", "answers": ["Ada"], "poisoned": ["bad"], '
        '"passages": [{"id": "bad", "text": "Bea."}, "Ada."]}\n'
    )
    (item,) = open_set(file).items
    asked = questions_to_ask(file)
    assert [passage.text for passage in asked.passages["a"]] == ["Bea.", "Ada."]
    assert asked.passages["a"] == item.passages
    assert "bad" not in {passage.id for passage in asked.passages["a"]}
    mixed = f"{file}?poisoned=1&k=1"
    assert questions_to_ask(mixed).passages["a"] == open_set(mixed).items[0].passages


def test_sets_of_others_are_asked_as_they_are_measured(file: Path) -> None:
    file.write_text(
        '{"id": "pr-1", "question": "where", "answers": ["Ardenfall"], "wrong_answer": "Brackwater", '
        '"poisoned": ["It is in Brackwater."]}\n'
    )
    address = f"{file}?poisoned=1"
    (item,) = open_set(address).items
    asked = questions_to_ask(address)
    assert asked.questions == [item.question]
    assert asked.passages == {"pr-1": item.passages}
    assert asked.ignored == ("answers", "wrong_answer")


def test_questions_of_the_lab() -> None:
    address = "lab:questions?count=4&k=2"
    assert questions_to_ask(address).questions == [item.question for item in open_set(address).items]


@pytest.mark.parametrize(
    ("content", "looks"),
    [
        ('{"data": [{"paragraphs": [{"qas": []}]}]}', "a SQuAD v1 JSON; that format is not read yet; to ask, give"),
        ('{"supporting_facts": [], "context": [], "question": "Who?"}', "a HotpotQA JSON; that format is not read yet"),
        ('[{"question": "Who?"}]', "a JSON list; a row is one object on a line"),
        (
            "Question,Answer\nWho?,Ada\n",
            "a table without the column 'question'; its first line is 'Question,Answer'; to",
        ),
        ("frage\tantwort\nWer?\tAda\n", "a table without the column 'question'; its first line is 'frage antwort'; to"),
        (b"PK\x03\x04....", "a zip archive or an office document; unpack it, or save the sheet as CSV"),
        (b"SQLite format 3\x00" + b"\x00" * 90, "an sqlite database; to ask, give a question a line"),
    ],
)
def test_another_format_is_named_and_not_read_as_lines(content: str | bytes, looks: str, file: Path) -> None:
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DataError, match=f"^{re.escape(f'{file} looks like {looks}')}"):
        questions_to_ask(file)


@pytest.mark.parametrize(
    "content",
    [
        "Say number 7, please\nSay number 8, please\n",
        "Who is it, then?\nWhat, now?\n",
        "[1] means what?\n",
        "who wrote hamlet, when, why\nsay it\n",
    ],
)
def test_plain_questions_may_have_commas_and_brackets(content: str, file: Path) -> None:
    file.write_text(content)
    assert [question.text for question in questions_to_ask(file).questions] == content.splitlines()


def test_options_of_an_address_are_checked(file: Path) -> None:
    file.write_text('{"question": "Who?"}')
    with pytest.raises(UsageError, match=r"unknown option of .* 'kk'"):
        questions_to_ask(f"{file}?kk=2")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nothing\.jsonl cannot be read: No such file"):
        questions_to_ask(tmp_path / "nothing.jsonl")
