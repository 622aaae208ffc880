"""Which documents answer a question of the world."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from arbitrag.lab.corpus import Corpus, Label, Recipe
from arbitrag.lab.questions import LabQuestion, questions
from arbitrag.lab.relevance import Relevant, relevant, relevant_row
from arbitrag.lab.world import Fact, World

if TYPE_CHECKING:
    from tests.conftest import Command

WORLD = World(7)
CORPUS = list(Corpus(WORLD, Recipe(size=8000, poisons=0.2)))
TEXTS = {passage.id: passage.text for passage, _ in CORPUS}
KINDS = {label.id: label.kind for _, label in CORPUS}
ASKED = questions(WORLD, 400)
FOUND = relevant((label for _, label in CORPUS), ASKED)


def test_every_fact_is_told_by_its_document_and_its_copies_alone() -> None:
    assert [each.question for each in FOUND] == ASKED
    copies = 0
    for each in FOUND:
        assert len(each.by_hop) == (2 if each.question.kind == "multi-hop" else 1)
        for fact, ids in zip(each.question.facts, each.by_hop, strict=True):
            kinds = [KINDS[one] for one in ids]
            assert kinds.count("fact") == 1
            assert set(kinds) <= {"fact", "copy"}
            assert all(fact.object in TEXTS[one] for one in ids)
            copies += kinds.count("copy")
    assert copies > 20


def test_the_documents_of_both_facts_are_needed() -> None:
    first, second = Fact("A", "coach", "B"), Fact("B", "birthplace", "C")
    question = LabQuestion("q1", "Where was the coach of the A born?", ("C",), "multi-hop", (first, second))
    labels = [
        Label("p1", "fact", second),
        Label("p2", "copy", first),
        Label("p3", "fact", first),
        Label("p4", "poison", first),
        Label("p5", "outdated", second),
        Label("p6", "stranger", Fact("A", "home", "C")),
    ]
    (found,) = relevant(labels, [question])
    assert found == Relevant(question, (("p2", "p3"), ("p1",)))
    assert found.ids == ("p2", "p3", "p1")
    assert [found.complete(ids) for ids in (["p2", "p3"], ["p1"], ["p1", "p9", "p3"], [])] == [
        False,
        False,
        True,
        False,
    ]
    assert relevant_row(found) == {
        "id": "q1",
        "question": "Where was the coach of the A born?",
        "kind": "multi-hop",
        "hops": 2,
        "relevant": ["p2", "p3", "p1"],
        "by_hop": [["p2", "p3"], ["p1"]],
    }


def test_a_retrieval_task_is_written_by_one_command(command: Command, tmp_path: Path) -> None:
    out = tmp_path / "task"
    ran = command("lab", "retrieval", "--size", "7000", "--count", "80", "-o", out, "--json")
    assert ran.status == 0
    assert json.loads(ran.out)["two_hops"] == 20
    documents = [json.loads(line) for line in (out / "corpus.jsonl").read_text(encoding="utf-8").splitlines()]
    ids = {document["id"] for document in documents}
    assert len(ids) == len(documents) == 7000
    rows = [json.loads(line) for line in (out / "questions.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len(rows) == 80
    assert all(row["relevant"] and set(row["relevant"]) <= ids for row in rows)
    assert "answers" not in rows[0], "the right answer is in the documents, not beside the question"
    assert (out / "labels.jsonl").is_file()
    wrong = command("lab", "retrieval", "--size", "100", "-o", out)
    assert (wrong.status, wrong.err.count("\n")) == (2, 1)
    assert "a corpus of 100 documents is too small" in wrong.err
    version = command("lab", "retrieval", "--world-version", "9", "-o", out)
    assert "worlds of version 9 are not known here" in version.err
