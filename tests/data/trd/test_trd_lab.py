"""A TRD of the lab's world: the scenarios hold, nothing leaks between the splits, and no form gives a scenario away."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from arbitrag.data import open_set
from arbitrag.data.trd.build import SHARES, build
from arbitrag.data.trd.draft import SPLITS, UNKNOWN, Drafts, Recipe, mentions
from arbitrag.data.trd.lab import lab_material
from arbitrag.data.trd.material import CATEGORIES, Fact
from arbitrag.errors import DataError, UsageError
from arbitrag.evaluate.questions import Item
from arbitrag.lab.world import World
from arbitrag.llm.base import Prompt
from arbitrag.testing import ScriptedLLM, prompt_text
from arbitrag.types import Strategy

WORLD = World(7)
MATERIAL = lab_material(WORLD)
BY_QUESTION = {text: fact for fact in MATERIAL.facts for text in fact.questions}
WORLD_LATER = [fact for fact in MATERIAL.facts if fact.kind != "stable"]
LAB_FACTS = {f"{fact.subject} / {fact.relation}": fact for fact in WORLD.current}
NAME = r"(\d{4}|[A-Z]\w*(?: [A-Z]\w*)*)"
RECIPE = Recipe(size=200, passages=5, phrasings=4, show_options=False)


def knows(fact: Fact) -> bool:
    """The scripted model knows the two most frequent thirds of what was told before the cutoff."""
    lab = LAB_FACTS[fact.id]
    return fact.kind == "stable" and WORLD.rank[lab] < len(WORLD.known) * 2 / 3


def stubborn(fact: Fact) -> bool:
    """Of the most frequent quarter it believes its memory more than any passage."""
    return knows(fact) and WORLD.quarter(LAB_FACTS[fact.id]) == 0


def told(fact: Fact, text: str) -> str | None:
    """What the passages in a prompt say is the answer."""
    for form in LAB_FACTS[fact.id].form.passages:
        pattern = re.escape(form).replace(r"\{s\}", re.escape(fact.subject)).replace(r"\{o\}", NAME)
        if match := re.search(pattern, text):
            return match[1]
    return None


def reply(prompt: Prompt) -> str:
    text = prompt_text(prompt)
    fact = BY_QUESTION[text.split("Question: ")[1].split("\n")[0]]
    read = told(fact, text) if "<passage" in text else None
    if read is not None and not stubborn(fact):
        return read
    return fact.answer if knows(fact) else (fact.former or ("Nobody Known",))[0]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import asyncio

    where = tmp_path_factory.mktemp("trd") / "set"
    asyncio.run(build(MATERIAL, [ScriptedLLM(reply)], RECIPE, where))
    return where


@pytest.fixture(scope="module")
def items(folder: Path) -> dict[str, Item]:
    found = {item.id: item for split in SPLITS for item in open_set(folder / f"{split}.jsonl").items}
    assert len(found) == 200
    return found


@pytest.fixture(scope="module")
def origins(folder: Path) -> dict[str, dict[str, Any]]:
    rows = [json.loads(line) for line in (folder / "origins.jsonl").read_text(encoding="utf-8").splitlines()]
    return {row["id"]: row for row in rows}


def test_the_categories_have_their_shares(items: dict[str, Item]) -> None:
    codes = {Strategy.BOTH: "FA", Strategy.MEMORY: "FI", Strategy.EVIDENCE: "FE", Strategy.REFUSE: "RA"}
    counts = Counter(codes[item.scenario] for item in items.values() if item.scenario)
    assert counts == {"FA": 20, "FI": 60, "FE": 60, "RA": 60}
    assert sum(SHARES.values()) == 10


def test_each_question_has_four_options_and_the_right_answer_is_one(
    items: dict[str, Item], origins: dict[str, dict[str, Any]]
) -> None:
    for item in items.values():
        origin = origins[item.id]
        assert len(set(item.question.options)) == 4
        assert UNKNOWN in item.question.options
        assert origin["truth"] in item.question.options
        assert item.answers[0] == (UNKNOWN if origin["scenario"] == "RA" else origin["truth"])
        assert len(item.passages or ()) == 5


def test_the_wrong_options_are_of_the_right_type(origins: dict[str, dict[str, Any]], items: dict[str, Item]) -> None:
    facts = {fact.id: fact for fact in MATERIAL.facts}
    for item in items.values():
        kind = facts[origins[item.id]["fact"]].type
        for option in set(item.question.options) - {UNKNOWN}:
            assert option.isdecimal() if kind == "year" else WORLD.kinds[option] == kind


def test_a_change_keeps_what_was_right_before_as_an_option(
    items: dict[str, Item], origins: dict[str, dict[str, Any]]
) -> None:
    changed = [item for item in items.values() if item.group == "evolution"]
    assert len(changed) > 10
    for item in changed:
        (former,) = origins[item.id]["former"]
        assert former in item.question.options
        assert former != origins[item.id]["planted"]
        assert former not in item.answers


def test_the_passages_say_what_the_scenario_says(items: dict[str, Item], origins: dict[str, dict[str, Any]]) -> None:
    facts = {fact.id: fact for fact in MATERIAL.facts}
    for item in items.values():
        origin = origins[item.id]
        truths = facts[origin["fact"]].answers
        right = [p for p in item.passages or () if any(mentions(p.text, name) for name in truths)]
        if origin["scenario"] in ("FA", "FE"):
            assert (len(right), item.planted, item.poisoned) == (1, (), frozenset())
            continue
        assert right == []
        (wrong,) = item.planted
        assert wrong in item.question.options
        assert wrong not in (origin["truth"], UNKNOWN)
        assert {p.id for p in item.passages or () if mentions(p.text, wrong)} == item.poisoned
        assert len(item.poisoned) == 1


def test_every_question_passed_the_rule_of_its_category(origins: dict[str, dict[str, Any]]) -> None:
    facts = {fact.id: fact for fact in MATERIAL.facts}
    for origin in origins.values():
        fact = facts[origin["fact"]]
        assert knows(fact) == (origin["scenario"] in ("FA", "FI"))
        assert (fact.kind == "stable") == (origin["scenario"] in ("FA", "FI"))
        assert not (origin["scenario"] == "FI" and stubborn(fact))
        read = origin["from_passages"].get("scripted")
        assert (
            read
            == {"FA": fact.answer, "FI": origin["planted"], "FE": None, "RA": origin["planted"]}[origin["scenario"]]
        )


def test_what_every_rule_removed_is_counted(folder: Path) -> None:
    report = json.loads((folder / "build.json").read_text(encoding="utf-8"))
    for category in CATEGORIES:
        used, beyond = sum(report["questions"][category].values()), report["beyond_its_share"][category]
        assert report["asked"][category] == used + beyond + sum(report["removed"][category].values())
    assert set(report["removed"]["FI"]) == {"wrong from memory", "not misled by its passages"}
    assert set(report["removed"]["FA"]) == {"wrong from memory"}
    assert report["removed"]["FE"] == report["removed"]["RA"] == {}


def test_no_entity_is_asked_about_or_told_of_in_two_splits(
    folder: Path, items: dict[str, Item], origins: dict[str, dict[str, Any]]
) -> None:
    splits: dict[str, set[str]] = {}
    for item_id, origin in origins.items():
        splits.setdefault(origin["subject"], set()).add(origin["split"])
        for passage in items[item_id].passages or ():
            if passage.title in WORLD.kinds:
                splits.setdefault(passage.title, set()).add(origin["split"])
    assert {len(found) for found in splits.values()} == {1}
    counts = Counter(origin["split"] for origin in origins.values())
    assert 140 <= counts["train"] <= 180
    assert 8 <= counts["validation"] <= 36
    assert 8 <= counts["test"] <= 36


def test_the_id_names_the_fact_but_not_the_scenario(origins: dict[str, dict[str, Any]]) -> None:
    clusters: dict[str, set[str]] = {}
    for item_id, origin in origins.items():
        clusters.setdefault(item_id.split("-")[0], set()).add(origin["fact"])
    assert all(len(facts) == 1 for facts in clusters.values())
    assert len(clusters) == len({origin["fact"] for origin in origins.values()})
    assert all(re.fullmatch(r"[0-9a-f]{10}-[0-9a-f]{4}", item_id) for item_id in origins)


def test_no_place_gives_anything_away() -> None:
    """Over all drafts: every option and the telling passage are equally often in every place, in every category."""
    drafts = Drafts(MATERIAL, Recipe(passages=5))
    for category in CATEGORIES:
        found = list(islice(drafts.of(category), 400))
        right = Counter(draft.question.options.index(draft.fact.answer) for draft in found)
        unknown = Counter(draft.question.options.index(UNKNOWN) for draft in found)
        told_at = Counter(
            next(n for n, p in enumerate(draft.passages) if mentions(p.text, draft.wrong or draft.fact.answer))
            for draft in found
        )
        for counts, places in ((right, 4), (unknown, 4), (told_at, 5)):
            fair = len(found) / places
            assert sorted(counts) == list(range(places))
            assert all(abs(count - fair) < 4.5 * fair**0.5 for count in counts.values())


def test_dates_and_lengths_say_nothing_of_the_scenario() -> None:
    drafts = Drafts(MATERIAL, Recipe(passages=5))
    years, words = {}, {}
    for category in CATEGORIES:
        passages = [passage for draft in list(islice(drafts.of(category), 400)) for passage in draft.passages]
        years[category] = sum(int(passage.date[:4]) for passage in passages) / len(passages)
        words[category] = sum(len(passage.text.split()) for passage in passages) / len(passages)
        assert {passage.date[:4] for passage in passages} == {"2021", "2022", "2023", "2024"}
    assert max(years.values()) - min(years.values()) < 0.15
    assert max(words.values()) - min(words.values()) < 0.4


def test_a_wrong_name_is_as_popular_as_the_right_one() -> None:
    drafts = Drafts(MATERIAL, Recipe(passages=5))
    pairs = [
        (WORLD.popularity[draft.wrong], WORLD.popularity[draft.fact.answer])
        for draft in islice(drafts.of("RA"), 500)
        if draft.fact.kind == "perpetuation"
    ]
    more = sum(wrong > right for wrong, right in pairs) / len(pairs)
    assert 0.4 < more < 0.6


def test_a_second_phrasing_comes_after_the_first_of_every_fact() -> None:
    drafts = Drafts(MATERIAL, Recipe(phrasings=4))
    assert len(WORLD_LATER) == 1110
    for category in ("FE", "RA"):
        found = list(drafts.of(category))
        assert len(found) == 2 * 1110
        assert len({draft.fact.id for draft in found[:1110]}) == 1110, "each fact comes once before any comes twice"
        texts = {draft.question.text for draft in found}
        assert len(texts) == len(found)
    both = {draft.question.text for draft in drafts.of("FE")} & {draft.question.text for draft in drafts.of("RA")}
    assert both == set()


def test_without_further_phrasings_half_of_the_later_facts_are_refused() -> None:
    drafts = Drafts(MATERIAL, Recipe(passages=1))
    evidence, refused = ({draft.fact.id for draft in drafts.of(code)} for code in ("FE", "RA"))
    assert (len(evidence), len(refused)) == (555, 555)
    assert not evidence & refused
    both, memory = ({draft.fact.id for draft in drafts.of(code)} for code in ("FA", "FI"))
    assert (len(both), len(memory)) == (833, 2497)


async def test_the_same_seed_gives_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    await build(MATERIAL, [ScriptedLLM(reply)], RECIPE, tmp_path / "again")
    names = sorted(os.listdir(folder))
    assert names == [
        "answers",
        "build.json",
        "card.md",
        "origins.jsonl",
        "test.jsonl",
        "train.jsonl",
        "validation.jsonl",
    ]
    for name in names[1:]:
        assert (folder / name).read_bytes() == (tmp_path / "again" / name).read_bytes()
    other = Recipe(size=100, seed=1, passages=5, show_options=False)
    await build(MATERIAL, [ScriptedLLM(reply)], other, tmp_path / "other")
    theirs = {json.loads(line)["id"] for line in (tmp_path / "other" / "origins.jsonl").read_text().splitlines()}
    ours = {json.loads(line)["id"] for line in (folder / "origins.jsonl").read_text().splitlines()}
    assert not theirs & ours


async def test_where_a_category_is_short_all_shrink_with_it(tmp_path: Path) -> None:
    def forgetful(prompt: Prompt) -> str:
        fact = BY_QUESTION[prompt_text(prompt).split("Question: ")[1].split("\n")[0]]
        rare = fact.kind != "stable" or WORLD.rank[LAB_FACTS[fact.id]] >= 1000
        return "Nobody Known" if rare else reply(prompt)

    few = replace(MATERIAL, facts=[*MATERIAL.facts[600:1100], *WORLD_LATER])
    recipe = Recipe(size=400, passages=2, show_options=False)
    built = await build(few, [ScriptedLLM(forgetful)], recipe, tmp_path / "set")
    counts = {category: sum(splits.values()) for category, splits in built.report["questions"].items()}
    passed = counts["FI"] + built.report["beyond_its_share"]["FI"]
    assert 10 < passed < 120, "known, but not so well that the model is not misled"
    assert counts["FI"] in (passed, passed - 1, passed - 2)
    assert counts["FE"] == counts["RA"] == counts["FI"]
    assert counts["FA"] == passed // 3


async def test_a_model_that_knows_nothing_leaves_nothing_to_write(tmp_path: Path) -> None:
    few = replace(MATERIAL, facts=MATERIAL.facts[:400])
    with pytest.raises(DataError, match=r"no question of the category FA is left.*: 100 wrong from memory$"):
        await build(few, [ScriptedLLM(lambda _: "Nobody Known")], Recipe(show_options=False), tmp_path / "set")
    assert os.listdir(tmp_path / "set") == ["answers"]


async def test_every_model_has_to_agree(tmp_path: Path) -> None:
    def other(prompt: Prompt) -> str:
        fact = BY_QUESTION[prompt_text(prompt).split("Question: ")[1].split("\n")[0]]
        return "Nobody Known" if fact.type == "year" else reply(prompt)

    models = [ScriptedLLM(reply), ScriptedLLM(other, name="other")]
    built = await build(MATERIAL, models, Recipe(size=100, passages=2, show_options=False), tmp_path / "set")
    known = [each for rows in built.rows.values() for each in rows if each.draft.category in ("FA", "FI")]
    assert len(known) == 40
    assert all(each.draft.fact.type != "year" for each in known)
    assert all(set(each.memory) == {"scripted", "other"} for each in known)
    with pytest.raises(UsageError, match="scripted, scripted have equal names"):
        await build(MATERIAL, [ScriptedLLM(), ScriptedLLM()], RECIPE, tmp_path / "twice")
