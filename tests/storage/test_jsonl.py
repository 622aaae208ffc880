from __future__ import annotations

import re
from pathlib import Path

import pytest

from arbitrag.errors import DataError
from arbitrag.storage.jsonl import json_object, json_objects, read_passages
from arbitrag.storage.lines import Piped
from arbitrag.types import Passage


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "rows.jsonl"


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
    with pytest.raises(DataError, match="cannot be read: Is a directory"):
        read_passages(tmp_path)


def test_objects_keep_the_numbers_of_their_lines() -> None:
    assert list(json_objects(Piped(b'{"a": 1}\n\n \t\n{"b": [2]}'))) == [(1, {"a": 1}), (4, {"b": [2]})]


def test_a_list_with_an_element_on_each_line_is_read_as_objects() -> None:
    content = b'[\n{"a": 1},\n{"b": 2}\n]\n'
    assert list(json_objects(Piped(content), listed=True)) == [(2, {"a": 1}), (3, {"b": 2})]
    with pytest.raises(DataError, match=r"^standard input line 1: not valid JSON \(Expecting value"):
        list(json_objects(Piped(content)))


def test_the_first_line_that_is_no_text_ends_the_reading() -> None:
    found = json_objects(Piped(b'{"a": 1}\n{"b": "\xff"}\n{"c": 3}\n'))
    assert next(found) == (1, {"a": 1})
    with pytest.raises(DataError, match=r"^standard input line 2: not UTF-8 at byte 8$"):
        next(found)


def test_an_object_in_a_line() -> None:
    assert json_object(' {"a": null} ') == {"a": None}
    for line, reason in (("[]", "a list; expected a JSON object"), ("1e999", "not valid JSON (1e999 is not JSON)")):
        with pytest.raises(ValueError, match=f"^{re.escape(reason)}$"):
            json_object(line)
