"""What a check finds in a whole set, and what it costs."""

from __future__ import annotations

import json
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from arbitrag.data.check import Summary, check
from arbitrag.data.reading import open_source
from arbitrag.data.rows import Problem


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "set.jsonl"


def checked(file: Path, *rows: dict[str, Any]) -> tuple[Summary, list[Problem]]:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    problems: list[Problem] = []
    return check(open_source(file), problems.append), problems


def test_what_good_rows_hold(file: Path) -> None:
    summary, problems = checked(
        file,
        {"question": "Who?", "answers": ["Ada", "Bea"], "options": ["Ada", "Cy", "Di"], "scenario": "FA", "group": "g"},
        {
            "question": "Who?",
            "answers": "Ada",
            "passages": ["One two.", "Three."],
            "poisoned": "Three.",
            "wrong_answer": "Cy",
        },
        {"question": "Who?", "answers": "The", "scenario": "both", "passages": ["One."], "group": "g"},
        {"question": "Who?"},
    )
    plain = summary.plain()
    assert (plain["rows"], plain["bad"], plain["errors"], plain["warnings"]) == (4, 1, 1, 1)
    assert plain["answers"] == {"least": 1, "mean": 1.33, "most": 2}
    assert plain["options"] == {"least": 0, "mean": 1.0, "most": 3}
    assert (plain["passages"], plain["with_passages"]) == ({"least": 1, "mean": 1.5, "most": 2}, 2)
    assert (plain["poisoned"], plain["planted"]) == ({"least": 0, "mean": 0.33, "most": 1}, 1)
    assert plain["scenarios"] == {"BOTH": 2, "not stated": 1}
    assert plain["groups"] == {"g": 2}
    assert plain["notes"] == []
    # a word counts 1.3 tokens: three questions of one word, and passages of two, one and one
    assert summary.tokens == pytest.approx(7 * 1.3, abs=1.5)
    assert [(problem.line, problem.warning) for problem in problems] == [(3, True), (4, False)]
    json.dumps(plain)


def with_poison(number: int, place: int, **poison: str) -> dict[str, Any]:
    passages = [{"text": f"Clean {number} {other}.", "title": "T", "id": str(other)} for other in range(2)]
    passages.insert(place, {"text": f"Poison {number}.", "id": "x", **poison})
    return {"question": "Who?", "answers": "Ada", "passages": passages, "poisoned": "x"}


def test_a_title_that_tells_the_poison(file: Path) -> None:
    note = "exactly the clean passages have a title; a method can tell the others by that"
    summary, _ = checked(file, *(with_poison(number, number % 3) for number in range(10)))
    assert summary.notes == [note]
    fewer, _ = checked(file, *(with_poison(number, number % 3) for number in range(9)))
    assert fewer.notes == []
    one, _ = checked(file, *(with_poison(number, number % 3) for number in range(9)), with_poison(9, 0, title="T"))
    assert one.notes == []


def test_a_source_that_tells_the_poison(file: Path) -> None:
    summary, _ = checked(file, *(with_poison(number, number % 3, title="T", source="attack") for number in range(10)))
    assert summary.notes == ["exactly the poisoned passages have a source; a method can tell the others by that"]


def test_a_place_that_tells_the_poison(file: Path) -> None:
    summary, _ = checked(file, *(with_poison(number, 1, title="T") for number in range(10)))
    assert summary.notes == ["the poisoned passage is number 2 in every question; a method can tell it by that"]
    other, _ = checked(file, *(with_poison(number, 1, title="T") for number in range(9)), with_poison(9, 2, title="T"))
    assert other.notes == []


def test_a_table_with_a_heading_alone(tmp_path: Path) -> None:
    (tmp_path / "set.csv").write_text("question,answers\n")
    problems: list[Problem] = []
    summary = check(open_source(tmp_path / "set.csv"), problems.append)
    assert (summary.errors, problems) == (1, [Problem(1, "there are no questions")])


def test_the_bytes_that_were_read_are_shown(file: Path) -> None:
    file.write_text('{"question": "Who?", "answers": "Ada"}\n' * 3)
    shown: list[tuple[int, int, str]] = []
    check(open_source(file), lambda problem: None, lambda *step: shown.append(step))
    size = file.stat().st_size
    assert shown == [(size * part // 3, size, "") for part in (1, 2, 3)]


def test_rows_are_not_kept(file: Path) -> None:
    passages = ["word " * 400] * 10
    with file.open("w") as out:
        for number in range(500):
            out.write(json.dumps({"question": f"Who {number}?", "answers": "Ada", "passages": passages}) + "\n")
    assert file.stat().st_size > 10_000_000
    counted: Counter[bool] = Counter()
    tracemalloc.start()
    try:
        summary = check(open_source(file), lambda problem: counted.update([problem.warning]))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (summary.rows, counted) == (500, Counter())
    assert peak < 2_000_000
