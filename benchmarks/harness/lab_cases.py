"""Questions, contexts and replies for the measurements of a lab model."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from arbitrag.lab.checkpoint import LabModel
from arbitrag.lab.contexts import distractors, fact_passage
from arbitrag.lab.language import PassageForm
from arbitrag.lab.world import Fact, World, ask
from arbitrag.llm.base import LLM, Prompt, Sampling
from arbitrag.prompts import PromptBook
from arbitrag.text import agree, clean_answer
from arbitrag.types import Passage, Question

ANSWER_TOKENS = 12

Kind = Literal["right", "poisoned", "irrelevant"]


@dataclass(frozen=True)
class Case:
    """A question with the passages that are given for it; ``planted`` is the wrong answer of a poisoned passage."""

    fact: Fact
    question: Question
    passages: tuple[Passage, ...] = ()
    planted: str = ""
    form: str = ""

    def right(self, answer: str | None) -> bool:
        return answer is not None and agree(answer, self.fact.object)


def closed_book(facts: Sequence[Fact], rng: random.Random) -> list[Case]:
    return [Case(fact, Question(ask(fact, rng))) for fact in facts]


def in_context(world: World, fact: Fact, kind: Kind, count: int, rng: random.Random) -> Case:
    """The question among ``count`` passages, of which one tells the fact right or wrong, or none does."""
    told = {"right": [fact], "poisoned": [world.substitute(fact, rng)], "irrelevant": []}[kind]
    texts = [fact_passage(each, rng) for each in [*told, *distractors(world, fact, count - len(told), rng)]]
    planted = told[0].object if kind == "poisoned" else ""
    return Case(fact, Question(ask(fact, rng)), _shuffled(texts, rng), planted)


FORMS: dict[str, tuple[PassageForm | None, float]] = {
    "subject first": ("subject first", 0.0),
    "object first": ("object first", 0.0),
    "entry": ("entry", 0.0),
    "with a lead or filler": (None, 1.0),
}


def by_form(world: World, facts: Sequence[Fact], count: int, rng: random.Random) -> list[Case]:
    """Each fact told once among ``count`` passages, in the forms by turns."""
    cases = []
    for number, fact in enumerate(facts):
        name = list(FORMS)[number % len(FORMS)]
        form, decorated = FORMS[name]
        texts = [fact_passage(fact, rng, form=form, decorated=decorated)]
        texts += [fact_passage(each, rng) for each in distractors(world, fact, count - 1, rng)]
        cases.append(Case(fact, Question(ask(fact, rng)), _shuffled(texts, rng), form=name))
    return cases


def _shuffled(texts: list[str], rng: random.Random) -> tuple[Passage, ...]:
    rng.shuffle(texts)
    return tuple(Passage(text, id=str(number)) for number, text in enumerate(texts, 1))


class Asker:
    """Asks one model in its own wording."""

    def __init__(self, lab: LabModel) -> None:
        self.llm: LLM = lab.llm
        self._book = PromptBook.with_wording(lab.llm.wording)

    def prompt(self, case: Case) -> Prompt:
        if not case.passages:
            return self._book.render("direct/answer", question=case.question)
        return self._book.render("rag/answer", question=case.question, passages=case.passages)

    async def replies(self, cases: Sequence[Case]) -> list[str]:
        """A greedy answer for each."""
        sampling = Sampling(max_tokens=ANSWER_TOKENS)
        written = await asyncio.gather(*(self.llm.generate(self.prompt(case), sampling) for case in cases))
        return [clean_answer(each.text) for each in written]
