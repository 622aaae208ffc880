"""Passages with a given number of poisoned ones, and nothing beside the text that tells which they are."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from arbitrag.data import open_set
from arbitrag.data.mixtures import Mixture, named
from arbitrag.errors import DataError, UsageError
from arbitrag.types import Passage

CLEAN = [Passage(f"Clean text {number}.") for number in range(6)]
POISON = [Passage(f"Poison text {number}.") for number in range(5)]


@pytest.mark.parametrize("poisoned", range(6))
def test_as_many_as_asked_for(poisoned: int) -> None:
    mixed = Mixture(poisoned, 5).of(CLEAN, POISON, "q1")
    texts = [passage.text for passage in mixed.passages]
    assert len(texts) == len(set(texts)) == 5
    assert [text for text in sorted(texts) if text.startswith("Clean")] == [
        f"Clean text {number}." for number in range(5 - poisoned)
    ]  # the first of the search, whatever their places
    assert {passage.text for passage in mixed.passages if passage.id in mixed.poisoned} == {
        text for text in texts if text.startswith("Poison")
    }
    assert len(mixed.poisoned) == poisoned


def test_equal_settings_give_equal_passages_and_a_seed_others() -> None:
    mixed = [Mixture(2, 5, seed).of(CLEAN, POISON, "q1") for seed in (0, 0, 1)]
    assert mixed[0] == mixed[1] != mixed[2]
    assert Mixture(2, 5).of(CLEAN, POISON, "q2") != mixed[0]


def test_more_poison_is_the_same_and_more() -> None:
    chosen = [
        {passage.text for passage in mixed.passages if passage.id in mixed.poisoned}
        for mixed in (Mixture(poisoned, 5).of(CLEAN, POISON, "q1") for poisoned in range(6))
    ]
    assert all(fewer < more for fewer, more in pairwise(chosen))


def test_poison_stands_everywhere_about_as_often() -> None:
    places: Counter[int] = Counter()
    texts: Counter[str] = Counter()
    for number in range(1000):
        mixed = Mixture(1, 5).of(CLEAN, POISON, f"q{number}")
        (place,) = (place for place, passage in enumerate(mixed.passages) if passage.id in mixed.poisoned)
        places[place] += 1
        texts[mixed.passages[place].text] += 1
    # 200 are expected of each of five, with a standard deviation of 12.6
    assert set(places) == set(range(5))
    assert all(150 < count < 250 for count in (*places.values(), *texts.values()))


def test_an_id_says_what_the_text_is_and_nothing_else() -> None:
    clean, poison = named(CLEAN), named(POISON)
    assert all(re.fullmatch(r"[0-9a-f]{12}", passage.id) for passage in (*clean, *poison))
    again = named([*reversed(POISON), *CLEAN])
    assert {passage.text: passage.id for passage in again} == {
        passage.text: passage.id for passage in (*clean, *poison)
    }
    given = [replace(passage, id=f"poison-{number}") for number, passage in enumerate(POISON)]
    assert named(given) == poison


def test_the_order_of_ids_does_not_follow_the_poison() -> None:
    first = 0
    for number in range(400):
        clean = [Passage(f"{passage.text} {number}") for passage in CLEAN]
        mixed = Mixture(1, 5).of(clean, [Passage(f"Poison {number}.")], "q")
        first += min(passage.id for passage in mixed.passages) in mixed.poisoned
    assert 50 < first < 110  # 80 are expected, with a standard deviation of 8


def test_equal_texts_have_different_ids() -> None:
    ids = [passage.id for passage in named([Passage("a"), Passage("a"), Passage("a", title="T")])]
    assert len(set(ids)) == 3


@pytest.mark.parametrize(("poisoned", "k"), [(-1, 5), (6, 5), (0, 0)])
def test_numbers_that_cannot_be(poisoned: int, k: int) -> None:
    with pytest.raises(UsageError, match=f"poisoned={poisoned} of k={k} passages; give k from 1, and poisoned from 0"):
        Mixture(poisoned, k)


def test_too_few_of_either() -> None:
    with pytest.raises(ValueError, match=r"poisoned=1&k=8 takes 7 clean passages; here are 6"):
        Mixture(1, 8).of(CLEAN, POISON, "q")
    with pytest.raises(ValueError, match=r"poisoned=6 takes as many poisoned passages; here are 5"):
        Mixture(6, 8).of(CLEAN, POISON, "q")


# Each format with one made-up row.

OWN = {
    "id": "q1",
    "question": "Which town?",
    "answers": ["Ardenfall"],
    "wrong_answer": "Brackwater",
    "passages": [
        {"text": f"Text {number}.", "id": f"poison-{number}" if number > 3 else str(number)} for number in range(6)
    ],
    "poisoned": ["poison-4", "poison-5"],
}
REALTIMEQA = {
    "id": "rt-1",
    "question": "Which town?",
    "answers": ["Ardenfall"],
    "answers_expanded": ["Ardenfall town"],
    "wrong_answer": "Brackwater",
    "choices": ["Coldmere", "Ardenfall"],
    "choice_index": 1,
    "clean": [{"title": "News", "text": f"Ardenfall, {number}.", "url": None} for number in range(6)],
    "poisoned": [f"Brackwater, {number}." for number in range(5)],
}
POISONEDRAG = {key: REALTIMEQA[key] for key in ("id", "question", "answers", "wrong_answer", "poisoned")}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "set.jsonl"


def opened(file: Path, row: dict[str, Any], query: str = "") -> Any:
    file.write_text(json.dumps(row) + "\n")
    found = open_set(f"{file}?{query}" if query else file)
    return found.name, found.items[0]


@pytest.mark.parametrize(
    ("row", "query", "name", "passages", "poisoned"),
    [
        (OWN, "", "set", 6, 2),
        (OWN, "k=5", "set?k=5", 5, 1),  # the first five, in their order
        (OWN, "k=0", "set?k=0", 0, 0),
        (OWN, "poisoned=2", "set?poisoned=2", 5, 2),
        (OWN, "poisoned=0&k=4&seed=3", "set?k=4&poisoned=0&seed=3", 4, 0),
        (REALTIMEQA, "", "set?poisoned=1&k=5", 5, 1),
        (REALTIMEQA, "poisoned=0", "set?poisoned=0&k=5", 5, 0),
        (REALTIMEQA, "poisoned=5", "set?poisoned=5&k=5", 5, 5),
        (REALTIMEQA, "poisoned=5&k=11", "set?poisoned=5&k=11", 11, 5),
        (POISONEDRAG, "", "set?poisoned=5", 5, 5),
        (POISONEDRAG, "poisoned=2&k=2", "set?poisoned=2&k=2", 2, 2),
        (POISONEDRAG, "poisoned=0", "set?poisoned=0", None, 0),
    ],
)
def test_options_of_an_address(
    row: dict[str, Any], query: str, name: str, passages: int | None, poisoned: int, file: Path
) -> None:
    found, item = opened(file, row, query)
    assert found == name
    assert (None if item.passages is None else len(item.passages), len(item.poisoned)) == (passages, poisoned)
    assert item.planted == ("Brackwater",)
    assert all(
        passage.text.startswith(("Brack", "Text 4", "Text 5"))
        for passage in item.passages or ()
        if passage.id in item.poisoned
    )
    assert item.scenario is None


def test_own_passages_keep_their_order_and_lose_their_names(file: Path) -> None:
    _, item = opened(file, OWN)
    assert [passage.text for passage in item.passages] == [f"Text {number}." for number in range(6)]
    assert [passage.id in item.poisoned for passage in item.passages] == [False] * 4 + [True] * 2
    assert all(re.fullmatch(r"[0-9a-f]{12}", passage.id) for passage in item.passages)


def test_realtimeqa_answers_and_choices(file: Path) -> None:
    _, item = opened(file, REALTIMEQA)
    assert (item.answers, item.question.options) == (("Ardenfall",), ())
    name, item = opened(file, REALTIMEQA, "answers=expanded&choices=yes")
    assert name == "set?poisoned=1&k=5&answers=expanded&choices=yes"
    assert (item.answers, item.question.options) == (("Ardenfall", "Ardenfall town"), ("Coldmere", "Ardenfall"))


def test_realtimeqa_says_nothing_beside_the_text(file: Path) -> None:
    _, item = opened(file, REALTIMEQA, "poisoned=2")
    assert {(each.title, each.source, each.date, each.line, each.score) for each in item.passages} == {
        ("", "", "", None, None)
    }


@pytest.mark.parametrize(
    ("row", "query", "message"),
    [
        (OWN, "k=x", r"k is a whole number; got 'x'"),
        (OWN, "k=1.5", r"k is a whole number; got '1\.5'"),
        (OWN, "k=-1", r"k=-1; give a number from 0"),
        (OWN, "k=2&k=3", "the option k is given twice"),
        (OWN, "poisond=1", r"unknown option of .*set\.jsonl 'poisond'\. Did you mean 'poisoned'\?"),
        (OWN, "choices=yes", r"unknown option of .* 'choices'"),
        (REALTIMEQA, "choices=maybe", "choices is one of yes, no; got 'maybe'"),
        (POISONEDRAG, "poisoned=1&k=5", "takes clean passages, and the files of PoisonedRAG have none; leave k out"),
        (POISONEDRAG, "poisoned=-1", "poisoned=-1; give a number from 0"),
    ],
)
def test_an_option_that_cannot_be(row: dict[str, Any], query: str, message: str, file: Path) -> None:
    with pytest.raises(UsageError, match=message):
        opened(file, row, query)


@pytest.mark.parametrize(
    ("row", "query", "message"),
    [
        (OWN, "poisoned=3", "line 1: poisoned=3 takes as many poisoned passages; here are 2"),
        (OWN, "poisoned=0&k=5", "line 1: poisoned=0&k=5 takes 5 clean passages; here are 4"),
        (POISONEDRAG, "poisoned=6", "line 1: poisoned=6 takes as many poisoned passages; here are 5"),
        ({**REALTIMEQA, "choice_index": 2}, "", "line 1: 'choice_index' is 2; there are 2 choices, counted from 0"),
        ({**REALTIMEQA, "choice_index": 0}, "", "line 1: the choice 0, 'Coldmere', is not among the answers"),
        ({**REALTIMEQA, "answers": []}, "", "line 1: there are no answers"),
        ({**POISONEDRAG, "answer": "b"}, "", r"line 1: 'answer' is not known; did you mean 'answers'\?"),
        ({**POISONEDRAG, "id": ""}, "", "line 1: 'id' is empty"),
    ],
)
def test_a_row_that_cannot_be(row: dict[str, Any], query: str, message: str, file: Path) -> None:
    with pytest.raises(DataError, match=message):
        opened(file, row, query)


def test_a_file_with_a_question_mark_in_its_name(tmp_path: Path) -> None:
    name, item = opened(tmp_path / "who?k=1.jsonl", OWN)
    assert (name, len(item.passages)) == ("who?k=1", 6)
    assert len(open_set(f"{tmp_path}/who?k=1.jsonl?k=2").items[0].passages or ()) == 2
