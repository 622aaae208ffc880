"""The values that travel."""

from __future__ import annotations

import dataclasses
import inspect
import json
from dataclasses import replace
from typing import Any

import pytest

from arbitrag import types
from arbitrag.serialization import to_plain
from arbitrag.types import (
    Candidate,
    Cut,
    Decision,
    Need,
    Passage,
    Question,
    Strategy,
    Usage,
    Verdict,
    distinct_passages,
)


@pytest.mark.parametrize(
    ("needs", "words"),
    [
        (Need(0), "nothing"),
        (Need.SCORE, "score"),
        (Need.GENERATE | Need.SCORE, "generate and score"),
        (Need.GENERATE | Need.SCORE | Need.NEXT_TOKEN, "generate, score and next token"),
    ],
)
def test_needs_in_words(needs: Need, words: str) -> None:
    assert needs.names() == words


@pytest.mark.parametrize(
    ("passage", "place"),
    [
        (Passage("t", id="7", source="films/a.md", line=12), "films/a.md:12"),
        (Passage("t", id="7", source="films/a.md"), "films/a.md"),
        (Passage("t", id="7", line=12), "7"),
        (Passage("t", id="7", source="a.pdf", metadata={"page": "3"}), "a.pdf, page 3"),
        (Passage("t", id="7", source="a.pptx", metadata={"slide": "12"}), "a.pptx, slide 12"),
        (Passage("t", id="7", source="a.xlsx", metadata={"sheet": "Costs"}), "a.xlsx, sheet Costs"),
        (Passage("t", id="7", source="a.jsonl", line=3, metadata={"page": "8"}), "a.jsonl:3"),
        (Passage("t", id="7", metadata={"page": "8"}), "7"),
        (Passage("t", source="a", metadata={"page": "x" * 40}), f"a, page {'x' * 40}"),
        (Passage("t", source="a", metadata={"page": "x" * 41}), "a"),
        (Passage("t"), ""),
    ],
)
def test_the_place_of_a_passage(passage: Passage, place: str) -> None:
    assert passage.place == place


@pytest.mark.parametrize(("answer", "strategy"), [(None, Strategy.MEMORY), ("Paris", Strategy.REFUSE)])
def test_a_verdict_has_an_answer_unless_it_refuses(answer: str | None, strategy: Strategy) -> None:
    with pytest.raises(ValueError, match="a verdict has an answer unless it refuses"):
        Verdict(answer, strategy, "")


def test_a_verdict_as_json() -> None:
    passage = Passage("text", id="p1", line=3, metadata={"lang": "en"})
    verdict = Verdict(
        "Mira",
        Strategy.MEMORY,
        "because",
        Question("Who?", ("Mira", "Oskar"), "q1"),
        "trustmargin",
        candidates=(Candidate("Mira", Strategy.MEMORY),),
        kept=(passage,),
        cuts=(Cut("p1", 3, 5),),
        scores={"margin": -4.5},
        decisions=(Decision("margin", "rule", {"prior": -4.0}, "memory"),),
        usage=Usage(calls=2, money=0.5),
        trace=object(),
    )
    plain = json.loads(json.dumps(verdict.to_dict()))
    assert "trace" not in plain
    assert plain["strategy"] == "memory"
    assert plain["question"] == {"text": "Who?", "options": ["Mira", "Oskar"], "id": "q1"}
    assert plain["kept"][0]["metadata"] == {"lang": "en"}
    assert plain["cuts"] == [{"passage_id": "p1", "tokens_kept": 3, "tokens": 5}]
    assert plain["scores"] == {"margin": -4.5}
    assert plain["usage"]["money"] == 0.5
    assert plain["decisions"][0]["inputs"] == {"prior": -4.0}


@pytest.mark.parametrize("value", [object(), {1, 2}, b"bytes", Verdict, [lambda: 1]])
def test_what_is_not_plain_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="is not a plain value"):
        to_plain(value)


def test_plain_values_pass() -> None:
    assert to_plain({"a": (1, 2.5, None, True), 3: Strategy.BOTH}) == {"a": [1, 2.5, None, True], "3": "both"}


def test_every_value_is_a_frozen_dataclass_with_slots() -> None:
    kinds = [kind for _, kind in inspect.getmembers(types, inspect.isclass) if dataclasses.is_dataclass(kind)]
    assert len(kinds) >= 8
    for kind in kinds:
        assert kind.__dataclass_params__.frozen  # type: ignore[attr-defined]
        assert "__slots__" in vars(kind)


def test_copies_of_a_passage_share_its_identity() -> None:
    named, moved = Passage("a", id="1", source="x"), Passage("b", id="1", source="y")
    assert named.identity == moved.identity == "1"
    bare = Passage("a", source="x", offset=3)
    assert bare.identity == replace(bare, title="t", score=1.0).identity
    assert len({each.identity for each in (bare, Passage("b", "", "", "x", 1, 3), replace(bare, offset=4))}) == 3


def test_of_copies_the_first_stays() -> None:
    first, other, copy = Passage("a", id="1", score=2.0), Passage("a"), Passage("a", id="1", score=1.0)
    assert distinct_passages([first, other, copy, other]) == (first, other)


def test_a_strategy_says_in_a_word_what_was_trusted() -> None:
    assert [each.trusted for each in Strategy] == ["both", "memory", "evidence", "neither"]
