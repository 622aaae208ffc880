"""Natural Questions, TAQA and Wikidata in their own formats, with made-up content."""

from __future__ import annotations

import bz2
import gzip
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from arbitrag.data import open_set
from arbitrag.data.trd.build import build
from arbitrag.data.trd.draft import Recipe
from arbitrag.data.trd.nq import nq_facts
from arbitrag.data.trd.taqa import taqa_facts
from arbitrag.data.trd.wikidata import Entities, read_wikidata
from arbitrag.data.trd.wikipedia import Paragraphs, Sources, wikipedia_material
from arbitrag.errors import DataError, UsageError
from arbitrag.llm.base import Prompt
from arbitrag.testing import ScriptedLLM, prompt_text
from arbitrag.types import Passage

PEOPLE = ["Mira Tolvanen", "Jon Abelard", "Ada Vesk", "Olo Brandt", "Ines Kallio", "Per Holm"]
CUTOFF = "2023-02"


def item(number: int, label: str, *, claims: dict[str, Any] | None = None, links: int = 1) -> dict[str, Any]:
    return {
        "type": "item",
        "id": f"Q{number}",
        "labels": {"en": {"language": "en", "value": label}, "fi": {"language": "fi", "value": "x"}},
        "aliases": {"en": [{"language": "en", "value": f"{label} the Elder"}, {"language": "en", "value": "MT"}]},
        "claims": claims or {},
        "sitelinks": {f"w{n}": {"site": f"w{n}", "title": label, "badges": []} for n in range(links)},
    }


def to_item(name: str, number: int, rank: str = "normal", *, old: bool = False) -> dict[str, Any]:
    value = {"entity-type": "item", "numeric-id": number} | ({} if old else {"id": f"Q{number}"})
    snak = {"snaktype": "value", "property": name, "datavalue": {"value": value, "type": "wikibase-entityid"}}
    return {"mainsnak": snak, "type": "statement", "rank": rank}


def to_time(name: str, time: str, precision: int) -> dict[str, Any]:
    value = {"time": time, "precision": precision, "timezone": 0}
    snak = {"snaktype": "value", "property": name, "datavalue": {"value": value, "type": "time"}}
    return {"mainsnak": snak, "type": "statement", "rank": "normal"}


def museum(number: int, label: str, opened: dict[str, Any], head: int) -> dict[str, Any]:
    claims = {"P31": [to_item("P31", 33)], "P571": [opened], "P1037": [to_item("P1037", head)]}
    return item(number, label, claims=claims)


def dump() -> list[dict[str, Any]]:
    human = [item(100 + n, name, claims={"P31": [to_item("P31", 5)]}, links=n) for n, name in enumerate(PEOPLE)]
    return [
        *human,
        museum(1, "Ardenfall Museum", to_time("P571", "+1931-00-00T00:00:00Z", 9), 100),
        museum(2, "Harbour House", to_time("P571", "+2024-05-00T00:00:00Z", 10), 102),
        museum(3, "Lantern Hall", to_time("P571", "+2023-02-19T00:00:00Z", 11), 103),
        item(5, "human"),
        {"type": "property", "id": "P1037", "labels": {"en": {"language": "en", "value": "director"}}, "claims": {}},
        {"type": "property", "id": "P31", "labels": {"en": {"language": "en", "value": "instance of"}}, "claims": {}},
        {"type": "item", "id": "Q900", "labels": {}, "claims": {}, "sitelinks": {}},
    ]


def wikidata(path: Path, rows: list[dict[str, Any]]) -> Path:
    text = "[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n"
    content = text.encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    if path.suffix == ".bz2":
        path.write_bytes(bz2.compress(content))
    return path


def nq(number: int, name: str, *, short: int = 1, long: bool = True) -> dict[str, Any]:
    tokens = f"<P> The Museum {number} was founded by {name} in spring . </P>".split(" ")
    start = tokens.index("by") + 1
    span = {"start_token": start, "end_token": start + 2}
    return {
        "example_id": number,
        "question_text": f"who founded the museum {number}",
        "document_url": f"https://en.wikipedia.org//w/index.php?title=Museum_{number}&amp;oldid=1",
        "document_text": " ".join(tokens),
        "long_answer_candidates": [{"start_token": 0, "end_token": len(tokens), "top_level": True}],
        "annotations": [
            {
                "annotation_id": 1,
                "long_answer": {"start_token": 0, "end_token": len(tokens), "candidate_index": 0}
                if long
                else {"start_token": -1, "end_token": -1, "candidate_index": -1},
                "short_answers": [span] * short,
                "yes_no_answer": "NONE",
            }
        ],
    }


def lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    text = "".join(json.dumps(row) + "\n" for row in rows)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.mark.parametrize("name", ["dump.json", "dump.json.gz", "dump.json.bz2"])
def test_a_dump_gives_typed_names_with_popularity_and_what_is_new(tmp_path: Path, name: str) -> None:
    found = read_wikidata(wikidata(tmp_path / name, dump()), CUTOFF)
    entity = found.entities.find("jon abelard the elder")
    assert entity is not None
    assert (entity.name, entity.type, entity.popularity) == ("Jon Abelard", "Q5", 1.0)
    assert entity.aliases == ("Jon Abelard the Elder",), "an alias of two letters could be anything"
    assert found.entities.find("human") is None, "without an instance-of there is no type"
    (triple,) = found.triples
    assert (triple.id, triple.subject, triple.property) == ("Q2-P1037-Q102", "Harbour House", "director")
    assert triple.object.name == "Ada Vesk"


def test_the_best_statements_count_and_old_dumps_are_read(tmp_path: Path) -> None:
    ranked = {"P31": [to_item("P31", 7, "deprecated"), to_item("P31", 8), to_item("P31", 9, "preferred", old=True)]}
    found = read_wikidata(wikidata(tmp_path / "d.json", [item(1, "Thing", claims=ranked)]), CUTOFF)
    assert [each.type for each in found.entities.all] == ["Q9"]
    dated = {"P31": [to_item("P31", 8)], "P571": [to_time("P571", "+2024-01-01T00:00:00Z", 11)]}
    for more, new in (([], True), ([to_time("P577", "-0044-03-15T00:00:00Z", 11)], False)):
        claims = dated | {"P577": more, "P50": [to_item("P50", 1)]}
        rows = [
            item(1, "Thing", claims=claims),
            {"type": "property", "id": "P50", "labels": {"en": {"value": "author"}}},
        ]
        assert len(read_wikidata(wikidata(tmp_path / "d.json", rows), CUTOFF).triples) == new


def test_a_natural_question_with_one_short_answer_is_a_fact(tmp_path: Path) -> None:
    entities = read_wikidata(wikidata(tmp_path / "d.json", dump()), CUTOFF).entities
    yes_no = nq(4, PEOPLE[0]) | {"annotations": []}
    rows = [nq(1, PEOPLE[0]), nq(2, PEOPLE[1], short=2), nq(3, "Nobody Known"), yes_no, nq(5, PEOPLE[2], long=False)]
    removed: Counter[str] = Counter()
    (fact,) = nq_facts(lines(tmp_path / "nq.jsonl.gz", rows), "FA", entities, removed)
    assert (fact.id, fact.subject, fact.answer, fact.type) == ("nq-1", "Museum 1", "Mira Tolvanen", "Q5")
    assert (fact.kind, fact.category, fact.questions) == ("stable", "FA", ("who founded the museum 1",))
    assert fact.passages == (Passage("The Museum 1 was founded by Mira Tolvanen in spring .", title="Museum 1"),)
    assert fact.aliases == ("Mira Tolvanen the Elder",)
    assert removed == {
        "Natural Questions: not one short answer in the long one": 1,
        "Natural Questions: the short answer is no entity with a type": 1,
        "Natural Questions: no long answer": 2,
    }


def test_a_question_of_taqa_is_a_change_after_the_cutoff(tmp_path: Path) -> None:
    entities = read_wikidata(wikidata(tmp_path / "d.json", dump()), CUTOFF).entities
    rows = [
        {
            "question": "Who?",
            "answer": {"2021": ["x"], "2022": [PEOPLE[1]], "2023": ["None"], "2024": [PEOPLE[0], "M"]},
        },
        {"question": "Same?", "answer": {"2022": [PEOPLE[1]], "2024": [PEOPLE[1].upper()]}},
        {"question": "Old?", "answer": {"2021": [PEOPLE[1]], "2022": [PEOPLE[0]]}},
        {"question": "Typeless?", "answer": {"2021": [PEOPLE[1]], "2024": ["Nobody Known"]}},
    ]
    removed: Counter[str] = Counter()
    (fact,) = taqa_facts(lines(tmp_path / "dev.jsonl", rows), "2022", entities, removed)
    assert (fact.answer, fact.aliases, fact.former, fact.kind) == (PEOPLE[0], ("M",), (PEOPLE[1],), "evolution")
    assert set(removed.values()) == {1}
    assert len(removed) == 3


def test_paragraphs_are_found_by_all_words_of_the_names() -> None:
    library = Paragraphs([Passage("Ada Vesk came."), Passage("Ada came.", title="Harbour House"), Passage("House Ada")])
    assert [each.text for each in library.having("Ada", "harbour house")] == ["Ada came."]
    assert library.having("Nobody") == []
    assert library.having() == []


def sources(folder: Path) -> Sources:
    train = [nq(number, PEOPLE[number % 6]) for number in range(1, 31)]
    dev = [nq(number, PEOPLE[number % 6]) for number in range(101, 161)]
    changed = [
        {"question": f"Who leads Club {number} now?", "answer": {"2021": [PEOPLE[number % 6]], "2024": [PEOPLE[1]]}}
        for number in range(60)
    ]
    told = [{"title": f"Club {number}", "text": f"Jon Abelard leads Club {number}."} for number in range(60)]
    told += [{"title": "Harbour House", "text": "Its director is Ada Vesk."}]
    return Sources(
        lines(folder / "nq-train.jsonl.gz", train),
        lines(folder / "nq-dev.jsonl", dev),
        [lines(folder / "taqa.jsonl", changed)],
        wikidata(folder / "wikidata.json.gz", dump()),
        lines(folder / "paragraphs.jsonl", told),
        CUTOFF,
    )


def curator(prompt: Prompt) -> str:
    """Knows what Natural Questions ask, and believes every passage."""
    text = prompt_text(prompt)
    if "<passage" in text:
        told = text.split("<passage")[1]
        return next(name for name in PEOPLE if name in told)
    question = text.split("Question: ")[1].split("\n")[0]
    if question.startswith("who founded"):
        return PEOPLE[int(question.split()[-1]) % 6]
    return "Nobody"


async def test_a_set_of_the_four_kinds_is_built(tmp_path: Path) -> None:
    material = wikipedia_material(sources(tmp_path))
    kinds = Counter((fact.kind, fact.category) for fact in material.facts)
    assert kinds == {("stable", "FA"): 30, ("stable", "FI"): 60, ("evolution", None): 50, ("perpetuation", None): 1}
    assert material.removed == {"TAQA: the answer did not change after the cutoff": 10}
    built = await build(material, [ScriptedLLM(curator)], Recipe(show_options=False), tmp_path / "set")
    counts = {category: sum(splits.values()) for category, splits in built.report["questions"].items()}
    assert counts == {"FA": 8, "FI": 25, "FE": 25, "RA": 25}
    items = [each for split in built.rows for each in open_set(tmp_path / "set" / f"{split}.jsonl").items]
    assert {each.group for each in items} == {"stable", "evolution", "perpetuation"}
    (new,) = (each for each in items if each.group == "perpetuation")
    assert new.question.text == "What is the director of Harbour House?"
    card = (tmp_path / "set" / "card.md").read_text()
    assert "- TAQA: the answer did not change after the cutoff: 10" in card
    assert "- wikidata.json.gz: " in card


def test_what_is_not_in_its_format_is_one_line(tmp_path: Path) -> None:
    given = sources(tmp_path)
    bad = tmp_path / "bad.jsonl"
    with pytest.raises(UsageError, match=r"--from wikipedia needs --wikidata, --taqa, --cutoff; see"):
        wikipedia_material(replace(given, wikidata=None, taqa=(), cutoff=""))
    lines(bad, [nq(1, PEOPLE[0]) | {"document_tokens": []}])
    original = json.loads(bad.read_text())
    del original["document_text"]
    lines(bad, [original])
    with pytest.raises(DataError, match=r"bad.jsonl line 1 is in the original format, with document_tokens; bring it"):
        wikipedia_material(replace(given, nq_dev=bad))
    lines(bad, [{"question": "Who?"}])
    with pytest.raises(DataError, match=r"bad.jsonl line 1 is not a simplified Natural Question: .*document_text"):
        wikipedia_material(replace(given, nq_dev=bad))
    with pytest.raises(DataError, match=r"bad.jsonl line 1 is not of TAQA: 'question' is a string"):
        wikipedia_material(replace(given, taqa=[bad]))
    lines(bad, [{"question": "Who?", "answer": {"spring": ["x"]}}])
    with pytest.raises(DataError, match=r"bad.jsonl line 1: 'answer' of 'spring' is not a list of answers by a year"):
        wikipedia_material(replace(given, taqa=[bad]))
    with pytest.raises(DataError, match=r"bad.jsonl line 1 is not an entity of a Wikidata dump"):
        wikipedia_material(replace(given, wikidata=bad))
    lines(bad, [item(5, "human")])
    with pytest.raises(DataError, match=r"has no item with an English label and an 'instance of', so no answer has a"):
        wikipedia_material(replace(given, wikidata=bad))
    bad.write_text("not json\n")
    with pytest.raises(DataError, match=r"bad.jsonl line 1: not valid JSON"):
        wikipedia_material(replace(given, wikidata=bad))
    cut = tmp_path / "cut.jsonl.gz"
    cut.write_bytes((tmp_path / "nq-train.jsonl.gz").read_bytes()[:-40])
    with pytest.raises(DataError, match=r"cut.jsonl.gz is cut short or damaged .*; fetch it again"):
        wikipedia_material(replace(given, nq_train=cut))
    with pytest.raises(DataError, match=r"none.jsonl cannot be read: No such file"):
        wikipedia_material(replace(given, nq_train=tmp_path / "none.jsonl"))


def test_the_more_popular_of_two_of_one_name_is_meant() -> None:
    from arbitrag.data.trd.material import Entity

    entities = Entities([Entity("Ada", "Q5", 9.0), Entity("Ada", "Q33", 2.0)])
    found = entities.find("ada")
    assert found is not None
    assert found.type == "Q5"
