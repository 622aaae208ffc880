"""Recorded runs for the tests of tuning, made with a scripted model, so that every number in them is known."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from arbitrag.encode.base import Kind
from arbitrag.encode.similarity import Heads
from arbitrag.evaluate.questions import Item, QuestionSet
from arbitrag.evaluate.run.store import Row, RunPlan, Store, System
from arbitrag.kit import Kit
from arbitrag.llm.base import Prompt
from arbitrag.methods.base import Method, settings
from arbitrag.run import answer
from arbitrag.serialization import to_plain
from arbitrag.testing import FixedRetriever, ScriptedLLM, prompt_text
from arbitrag.types import Passage, Question

FAILED = "failed"
WAITING = "waiting"
UNTRACED = "untraced"
Kept = Mapping[tuple[str, str], str]  # what becomes of the row of a system and a question, where it is not recorded


@dataclass(frozen=True)
class Asked:
    """A question with the kit that answers it."""

    item: Item
    kit: Callable[[], Kit]


def recorded(
    path: Path,
    systems: Mapping[str, Method],
    asked: Sequence[Asked],
    *,
    name: str = "validation",
    kept: Kept | None = None,
    edit: Callable[[str, str, dict[str, Any]], dict[str, Any]] = lambda system, question, trace: trace,
) -> Path:
    """A run file in which the systems answered the questions; ``edit`` may change a trace before it is kept."""
    plan = RunPlan(
        [System(label, method.name, settings(method), "scripted") for label, method in systems.items()],
        [QuestionSet(name, [each.item for each in asked])],
    )

    async def fill(store: Store) -> None:
        for label, method in systems.items():
            for each in asked:
                fate = (kept or {}).get((label, each.item.id))
                if fate == WAITING:
                    continue
                if fate == FAILED:
                    store.record(Row(label, name, each.item.id, error="BackendError: HTTP 500"))
                    continue
                verdict = await answer(each.item.question, method, each.kit())
                trace = None if fate == UNTRACED else edit(label, each.item.id, to_plain(verdict.trace))
                row = Row(label, name, each.item.id, verdict.answer, verdict.strategy, verdict.why)
                store.record(row, verdict.to_dict(), trace)

    with Store.create(path, plan) as store, store.together():
        asyncio.run(fill(store))
    return path


def margin(number: int, prior: float, binding: float, gold: str, *, agree: bool = False) -> Asked:
    """A question to which memory says "memory N" and the passages "evidence N"; ``gold`` is one of the two words."""

    def says(prompt: Prompt) -> str:
        return f"{'evidence' if 'the fact' in prompt_text(prompt) and not agree else 'memory'} {number}"

    def likely(prompt: Prompt, text: str) -> float:
        """-10 for both answers, and the prior more for the evidence; with passages the binding more."""
        asked, read = "Question: What" in prompt_text(prompt), "the fact" in prompt_text(prompt)
        more = (binding if read else prior) if asked and text.startswith("evidence") else 0.0
        return -10.0 + more

    return Asked(
        Item(Question(f"What is number {number}?", id=f"q{number}"), (f"{gold} {number}",)),
        lambda: Kit.of(ScriptedLLM(says, likely), FixedRetriever([Passage("the fact", id="p")])),
    )


ANGLES = {"east": 0.0, "north": math.pi / 2}
_QUERIES = "\n".join(f"{number}. Which east {number} made it?" for number in range(1, 11))
_STEPS = {  # a piece of each prompt of bridge, by the step that it belongs to
    "allocate": "You judge what it takes",
    "rewrite": "You ask a question anew",
    "recall": "You write down what you remember",
    "recall_many": "You answer questions from memory",
    "reflect": "You find out where sources contradict",
    "answer": "from the material that you are given",
}


class Compass:
    """One head: the word in a text says the direction of its vector, and no word the one against east."""

    name = identity = "compass"
    width = 2

    async def encode(self, texts: Sequence[str], *, kind: Kind) -> np.ndarray:
        angles = [next((angle for word, angle in ANGLES.items() if word in text), math.pi) for text in texts]
        return np.array([(math.cos(angle), math.sin(angle)) for angle in angles], np.float32)

    async def aclose(self) -> None:
        pass


class ThreeHeads(Compass):
    """The compass, and two heads that find everything alike at 0.25."""

    async def encode_heads(self, texts: Sequence[str], *, kind: Kind) -> list[Heads]:
        return [Heads(row, {"t": 0.5}, np.array([[0.5]])) for row in await self.encode(texts, kind=kind)]


def bridge(
    number: int, retrieval: int, memory: str, answers: str, gold: tuple[str, ...] = ("Brend",), encoder: Any = None
) -> Asked:
    """A question for which memory writes a passage and ``answers``, both in a direction; the passages are east."""
    replies = {
        "allocate": f"retrieval: {retrieval}\ngeneration: {100 - retrieval}",
        "rewrite": _QUERIES,
        "recall": f"evidence: {memory}",
        "recall_many": "\n".join(f"{n}. {answers}" for n in range(1, 1 + -(-(100 - retrieval) // 10))),
        "reflect": f"contradiction: the two differ\nkind: factual\n{_QUERIES}",
    }

    def says(prompt: Prompt) -> str:
        text = prompt_text(prompt)
        step = next(step for step, piece in _STEPS.items() if piece in text)
        if step == "answer":  # memory alone says another thing
            return "answer: Brend" if "<passage" in text else "answer: Mira"
        return replies[step]

    passages = [Passage(f"east {word}", id=word) for word in ("one", "two", "three")]
    return Asked(
        Item(Question(f"Who directed film {number}?", id=f"b{number}"), gold),
        lambda: Kit.of(ScriptedLLM(says), FixedRetriever(passages), encoder=encoder or Compass()),
    )
