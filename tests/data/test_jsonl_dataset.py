"""Every way in which a row of one's own can be wrong, by value and by line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from arbitrag.data.reading import Read, open_source

GOOD: dict[str, Any] = {"question": "Which town?", "answers": ["Ardenfall"]}
TELLS = 'a question that it is right to refuse has "scenario": "REFUSE"'


def read(tmp_path: Path, *lines: str | bytes | dict[str, Any]) -> list[Read]:
    """The rows of a file with these lines, behind a good one that says what the file is."""
    file = tmp_path / "rows.jsonl"
    given = [json.dumps(GOOD), *(json.dumps(line) if isinstance(line, dict) else line for line in lines)]
    file.write_bytes(b"\n".join(line if isinstance(line, bytes) else line.encode() for line in given))
    return list(open_source(file).rows())


@pytest.mark.parametrize(
    ("line", "errors"),
    [
        ("nonsense", ["not valid JSON (Expecting value: line 1 column 1 (char 0))"]),
        ('{"question": NaN}', ["not valid JSON (NaN is not JSON)"]),
        ("[1]", ["a list; expected a JSON object"]),
        (b'{"question": "Wer f\xe4hrt?"}', ["not UTF-8 at byte 20"]),
        ({"answers": "b"}, ["'question' is missing"]),
        ({**GOOD, "question": " "}, ["'question' is empty"]),
        ({**GOOD, "question": 7}, ["'question' is a whole number; expected a string"]),
        ({**GOOD, "id": 7}, ["'id' is a whole number; expected a string"]),
        ({**GOOD, "question": "a\x07b"}, ["'question' has a control character, \\u0007"]),
        ({**GOOD, "id": "a\x00"}, ["'id' has a control character, \\u0000"]),
        ({"question": "a"}, [f"'answers' is missing; {TELLS}"]),
        ({"question": "a", "answers": []}, [f"'answers' is empty; {TELLS}"]),
        ({"question": "a", "answers": ["b", " "]}, ["'answers[1]' is empty"]),
        ({"question": "a", "answers": [1]}, ["'answers[0]' is a whole number; expected a string"]),
        ({"question": "a", "answers": None}, ["'answers' is null; expected a list"]),
        (
            {"question": "a", "answer": "b"},
            ["'answer' is not known; did you mean 'answers'?", f"'answers' is missing; {TELLS}"],
        ),
        (
            {**GOOD, "options": ["Brackwater", "Coldmere"]},
            ["no option is the answer 'Ardenfall'; the options are: Brackwater | Coldmere"],
        ),
        ({**GOOD, "options": ["Ardenfall"]}, ["'options' has one option; give two or more, or none"]),
        (
            {**GOOD, "scenario": "FX"},
            ["'scenario' is 'FX'; expected one of BOTH, MEMORY, EVIDENCE, REFUSE, FA, FI, FE, RA"],
        ),
        (
            {**GOOD, "scenario": "RA"},
            ["it is right to refuse, but there is the answer 'Ardenfall'; leave 'answers' empty"],
        ),
        (
            {"question": "a", "options": ["b", "I don't know"], "scenario": "RA"},
            ["it is right to refuse, and the option 'I don't know' says so; give it as the answer"],
        ),
        ({**GOOD, "wrong_answer": "the ardenfall"}, ["the answer 'Ardenfall' is planted as a wrong one, too"]),
        (
            {**GOOD, "wrong_answer": "b", "planted": "c"},
            ["'planted' and 'wrong_answer' are two names of one field; give one"],
        ),
        ({**GOOD, "passages": "a"}, ["'passages' is a string; expected a list"]),
        ({**GOOD, "passages": ["a", {"id": "p"}]}, ["'passages[1].text' is missing"]),
        ({**GOOD, "passages": ["a", {"text": " "}]}, ["'passages[1]' has no text"]),
        (
            {**GOOD, "passages": [{"text": "a", "titel": "b"}]},
            ["'passages[0].titel' is not known; did you mean 'title'?"],
        ),
        (
            {**GOOD, "passages": [{"text": "a", "id": "p"}, {"text": "b", "id": "p"}]},
            ["'passages[1]' has the id 'p' of a passage before it"],
        ),
        (
            {**GOOD, "passages": [{"text": "a", "id": "p"}], "poisoned": ["p", "q"]},
            ["'poisoned' names 'q', which is neither the id nor the text of a passage"],
        ),
        ({**GOOD, "poisoned": "p"}, ["'poisoned' names 'p', which is neither the id nor the text of a passage"]),
        ({**GOOD, "passages": [{"id": "p"}], "poisoned": "p"}, ["'passages[0].text' is missing"]),
        ({**GOOD, "id": "1"}, ["the id '1' is that of line 1 already"]),
    ],
)
def test_a_bad_row(line: str | bytes | dict[str, Any], errors: list[str], tmp_path: Path) -> None:
    good, bad = read(tmp_path, line)
    assert (good.line, good.problems) == (1, ())
    assert good.item is not None
    assert bad.item is None
    assert [problem.text for problem in bad.problems] == errors
    assert {(problem.line, problem.warning) for problem in bad.problems} == {(2, False)}


@pytest.mark.parametrize(
    ("line", "warning"),
    [
        ({**GOOD, "answers": ["The"]}, "the answer 'The' is empty when normalised; it must be matched exactly"),
        ({**GOOD, "answers": ["$"]}, "the answer '$' is empty when normalised; it must be matched exactly"),
        ({**GOOD, "options": ["ardenfall", "Ardenfall"]}, "the option 'Ardenfall' is there twice when normalised"),
        ({**GOOD, "question": "a\u200bb"}, "'question' has a character that is not seen, \\u200b"),
        ({**GOOD, "passages": ["a\x1bb"]}, "'passages[0]' has a control character, \\u001b"),
    ],
)
def test_a_row_to_look_at(line: dict[str, Any], warning: str, tmp_path: Path) -> None:
    _, row = read(tmp_path, line)
    assert row.item is not None
    assert [(problem.line, problem.text, problem.warning) for problem in row.problems] == [(2, warning, True)]


@pytest.mark.parametrize(
    "line",
    [
        {**GOOD, "question": "a\r\n\tb"},
        {"question": "a", "scenario": "RA"},
        {"question": "a", "scenario": "REFUSE", "answers": []},
        {"question": "a", "scenario": "RA", "options": ["b", "I don't know"], "answers": ["I don't know"]},
        {**GOOD, "options": ["the ardenfall", "b"]},
        {**GOOD, "passages": ["a", "a"]},
        {**GOOD, "wrong_answer": []},
    ],
)
def test_a_row_that_is_right(line: dict[str, Any], tmp_path: Path) -> None:
    _, row = read(tmp_path, line)
    assert row.problems == ()
    assert row.item is not None


def test_every_name_of_a_scenario(tmp_path: Path) -> None:
    names = ["BOTH", "both", "FA", "MEMORY", "fi", "FE"]
    rows = read(tmp_path, *({**GOOD, "scenario": name} for name in names))
    assert [row.item and row.item.scenario and row.item.scenario.name for row in rows] == [
        None, "BOTH", "BOTH", "BOTH", "MEMORY", "MEMORY", "EVIDENCE",
    ]  # fmt: skip


def test_lines_and_bytes_are_counted(tmp_path: Path) -> None:
    rows = read(tmp_path, "", json.dumps(GOOD) + "\r")
    assert [row.line for row in rows] == [1, 3]
    assert rows[-1].end == (tmp_path / "rows.jsonl").stat().st_size


def test_a_byte_order_mark(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_bytes(b"\xef\xbb\xbf" + json.dumps(GOOD).encode() + b"\r\n")
    (row,) = open_source(tmp_path / "rows.jsonl").rows()
    assert row.item is not None
    assert row.item.question.text == "Which town?"


def test_a_line_too_long_is_one_bad_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arbitrag.storage.lines.LONGEST_LINE", 1 << 20)
    long = json.dumps({**GOOD, "passages": ["a" * (3 << 20)]})
    rows = read(tmp_path, long, {**GOOD, "id": "z"})
    assert [problem.text for problem in rows[1].problems] == ["longer than 1 MB; a line holds one row"]
    assert (rows[2].line, rows[2].item and rows[2].item.id) == (3, "z")
    assert rows[2].end == (tmp_path / "rows.jsonl").stat().st_size
