"""A small world for tests of runs: questions about numbers, a model that knows or misreads them, systems on it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from arbitrag.evaluate.questions import Item, QuestionSet
from arbitrag.evaluate.run.plan import entries, plan
from arbitrag.evaluate.run.store import RunPlan
from arbitrag.kit import Kit
from arbitrag.llm.base import Generation, Price, Prompt, Sampling
from arbitrag.methods import load
from arbitrag.methods.base import Method
from arbitrag.testing import ScriptedLLM, prompt_text
from arbitrag.types import Need, Passage, Question, Strategy, Verdict


def number_in(prompt: Prompt) -> str:
    return prompt_text(prompt).rpartition("number ")[2].split("?")[0]


class Numbers(ScriptedLLM):
    """Says ``memory N`` from memory and ``evidence N`` from passages; the two agree where N is even.

    ``asked`` keeps what was computed; questions in ``down`` fail, each with its own error. ``steps`` is how often other
    work may go before an answer is there.
    """

    def __init__(self, name: str = "numbers", *, price: Price | None = None, steps: int = 1) -> None:
        super().__init__(self._say, lambda prompt, text: -float(len(text)), name=name, price=price)
        self.asked: list[str] = []
        self.down: dict[str, Exception] = {}
        self.most_at_a_time = 0
        self._at_a_time = 0
        self._steps = steps

    def _say(self, prompt: Prompt) -> str | Exception:
        number = number_in(prompt)
        with_passages = "the fact" in prompt_text(prompt)
        reply = f"evidence {number}" if with_passages and int(number) % 2 else f"memory {number}"
        self.asked.append(f"{'rag' if with_passages else 'direct'} {number}")
        return self.down.get(number, reply)

    async def generate(self, prompt: Prompt, sampling: Sampling) -> Generation:
        self._at_a_time += 1
        self.most_at_a_time = max(self.most_at_a_time, self._at_a_time)
        try:
            for _ in range(self._steps):
                await asyncio.sleep(0)
            return await super().generate(prompt, sampling)
        finally:
            self._at_a_time -= 1


@dataclass(frozen=True)
class Breaks:
    """A method with a fault: it fails in the middle, or gives a verdict that nothing can store."""

    name: ClassVar[str] = "breaks"
    needs: ClassVar[Need] = Need.GENERATE
    cost: ClassVar[str] = "1 answer"
    paper: ClassVar[str] = "test"

    how: str = "raises"

    async def answer(self, question: Question, kit: Kit) -> Verdict:
        await kit.llm.generate(kit.llm.prompt("direct/answer", question=question))
        if self.how == "raises":
            raise KeyError("no such place")
        if self.how == "cancels":
            raise asyncio.CancelledError
        score = float("nan") if self.how == "nan" else object()
        return Verdict("x", Strategy.MEMORY, "", scores={"margin": score})  # type: ignore[dict-item]


def numbers(count: int, name: str = "numbers") -> QuestionSet:
    """Questions ``q1`` ... with a passage each."""
    return QuestionSet(
        name,
        [
            Item(
                Question(f"What is number {n}?", id=f"q{n}"), (f"memory {n}",), (Passage(f"the fact {n}", id=f"p{n}"),)
            )
            for n in range(1, count + 1)
        ],
    )


def methods(*names: str) -> list[Method]:
    return [load(name)() for name in names]


def given_plan(sets: Sequence[QuestionSet], kits: Sequence[Kit], chosen: Sequence[Method]) -> RunPlan:
    return plan(entries(chosen, kits), sets, passages="given")
