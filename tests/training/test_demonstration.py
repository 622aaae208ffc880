"""The demonstration of a lab model: what is drawn, what counts as right, and which case is shown."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest

from arbitrag.lab.model import DemoCase, Kind
from arbitrag.lab.world import World
from arbitrag.llm.base import Prompt
from arbitrag.testing import ScriptedLLM
from arbitrag.types import Strategy, Verdict
from training import demonstration as lab_demo
from training.demonstration import METHODS, Drawn, demonstration, draw, lesson

WORLD = World(7)


def cases(kind: Kind, count: int = 60) -> list[DemoCase]:
    rng = random.Random(f"test {kind}")
    return [draw(WORLD, kind, rng) for _ in range(count)]


@pytest.mark.parametrize("kind", METHODS)
def test_what_is_drawn(kind: Kind) -> None:
    facts = {form.format(s=fact.subject): fact for fact in (*WORLD.known, *WORLD.late) for form in fact.form.questions}
    for case in cases(kind):
        fact = facts[case.question]
        assert (case.kind, case.method, case.truth) == (kind, METHODS[kind], fact.object)
        assert len(case.passages) == 3
        assert [each.id for each in case.passages] == ["1", "2", "3"]
        about = [each for each in case.passages if each.source.startswith("planted/")]
        assert len(about) == (kind == "poison")
        telling = [each for each in case.passages if case.truth in each.text and fact.subject in each.text]
        assert bool(telling) == (kind == "evidence")
        assert all(fact.subject in each.text and case.truth not in each.text for each in about)
        assert all(each.source.endswith(".md") and each.title in each.text for each in case.passages)


def drawn(kind: Kind, answer: str | None, strategy: Strategy, *, direct: bool = False, rag: bool = False) -> Drawn:
    case = DemoCase(kind, "", "Who?", (), "Ada Bo", "", METHODS[kind])
    return Drawn(case, Verdict(answer, strategy, why="x"), direct, rag)


@pytest.mark.parametrize(
    ("kind", "answer", "strategy", "right", "shows"),
    [
        ("memory", "Ada Bo", Strategy.MEMORY, True, True),
        ("memory", "Ada Bo", Strategy.BOTH, True, False),
        ("memory", "Bo Ada", Strategy.MEMORY, False, False),
        ("evidence", "Ada Bo", Strategy.EVIDENCE, True, True),
        ("poison", None, Strategy.REFUSE, False, False),
        ("neither", None, Strategy.REFUSE, True, True),
        ("neither", "Ada Bo", Strategy.MEMORY, False, False),
    ],
)
def test_what_counts_as_right(kind: Kind, answer: str | None, strategy: Strategy, right: bool, shows: bool) -> None:
    found = drawn(kind, answer, strategy)
    assert (found.right, found.shows) == (right, shows)


def test_a_lesson_counts() -> None:
    found = [
        drawn("poison", "Ada Bo", Strategy.MEMORY, direct=True),
        drawn("poison", "Ada Bo", Strategy.MEMORY, direct=True, rag=True),
        drawn("poison", "Cy Do", Strategy.EVIDENCE),
    ]
    told = lesson("poison", found)
    assert "Of 3 well-known facts" in told
    assert "trustmargin answers 2 right, memory alone 2, reading alone 1." in told


async def test_the_first_case_that_goes_right_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    methods: Mapping[Kind, str] = {"memory": "direct", "evidence": "rag"}
    monkeypatch.setattr(lab_demo, "METHODS", methods)
    rng = random.Random("demonstration 0 memory")
    first, second, third = (draw(WORLD, "memory", rng) for _ in range(3))

    def reply(prompt: Prompt) -> str:
        asked = str(prompt)
        if second.question in asked:
            return second.truth
        return third.truth if third.question in asked else "nothing of it"

    shown = await demonstration(ScriptedLLM(reply), WORLD, count=3)
    assert [(case.kind, case.question) for case in shown] == [("memory", second.question)]
    assert "Of 3 known facts with irrelevant passages direct answers 2 right, memory alone 2" in shown[0].lesson
    assert first.question != second.question
