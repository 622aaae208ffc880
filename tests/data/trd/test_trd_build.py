"""Building a TRD: the rule of each category, plain folders, kills, and what goes wrong."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

import needs
import pytest

from arbitrag.data import open_set
from arbitrag.data.trd.build import build
from arbitrag.data.trd.card import BEGIN, END, examples, insert_examples
from arbitrag.data.trd.draft import (
    FEW_OPTIONS,
    FEW_PASSAGES,
    NAMED,
    NOT_TOLD,
    STILL_TOLD,
    TWICE,
    UNKNOWN,
    Draft,
    Drafts,
    Recipe,
    mentions,
)
from arbitrag.data.trd.material import CATEGORIES, Category, Entity, Fact, Kind, Material
from arbitrag.data.trd.plain import after, plain_material
from arbitrag.data.trd.validate import (
    MEMORY_RIGHT,
    MEMORY_WRONG,
    NOT_MISLED,
    PASSAGES_RIGHT,
    PASSAGES_WRONG,
    Validator,
)
from arbitrag.errors import BackendError, DataError, UsageError
from arbitrag.llm.base import Prompt
from arbitrag.testing import ScriptedLLM, prompt_text
from arbitrag.types import Passage, Question

TOWNS = [f"{first}{last}" for first in ("Arden", "Brack", "Cald", "Dun", "Elm") for last in ("fall", "water", "ford")]


def town(number: int) -> str:
    return TOWNS[number % len(TOWNS)]


def fact(number: int, **changes: Any) -> Fact:
    kind: Kind = "stable" if number % 2 else "perpetuation"
    fields: dict[str, Any] = {
        "id": f"f{number}",
        "subject": f"Museum {number}",
        "answer": town(number),
        "type": "town",
        "kind": kind,
        "questions": (f"Where is Museum {number}?",),
        "passages": (Passage(f"Museum {number} stands in {town(number)}.", title=f"Museum {number}"),),
    }
    return Fact(**(fields | changes))


def material(*facts: Fact) -> Material:
    return Material("towns", "a few museums", facts, [Entity(name, "town", n) for n, name in enumerate(TOWNS)])


def dropped(*facts: Fact, recipe: Recipe = Recipe()) -> dict[str, int]:
    """The reasons for which drafts of any category are removed."""
    drafts = Drafts(material(*facts), recipe)
    for category in CATEGORIES:
        list(drafts.of(category))
    return dict(sum((counts for counts in drafts.removed.values()), start=type(drafts.removed["FA"])()))


def test_drafts_that_cannot_be_asked_are_removed_with_the_reason() -> None:
    assert dropped(fact(1), fact(2), fact(3), fact(4)) == {}
    assert dropped(fact(1), fact(3, questions=("Where is Museum 1?",))) == {TWICE: 2}
    assert dropped(fact(1, questions=("Is Brackwater home to it?",), answer="Brackwater")) == {NAMED: 1}
    assert dropped(fact(1, kind="evolution", former=("Dunford",), questions=("Who left dunford?",))) == {NAMED: 1}
    assert dropped(fact(1, type="river")) == {FEW_OPTIONS: 1}
    assert dropped(fact(1, passages=(Passage("It stands somewhere."),))) == {NOT_TOLD: 1}
    assert dropped(fact(1, passages=())) == {NOT_TOLD: 1}
    assert dropped(fact(1, passages=(Passage("Ardenwaterside and more."),))) == {NOT_TOLD: 1}, "whole words only"
    assert dropped(fact(1), recipe=Recipe(passages=2)) == {FEW_PASSAGES: 1}


def test_a_wrong_name_takes_the_place_of_every_form_of_the_right_one() -> None:
    told = Passage("In Ardenwater City, or ARDENWATER, stands Museum 1. Ardenwaters is no town.", title="Ardenwater")
    made = fact(1, aliases=("Ardenwater City",), passages=(told,), answer="Ardenwater", category="FI")
    (draft,) = Drafts(material(made), Recipe()).of("FI")
    wrong = draft.wrong
    assert wrong in TOWNS
    assert wrong != "Ardenwater"
    (passage,) = draft.passages
    assert passage.text == f"In {wrong}, or {wrong}, stands Museum 1. Ardenwaters is no town."
    assert passage.title == wrong
    assert draft.corrupted == {passage.id}


def test_a_passage_that_names_the_right_answer_beside_a_corrupted_one_is_left_out() -> None:
    facts = [fact(number, category="FI" if number == 1 else "FA", kind="stable") for number in range(1, 17)]
    (draft,) = Drafts(material(*facts), Recipe(passages=3, seed=4)).of("FI")
    assert sum(mentions(passage.text, draft.wrong) for passage in draft.passages) == 1
    assert not any(mentions(passage.text, town(1)) for passage in draft.passages)
    assert town(1) == town(16), "another museum in the same town was there to be drawn"


def test_passages_that_give_the_right_answer_all_the_same_are_left_out() -> None:
    def honest(fact: Fact, count: int, subjects: Collection[str], rng: random.Random) -> list[Passage]:
        return [Passage(f"All agree on {fact.answer}.")]

    made = Material("towns", "", [fact(1, category="RA")], material().entities, honest)
    drafts = Drafts(made, Recipe(passages=2))
    assert (list(drafts.of("RA")), drafts.removed["RA"]) == ([], {FEW_PASSAGES: 1})
    longer = [Entity(f"New {town(1)}", "town"), Entity(f"Old {town(1)}", "town")]
    drafts = Drafts(Material("towns", "", [fact(1, category="RA")], longer), Recipe())
    assert (list(drafts.of("RA")), drafts.removed["RA"]) == ([], {STILL_TOLD: 1}), "the wrong name holds the right one"


def test_mentions_are_whole_words_in_any_case() -> None:
    assert mentions("He left ARDEN FALL.", "Arden Fall")
    assert not mentions("He left Ardenfalls.", "Ardenfall")
    assert mentions("(1987)", "1987")
    assert not mentions("anything", "")


RIGHT, WRONG, OTHER = "Ardenwater", "Dunford", "Elmfall"


def draft(category: Category) -> Draft:
    corrupt = category in ("FI", "RA")
    passage = Passage(f"It stands in {WRONG if corrupt else RIGHT}.", id="p")
    options = (OTHER, WRONG, UNKNOWN, RIGHT)
    about = fact(1, answer=RIGHT, aliases=("Ardenwater City",))
    question = Question("Where is Museum 1?", options, "q")
    return Draft("q", category, about, "train", question, (passage,), WRONG if corrupt else "", frozenset("p"))


@pytest.mark.parametrize(
    ("category", "memory", "read", "reason"),
    [
        ("FA", RIGHT, RIGHT, ""),
        ("FA", "ardenwater city.", RIGHT, ""),
        ("FA", OTHER, RIGHT, MEMORY_WRONG),
        ("FA", UNKNOWN, RIGHT, MEMORY_WRONG),
        ("FA", RIGHT, OTHER, PASSAGES_WRONG),
        ("FI", RIGHT, WRONG, ""),
        ("FI", WRONG, WRONG, MEMORY_WRONG),
        ("FI", RIGHT, RIGHT, NOT_MISLED),
        ("FI", RIGHT, OTHER, NOT_MISLED),
        ("FI", RIGHT, UNKNOWN, NOT_MISLED),
        ("FE", OTHER, None, ""),
        ("FE", UNKNOWN, None, ""),
        ("FE", RIGHT, None, MEMORY_RIGHT),
        ("RA", OTHER, WRONG, ""),
        ("RA", OTHER, UNKNOWN, ""),
        ("RA", RIGHT, WRONG, MEMORY_RIGHT),
        ("RA", OTHER, RIGHT, PASSAGES_RIGHT),
    ],
)
async def test_the_rule_of_each_category(category: Category, memory: str, read: str | None, reason: str) -> None:
    llm = ScriptedLLM([memory] if read is None else [memory, read])
    found = await Validator([llm], show_options=False).check(draft(category))
    assert found.reason == reason
    asked = 1 if read is None or reason in (MEMORY_WRONG, MEMORY_RIGHT) else 2
    assert len(llm.prompts) == asked, "passages are only asked about where memory passed"
    assert not any("(A)" in prompt_text(prompt) for prompt in llm.prompts)


async def test_with_options_shown_a_letter_counts() -> None:
    llm = ScriptedLLM(["(D)", "B"])
    found = await Validator([llm], show_options=True).check(draft("FI"))
    assert (found.reason, dict(found.memory), dict(found.passages)) == ("", {"scripted": RIGHT}, {"scripted": WRONG})
    assert all("(D) Ardenwater" in prompt_text(prompt) for prompt in llm.prompts)
    hidden = await Validator([ScriptedLLM(["D"])], show_options=False).check(draft("FI"))
    assert hidden.reason == MEMORY_WRONG


def test_a_date_is_after_the_whole_period_of_the_cutoff() -> None:
    assert after("2023-03", "2023-02")
    assert not after("2023-02-27", "2023-02")
    assert not after("2023", "2023-02"), "a year alone begins in January"
    assert after("2024", "2023-02")
    assert not after("2023-12", "2023")


# A folder of one's own.


def write(path: Path, *rows: dict[str, Any]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def a_folder(where: Path, count: int = 60) -> Path:
    where.mkdir()
    numbers = range(1, count + 1)
    facts: list[dict[str, Any]] = []
    for number in numbers:
        row: dict[str, Any] = {"id": f"f{number}", "subject": f"Museum {number}", "answer": town(number)}
        row["questions"] = [f"Where is Museum {number}?"]
        if number % 2 == 0:
            row["since"] = "2024-03"
        if number % 4 == 0:
            row["former"] = town(number + 7)
        facts.append(row)
    write(where / "facts.jsonl", *facts)
    texts = [{"fact": f"f{number}", "text": f"Museum {number} stands in {town(number)}."} for number in numbers]
    write(where / "passages.jsonl", *texts)
    write(where / "entities.jsonl", *({"name": name, "type": "town", "popularity": n} for n, name in enumerate(TOWNS)))
    return where


def curator(prompt: Prompt) -> str:
    """Knows every museum with an odd number, and believes every passage."""
    text = prompt_text(prompt)
    if " stands in " in text:
        return text.split(" stands in ")[1].split(".")[0]
    number = int(text.split("Where is Museum ")[1].split("?")[0])
    return town(number) if number % 2 else "Nowhere"


async def test_a_folder_of_ones_own(tmp_path: Path) -> None:
    source = plain_material(a_folder(tmp_path / "own"), cutoff="2023")
    assert [each.kind for each in source.facts[:4]] == ["stable", "perpetuation", "stable", "evolution"]
    assert (source.facts[3].former, source.facts[3].type) == ((town(11),), "town")
    built = await build(source, [ScriptedLLM(curator)], Recipe(), tmp_path / "set")
    counts = {category: sum(splits.values()) for category, splits in built.report["questions"].items()}
    assert counts == {"FA": 5, "FI": 15, "FE": 15, "RA": 15}, "15 of 15 later facts each, and 8 and 22 of the others"
    items = [item for split in built.rows for item in open_set(tmp_path / "set" / f"{split}.jsonl").items]
    assert len(items) == 50
    assert {item.group for item in items} == {"stable", "evolution", "perpetuation"}
    card = (tmp_path / "set" / "card.md").read_text(encoding="utf-8")
    assert "# A TRD of 50 questions" in card
    assert "- seed: 0" in card
    assert built.report["material"]["files"]["facts.jsonl"] in card
    assert "| FI | 22 | beyond its share of the set | 7 |" in card


@pytest.mark.parametrize(
    ("file", "rows", "message"),
    [
        ("facts.jsonl", [{"subject": "M", "answer": "Nix", "questions": "?"}], r"line 1: the answer 'Nix' has no type"),
        ("facts.jsonl", [{"subject": "M", "questions": "?"}], r"line 1: 'answer' is missing"),
        ("facts.jsonl", [{"subject": "M", "answer": "Elmfall"}], r"line 1: 'questions' is missing or empty"),
        ("facts.jsonl", [{"sbject": "M"}], r"line 1: 'sbject' is not known; did you mean 'subject'\?"),
        ("entities.jsonl", [{"name": "Elmfall"}], r"line 1: 'type' is missing"),
        ("entities.jsonl", [], r"entities.jsonl has no entities"),
        ("passages.jsonl", [], r"passages.jsonl has no passages, so nothing tells a fact"),
        ("passages.jsonl", [{"fact": "f1"}], r"line 1: 'text' is missing or empty"),
        ("passages.jsonl", [{"fact": "f99", "text": "x"}], r"tells the fact 'f99', which facts.jsonl has not"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, file: str, rows: list[dict[str, Any]], message: str) -> None:
    folder = a_folder(tmp_path / "own")
    write(folder / file, *rows)
    with pytest.raises(DataError, match=message):
        plain_material(folder, cutoff="2023")


def test_a_file_of_another_format_or_none_is_named(tmp_path: Path) -> None:
    folder = a_folder(tmp_path / "own")
    with pytest.raises(UsageError, match=r"facts.jsonl line 2 has 'since'; .*--cutoff 2023-02"):
        plain_material(folder)
    with pytest.raises(UsageError, match=r"the cutoff is a date such as 2023.*; got 'spring'"):
        plain_material(folder, cutoff="spring")
    (folder / "facts.jsonl").write_text("id,subject\n1,Museum\n")
    with pytest.raises(DataError, match=r"facts.jsonl line 1: not valid JSON"):
        plain_material(folder)
    (folder / "entities.jsonl").unlink()
    with pytest.raises(
        DataError, match=r"own has no entities.jsonl; it needs facts.jsonl, passages.jsonl and entities"
    ):
        plain_material(folder)
    with pytest.raises(UsageError, match=r"there is no folder .*nowhere to build from"):
        plain_material(tmp_path / "nowhere")


async def test_material_without_types_or_passages_is_refused_before_anything_is_asked(tmp_path: Path) -> None:
    llm = ScriptedLLM()
    for made, message in (
        (Material("m", "a source", [fact(1)], []), "a source has no typed entities"),
        (Material("m", "a source", [fact(1, passages=())], [Entity("x", "town")]), "a source has no passages"),
        (Material("m", "a source", [], [Entity("x", "town")]), "a source has no facts"),
    ):
        with pytest.raises(DataError, match=message):
            await build(made, [llm], Recipe(), tmp_path / "set")
    with pytest.raises(UsageError, match="3 passages tell the fact, but a question has 2 in all"):
        await build(material(fact(1)), [llm], Recipe(passages=2, telling=3), tmp_path / "set")
    with pytest.raises(UsageError, match="a set of 9 questions; give 10 or more"):
        await build(material(fact(1)), [llm], Recipe(size=9), tmp_path / "set")
    assert not (tmp_path / "set").exists()


async def test_a_folder_with_other_things_is_not_touched(tmp_path: Path) -> None:
    source = plain_material(a_folder(tmp_path / "own"), cutoff="2023")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"other holds other files \(notes.txt\); give a new folder"):
        await build(source, [ScriptedLLM(curator)], Recipe(), tmp_path / "other")
    where = tmp_path / "set"
    await build(source, [ScriptedLLM(curator)], Recipe(), where)
    before = (where / "card.md").read_bytes()
    with pytest.raises(UsageError, match=r"set holds a set that was built otherwise \(recipe differ\); .*--replace it"):
        await build(source, [ScriptedLLM(curator)], Recipe(seed=1), where)
    assert (where / "card.md").read_bytes() == before
    await build(source, [ScriptedLLM(curator)], Recipe(seed=1), where, replace=True)
    assert (where / "card.md").read_bytes() != before


# Interruptions.

_SCRIPT = """
import asyncio, sys, time
from pathlib import Path
from arbitrag.data.trd.build import Recipe, build
from arbitrag.data.trd.plain import plain_material
from arbitrag.llm.base import Prompt, Sampling
from arbitrag.testing import ScriptedLLM, prompt_text
from tests.data.trd.test_trd_build import curator

own, out, log, wait = Path(sys.argv[1]), Path(sys.argv[2]), open(sys.argv[3], "a"), float(sys.argv[4])

class Slow(ScriptedLLM):
    async def generate(self, prompt: Prompt, sampling: Sampling):
        print(prompt_text(prompt).replace("\\n", " "), file=log, flush=True)
        await asyncio.sleep(wait)
        return await super().generate(prompt, sampling)

asyncio.run(build(plain_material(own, cutoff="2023"), [Slow(curator)], Recipe(), out, concurrency=4))
"""


def run(repository: Path, *arguments: object) -> subprocess.Popen[bytes]:
    path = os.pathsep.join(map(str, (repository, repository / "src", repository / "tests" / "support")))
    command = [sys.executable, "-c", _SCRIPT, *map(str, arguments)]
    return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path}, stderr=subprocess.PIPE)


@needs.signals
@pytest.mark.slow
def test_a_killed_build_goes_on_and_asks_nothing_twice(tmp_path: Path, repository: Path) -> None:
    own = a_folder(tmp_path / "own", 120)
    whole, log, again = tmp_path / "whole", tmp_path / "log", tmp_path / "again"
    process = run(repository, own, whole, log, 0)
    assert process.communicate()[1] == b""
    total = len(log.read_text().splitlines())
    cut = tmp_path / "cut"
    for stop in (20, 70, 120):  # questions asked in all when the build is killed
        process = run(repository, own, cut, again, 0.02)
        while process.poll() is None and (not again.exists() or len(again.read_text().splitlines()) < stop):
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert not (cut / "card.md").exists(), "nothing looks finished"
        assert not (cut / "train.jsonl").exists()
    process = run(repository, own, cut, again, 0)
    assert process.communicate()[1] == b""
    asked = again.read_text().splitlines()
    assert set(asked) == set(log.read_text().splitlines())
    assert total <= len(asked) <= total + 3 * 4, "only what was under way at a kill is asked again"
    for name in ("train.jsonl", "validation.jsonl", "test.jsonl", "origins.jsonl", "card.md", "build.json"):
        assert (cut / name).read_bytes() == (whole / name).read_bytes()


async def test_failed_calls_are_counted_and_the_next_build_asks_only_those(tmp_path: Path) -> None:
    source = plain_material(a_folder(tmp_path / "own"), cutoff="2023")
    broken = {"on": True}

    def flaky(prompt: Prompt) -> str | BackendError:
        text = prompt_text(prompt)
        if broken["on"] and any(f"Museum {number}?" in text for number in (1, 3, 5)):
            return BackendError("the server said 503")
        return curator(prompt)

    llm = ScriptedLLM(flaky)
    with pytest.raises(BackendError, match=r"\d of \d+ questions could not be asked; the first: the server said 503\n"):
        await build(source, [llm], Recipe(), tmp_path / "set")
    assert os.listdir(tmp_path / "set") == ["answers"]
    broken["on"] = False
    first = len(llm.prompts)
    await build(source, [llm], Recipe(), tmp_path / "set")
    texts = [prompt_text(prompt) for prompt in llm.prompts]
    again = [text for text in texts[first:] if text in texts[:first]]
    assert again
    assert all(any(f"Museum {number}?" in text for number in (1, 3, 5)) for text in again)


# Examples.


async def test_examples_come_between_the_marks(tmp_path: Path) -> None:
    source = plain_material(a_folder(tmp_path / "own"), cutoff="2023")
    built = await build(source, [ScriptedLLM(curator)], Recipe(), tmp_path / "set")
    text = examples(built.rows, 3)
    assert text.count("\n### ") == 3
    assert text.startswith("### FA: memory and passages are both right")
    assert text.count("corrupted: Museum") == 6
    assert text.count("told: Museum") == 6
    assert text.count(f"**{UNKNOWN}**") == 3
    page = tmp_path / "page.md"
    page.write_text(f"Before.\n{BEGIN}\nwhat was there\n{END}\nAfter.\n")
    insert_examples(page, text)
    found = page.read_text()
    assert found.startswith(f"Before.\n{BEGIN}\n\n### FA")
    assert found.endswith(f"\n{END}\nAfter.\n")
    assert "what was there" not in found
    page.write_text("no marks")
    with pytest.raises(DataError, match=r"page.md has no lines <!-- examples -->"):
        insert_examples(page, text)
