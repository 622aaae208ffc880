"""The readers against the real files, where they are at hand: counts and hashes, never a row."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from arbitrag.data import open_set
from arbitrag.data.check import check
from arbitrag.data.reading import open_source
from arbitrag.data.rows import Problem
from arbitrag.evaluate.questions import QuestionSet

EXPANDED = 212  # answers and their equivalents
DIGESTS = {  # of all poisoned texts, sorted within each question, taken from the files without the readers
    "realtimeqa_poisoned": "55f8570c5b89975b",
    "poisonedrag_nq": "8837d943c8b27119",
    "poisonedrag_msmarco": "66eb56f218913c88",
}


@pytest.fixture(scope="module")
def folder(shared: Path) -> Path:
    if not (shared / "data").is_dir():
        pytest.skip("there is no folder 'shared/data' beside the repository")
    return shared / "data"


def hashed(texts: list[str]) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]


def test_nothing_is_wrong_with_them(folder: Path) -> None:
    warnings = {}
    for name in ("realtimeqa_poisoned", "poisonedrag_nq", "poisonedrag_msmarco"):
        found: list[Problem] = []
        summary = check(open_source(folder / f"{name}.jsonl"), found.append)
        assert (summary.rows, summary.bad, summary.errors, summary.planted) == (100, 0, 0, 100)
        assert summary.notes == []
        warnings[name] = [problem.line for problem in found]
    assert warnings == {"realtimeqa_poisoned": [20, 38, 72], "poisonedrag_nq": [49], "poisonedrag_msmarco": []}


@pytest.mark.parametrize("poisoned", range(6))
def test_realtimeqa_at_every_level_of_poison(poisoned: int, folder: Path) -> None:
    found = open_set(f"{folder}/realtimeqa_poisoned.jsonl?poisoned={poisoned}")
    assert found.name == f"realtimeqa_poisoned?poisoned={poisoned}&k=5"
    assert {(len(item.passages or ()), len(item.poisoned)) for item in found.items} == {(5, poisoned)}
    assert len({passage.id for item in found.items for passage in item.passages or ()}) > 490


def test_realtimeqa_has_all_of_its_snippets_and_poison(folder: Path) -> None:
    found = open_set(f"{folder}/realtimeqa_poisoned.jsonl?poisoned=5&k=17&choices=yes")
    assert {(len(item.passages or ()), len(item.poisoned)) for item in found.items} == {(17, 5)}
    assert sorted({len(item.question.options) for item in found.items}) == [4, 5]
    expanded = open_set(f"{folder}/realtimeqa_poisoned.jsonl?answers=expanded")
    assert sum(len(item.answers) for item in found.items) == 100
    assert sum(len(item.answers) for item in expanded.items) == EXPANDED


def poison_of(found: QuestionSet) -> list[str]:
    return [passage.text for item in found.items for passage in sorted(item.passages or (), key=lambda each: each.text)]


def test_the_texts_are_unchanged(folder: Path) -> None:
    digests = {
        name: hashed(poison_of(open_set(f"{folder}/{name}.jsonl?poisoned=5")))
        for name in ("realtimeqa_poisoned", "poisonedrag_nq", "poisonedrag_msmarco")
    }
    assert digests == DIGESTS
