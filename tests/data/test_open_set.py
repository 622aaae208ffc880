"""From an address to a question set."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from arbitrag.data import open_set
from arbitrag.errors import DataError, UsageError
from arbitrag.types import Strategy


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "towns.jsonl"


def write(file: Path, *rows: dict[str, Any]) -> None:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def numbered(count: int) -> list[dict[str, Any]]:
    return [{"question": f"Question {number}?", "answers": [str(number)]} for number in range(1, count + 1)]


def test_a_row_with_everything(file: Path) -> None:
    passages = [{"id": "a", "text": "In Ardenfall.", "title": "T", "source": "s", "date": "2020"}, "In Brackwater."]
    write(
        file,
        {
            "id": "q7",
            "question": "Which town?",
            "answers": ["Ardenfall", "New Ardenfall"],
            "options": ["Brackwater", "ardenfall"],
            "passages": passages,
            "scenario": "FE",
            "wrong_answer": "Brackwater",
            "poisoned": ["In Brackwater."],
            "group": "towns",
        },
    )
    found = open_set(file)
    assert found.name == "towns"
    (item,) = found.items
    assert (item.id, item.question.text, item.question.options) == ("q7", "Which town?", ("Brackwater", "ardenfall"))
    assert (item.answers, item.planted, item.group) == (("Ardenfall", "New Ardenfall"), ("Brackwater",), "towns")
    assert item.scenario is Strategy.EVIDENCE
    assert item.passages is not None
    first, second = item.passages
    assert (first.text, first.title, first.source, first.date) == ("In Ardenfall.", "T", "s", "2020")
    assert item.poisoned == {second.id}


def test_a_row_with_little(file: Path) -> None:
    file.write_text('\n{"question": "Who?", "answers": "Ada"}\n\n{"question": "Who?", "scenario": "refuse"}\n')
    first, second = open_set(file).items
    assert (first.id, first.answers, first.passages, first.scenario) == ("2", ("Ada",), None, None)
    assert (second.id, second.answers, second.scenario) == ("4", (), Strategy.REFUSE)


def test_no_passages_are_not_the_same_as_none_given(file: Path) -> None:
    write(file, {"question": "Who?", "answers": "Ada", "passages": []})
    assert open_set(file).items[0].passages == ()


def test_the_first_questions(file: Path) -> None:
    write(file, *numbered(10))
    assert [item.id for item in open_set(file, limit=3).items] == ["1", "2", "3"]
    assert len(open_set(file, limit=11).items) == 10


def test_questions_drawn_at_random(file: Path) -> None:
    write(file, *numbered(100))
    drawn = [[int(item.id) for item in open_set(file, limit=10, seed=seed).items] for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] == sorted(drawn[0])
    assert len(set(drawn[0])) == 10
    assert drawn[0] != drawn[2]
    assert drawn[0] != list(range(1, 11))


def test_rows_behind_the_limit_are_not_read(file: Path) -> None:
    file.write_text('{"question": "Who?", "answers": "Ada"}\nnonsense\n')
    assert len(open_set(file, limit=1).items) == 1
    with pytest.raises(DataError, match="line 2: not valid JSON"):
        open_set(file)


def test_a_bad_row_is_named_with_the_command_that_names_all(file: Path) -> None:
    write(file, {"question": "Who?", "answers": "The"}, {"question": "Who?"})
    message = f'{file} line 2: \'answers\' is missing; a question that it is right to refuse has "scenario": "REFUSE"'
    with pytest.raises(DataError, match=rf"^{re.escape(message)}\nSee every bad row: arbitrag data check {file}$"):
        open_set(file)


def test_a_limit_of_none_at_all(file: Path) -> None:
    write(file, *numbered(1))
    with pytest.raises(UsageError, match="a limit of 0 questions; give 1 or more"):
        open_set(file, limit=0)
