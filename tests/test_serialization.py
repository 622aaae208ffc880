from __future__ import annotations

import hashlib
import json
import re

import pytest

from arbitrag.serialization import from_plain, json_digest, parse_json, parse_together, to_plain
from arbitrag.types import Candidate, Cut, Decision, Dropped, Passage, Question, Strategy, Usage, Verdict

PASSAGE = Passage("It rained.", "p1", "Weather", "w.md", 3, 40, 1.5, "2024-01-02", {"lang": "en"})
VERDICT = Verdict(
    "rain",
    Strategy.EVIDENCE,
    "why",
    Question("What fell?", ("rain", "snow"), "q1"),
    "trustmargin",
    (Candidate("snow", Strategy.MEMORY), Candidate("rain", Strategy.EVIDENCE, ("p1",), {"q": -1.0})),
    (PASSAGE,),
    (Dropped(PASSAGE, "beyond the token limit"),),
    (Cut("p1", 5, 9),),
    {"prior": -1.0},
    (Decision("margin", "a > b", {"a": 1}, "evidence"),),
    ("a note",),
    Usage(generations=2, seconds=0.5, money=0.01),
)


def test_a_verdict_survives_json() -> None:
    assert from_plain(Verdict, json.loads(json.dumps(VERDICT.to_dict()))) == VERDICT


def test_a_refusal_survives_json() -> None:
    refusal = Verdict(None, Strategy.REFUSE, "nothing to say")
    assert from_plain(Verdict, json.loads(json.dumps(refusal.to_dict()))) == refusal


@pytest.mark.parametrize(
    ("plain", "message"),
    [
        ({"text": "x", "titel": "y"}, "'titel' is not known; did you mean 'title'?"),
        ({"text": "x", "zzz": "y"}, "'zzz' is not known"),
        ({"text": "x", "embedding": [1.0]}, "'embedding' is not known"),
        ({"title": "x"}, "'text' is missing"),
        ({"text": 5}, "'text' is a whole number; expected a string"),
        ({"text": None}, "'text' is null; expected a string"),
        ({"text": "x", "line": 1.5}, "'line' is a number; expected a whole number"),
        ({"text": "x", "line": True}, "'line' is true or false; expected a whole number"),
        ({"text": "x", "score": "high"}, "'score' is a string; expected a number"),
        ({"text": "x", "metadata": {"year": 1999}}, "'metadata.year' is a whole number; expected a string"),
        ({"text": "x", "metadata": []}, "'metadata' is a list; expected an object"),
        (["x"], "is a list; expected an object"),
    ],
)
def test_a_passage_of_another_shape_is_refused(plain: object, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        from_plain(Passage, plain)


def test_whole_numbers_stand_for_numbers_and_null_for_nothing() -> None:
    passage = from_plain(Passage, {"text": "x", "score": 2, "line": None})
    assert passage == Passage("x", score=2.0)
    assert isinstance(passage.score, float)


def test_choices_are_named_when_none_fits() -> None:
    plain = to_plain(Candidate("x", Strategy.MEMORY))
    with pytest.raises(ValueError, match=r"'origin' is 'memmory'; expected one of both, memory, evidence, refuse"):
        from_plain(Candidate, {**plain, "origin": "memmory"})
    with pytest.raises(ValueError, match=r"'origin' is a whole number; expected one of both"):
        from_plain(Candidate, {**plain, "origin": 1})


def test_the_place_of_a_wrong_item_is_named() -> None:
    with pytest.raises(ValueError, match=r"'options\[1\]' is a whole number; expected a string"):
        from_plain(Question, {"text": "q", "options": ["a", 2]})


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", '{"a": -Infinity}', "[" * 100_000, "{", "", "-1e999"])
def test_only_json_is_json(text: str) -> None:
    with pytest.raises(ValueError, match=r"not JSON|nested|Expecting"):
        parse_json(text)


def test_a_whole_number_that_no_float_holds_is_told() -> None:
    with pytest.raises(ValueError, match="'score' is a number of 401 digits"):
        from_plain(Passage, {"text": "x", "score": 10**400})


def test_a_digest_is_that_of_the_json() -> None:
    expected = hashlib.sha256(b'[{"text": "q", "options": ["\\u00e9"], "id": ""}]').hexdigest()
    assert json_digest((Question("q", ("é",)),)) == expected


def test_several_texts_are_parsed_as_one_list() -> None:
    assert parse_together([b'{"a": "\xc3\xa9"}', b"[1]"]) == [{"a": "é"}, [1]]
    assert parse_together([]) == []
    with pytest.raises(ValueError, match="Expecting value"):
        parse_together([b"1", b""])
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_together([b"[" * 100_000])


def test_fields_that_are_not_json_are_neither_written_nor_read() -> None:
    assert not {"embedding", "embedded_by"} & to_plain(Passage("x", embedded_by="e")).keys()
    assert "trace" not in VERDICT.to_dict()
    with pytest.raises(ValueError, match=r"'kept\[0\].embedded_by' is not known"):
        from_plain(Verdict, {**VERDICT.to_dict(), "kept": [{"text": "x", "embedded_by": "e"}]})


def test_the_path_leads_through_lists_and_mappings() -> None:
    plain = VERDICT.to_dict()
    plain["candidates"][1]["likelihoods"]["q"] = "high"
    with pytest.raises(ValueError, match=r"^'verdict.candidates\[1\].likelihoods.q' is a string; expected a number$"):
        from_plain(Verdict, plain, "verdict")
