from __future__ import annotations

import re
from pathlib import Path

import pytest

from arbitrag.errors import DataError
from arbitrag.storage.jsonl import read_passages
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
