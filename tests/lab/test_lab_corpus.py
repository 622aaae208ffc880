"""Documents and questions of the world: what is in them, and that no label is."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from pathlib import Path

import pytest

from arbitrag.data.asking import questions_to_ask
from arbitrag.errors import DataError, UsageError
from arbitrag.lab.corpus import Corpus, Recipe, document_row, write_corpus
from arbitrag.lab.questions import KINDS, gold_row, question_row, questions
from arbitrag.lab.world import PRESENT, Fact, World
from arbitrag.storage.jsonl import read_passages

WORLD = World(7)
RECIPE = Recipe(size=8000, seed=1, poisons=0.1)
CORPUS = list(Corpus(WORLD, RECIPE))


def test_the_counts_are_as_asked() -> None:
    counts = Counter(label.kind for _, label in CORPUS)
    assert counts == Corpus(WORLD, RECIPE).counts
    assert counts == {"fact": 4440, "alias": 1069, "outdated": 287, "poison": 444, "copy": 400, "stranger": 1360}
    plain = Corpus(WORLD, Recipe(6000, copies=0.0, outdated=False)).counts
    assert plain == {"fact": 4440, "alias": 1069, "outdated": 0, "poison": 0, "copy": 0, "stranger": 491}


def test_every_present_fact_is_told_once_and_strangers_are_none() -> None:
    facts = [label.fact for _, label in CORPUS if label.kind == "fact"]
    assert Counter(facts) == Counter(WORLD.current)
    assert {label.fact for _, label in CORPUS if label.kind == "outdated"} == set(WORLD.evolved)
    strangers = [label.fact for _, label in CORPUS if label.kind == "stranger"]
    assert not {fact.subject for fact in strangers} & set(WORLD.kinds)
    told = {(fact.subject, fact.relation) for fact in strangers}
    assert len(set(strangers)) == len(told), "a stranger has one object for a relation"


def test_a_document_says_what_its_label_says() -> None:
    for passage, label in CORPUS:
        name, alias = label.fact.subject, label.fact.object
        names = [name, *WORLD.aliases_of.get(name, ())]
        assert passage.title == name
        assert any(each in passage.text for each in names)
        assert alias in passage.text


def test_copies_are_word_for_word_or_told_again() -> None:
    originals = {label.fact: passage.text for passage, label in CORPUS if label.kind == "fact"}
    copies = [(passage, label) for passage, label in CORPUS if label.kind == "copy"]
    assert all(label.fact in originals for _, label in copies)
    equal = sum(originals[label.fact] == passage.text for passage, label in copies) / len(copies)
    assert 0.5 <= equal <= 0.65
    assert any(label.fact.subject not in passage.text for passage, label in copies), "some use another name"


def test_poisons_are_wrong_and_of_the_right_type() -> None:
    truth = {(fact.subject, fact.relation): fact for fact in WORLD.current}
    for _, label in CORPUS:
        if label.kind == "poison":
            right = truth[label.fact.subject, label.fact.relation]
            assert right.object != label.fact.object
            assert WORLD.names.fits(right.form.object, label.fact.object)


def test_nothing_in_a_document_tells_its_kind() -> None:
    """Ids go by place, places are random, and sources are drawn alike for every kind."""
    rows = [document_row(passage) for passage, _ in CORPUS]
    assert [row["id"] for row in rows] == [f"p{number:07}" for number in range(1, 8001)]
    assert all(row.keys() == {"id", "title", "text", "source", "date"} for row in rows)
    assert not any(word in json.dumps(row) for row in rows for word in ("poison", "stranger", "outdated"))
    first_half = Counter(label.kind for _, label in CORPUS[:4000])
    assert first_half["poison"] == pytest.approx(222, abs=45)
    for kind in ("fact", "poison", "stranger"):
        sources = Counter(passage.source.split("/")[0] for passage, label in CORPUS if label.kind == kind)
        assert len(sources) == 6
        assert min(sources.values()) > 0.1 * sum(sources.values())


def test_dates_lie_where_the_fact_was_true() -> None:
    for passage, label in CORPUS:
        year, month, day = map(int, passage.date.split("-"))
        assert (1960 <= year <= PRESENT, 1 <= month <= 12, 1 <= day <= 28) == (True, True, True)
        if label.kind in ("fact", "copy"):
            assert year >= WORLD.since[label.fact]
        if label.kind == "outdated":
            assert WORLD.since[label.fact] <= year < WORLD.since[WORLD.evolved[label.fact]]


def test_the_same_seed_gives_the_same_bytes(tmp_path: Path) -> None:
    steps: list[tuple[int, int]] = []
    for name in ("a", "b"):
        write_corpus(
            Corpus(WORLD, RECIPE),
            tmp_path / name,
            labels=tmp_path / f"{name}.labels",
            progress=lambda done, total, note: steps.append((done, total)),
        )
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert (tmp_path / "a.labels").read_bytes() == (tmp_path / "b.labels").read_bytes()
    assert steps[:8] == [(done, 8000) for done in range(1000, 8001, 1000)]
    digest = hashlib.sha256((tmp_path / "a").read_bytes()).hexdigest()
    assert digest == CORPUS_DIGEST
    assert next(iter(Corpus(WORLD, Recipe(8000, seed=2, poisons=0.1)))) != CORPUS[0]
    assert read_passages(tmp_path / "a")[0].text == CORPUS[0][0].text
    label = json.loads((tmp_path / "a.labels").read_text().splitlines()[0])
    assert Fact(label["subject"], label["relation"], label["object"]) == CORPUS[0][1].fact


CORPUS_DIGEST = "876fb0098c8341699ce673cb6e9ff026953759744afd45d9218d9a75ba2d3c89"


def test_a_corpus_that_cannot_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"of 5,000 documents is too small: .* are 6,046; ask for a larger one"):
        Corpus(WORLD, Recipe(5000))
    assert Corpus(WORLD, Recipe(6101)).counts["stranger"] == 0
    with pytest.raises(UsageError, match=r"poisons is 1\.5; it is a share from 0 to 1"):
        Corpus(WORLD, Recipe(poisons=1.5))
    with pytest.raises(UsageError, match="copies is nan"):
        Corpus(WORLD, Recipe(copies=float("nan")))
    with pytest.raises(DataError, match="does not exist"):
        write_corpus(Corpus(WORLD, RECIPE), tmp_path / "no" / "file")
    assert list(tmp_path.iterdir()) == []


def test_questions_of_every_kind_with_their_answers() -> None:
    found = questions(WORLD, 402, seed=5)
    assert Counter(each.kind for each in found) == {"known": 101, "evolved": 101, "late": 100, "multi-hop": 100}
    assert [each.id for each in found] == [f"q{number:05}" for number in range(1, 403)]
    assert len({each.question for each in found}) >= 400
    assert found == questions(WORLD, 402, seed=5)
    assert found != questions(WORLD, 402, seed=6)
    for each in found:
        first, last = each.facts[0], each.facts[-1]
        assert each.answers == (last.object, *WORLD.aliases_of.get(last.object, ()))
        assert first.subject in each.question
        assert len(each.facts) == 1 + (each.kind == "multi-hop")
        assert (each.outdated is not None) == (each.kind == "evolved")
        if each.kind != "multi-hop":
            assert WORLD.status(first) == ("known" if each.kind == "known" else "late")
        else:
            assert first.object not in each.question


def test_gold_rows_hold_what_an_evaluation_needs() -> None:
    evolved = questions(WORLD, 3, kinds=["evolved"])[0]
    assert question_row(evolved) == {"id": "q00001", "question": evolved.question}
    row = gold_row(evolved, WORLD)
    (new,) = evolved.facts
    old = WORLD.outdated[new]
    assert row["outdated"] == old.object
    assert row["quarter"] == WORLD.quarter(old)
    assert row["facts"] == [
        {"subject": new.subject, "relation": new.relation, "object": new.object, "since": WORLD.since[new]}
    ]
    assert gold_row(questions(WORLD, 1, kinds=["late"])[0], WORLD)["quarter"] is None


def test_questions_that_cannot_be_are_refused() -> None:
    with pytest.raises(UsageError, match=r"unknown kind of question 'multihop'\. Did you mean 'multi-hop'"):
        questions(WORLD, 1, kinds=["multihop"])
    with pytest.raises(UsageError, match="288 questions of the kind evolved were asked for; world 7 has 287"):
        questions(WORLD, 288, kinds=["evolved"])
    assert len(questions(WORLD, 287, kinds=["evolved"])) == 287
    with pytest.raises(UsageError, match="0 questions"):
        questions(WORLD, 0)
    assert KINDS == ("known", "evolved", "late", "multi-hop")


def test_questions_read_as_questions(tmp_path: Path) -> None:
    path = tmp_path / "questions.jsonl"
    found = questions(WORLD, 8)
    path.write_text("".join(json.dumps(question_row(each)) + "\n" for each in found))
    asked = questions_to_ask(path).questions
    assert [(each.id, each.text) for each in asked] == [(each.id, each.question) for each in found]
