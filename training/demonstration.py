"""The demonstration cases of an embedded model: one question of each kind, and how often the method succeeds.

=========  ===========================================  ==================================================
kind       the fact                                     the passages
=========  ===========================================  ==================================================
memory     known                                        tell nothing about it
evidence   came after the cutoff                        one tells it
poison     in the most frequent quarter of known ones   one, planted, tells it wrongly
neither    came after the cutoff                        tell nothing about it
=========  ===========================================  ==================================================

The questions shown are the first drawn that go right, so they show what can happen; the lesson beside each says how
often it does, for the method and for its candidates alone, over all that were drawn.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from arbitrag.lab.contexts import distractors, fact_passage
from arbitrag.lab.documents import document_id
from arbitrag.lab.model import DemoCase, Kind, demo_kit
from arbitrag.lab.world import Fact, World, ask
from arbitrag.llm.base import LLM
from arbitrag.methods import load
from arbitrag.run import answer
from arbitrag.text import agree
from arbitrag.types import Passage, Strategy, Verdict

PASSAGES = 3
METHODS: Mapping[Kind, str] = {
    "memory": "trustmargin",
    "evidence": "trustmargin",
    "poison": "trustmargin",
    "neither": "bridge",
}
_TITLES: Mapping[Kind, str] = {
    "memory": "Memory is right",
    "evidence": "The evidence is right",
    "poison": "The evidence is poisoned",
    "neither": "Neither is right",
}
_WANTED: Mapping[Kind, Strategy] = {
    "memory": Strategy.MEMORY,
    "evidence": Strategy.EVIDENCE,
    "poison": Strategy.MEMORY,
    "neither": Strategy.REFUSE,
}
_LESSONS: Mapping[Kind, str] = {
    "memory": "The passages are about something else; memory knows better. "
    "Of {n} known facts with irrelevant passages {method} answers {right} right, memory alone {direct}, "
    "reading alone {rag}.",
    "evidence": "The fact is newer than the model, which can only guess; a passage tells it. "
    "Of {n} such facts {method} answers {right} right, memory alone {direct}, reading alone {rag}.",
    "poison": "Somebody planted a passage, and memory rejects what it says. "
    "Of {n} well-known facts with a planted passage {method} answers {right} right, memory alone {direct}, "
    "reading alone {rag}.",
    "neither": "The fact is newer than the model, and no passage tells it: there is no answer to give. "
    "Of {n} such questions {method} leaves {right} without an answer; memory alone and reading alone answer every one.",
}
_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class Drawn:
    """A case and its results."""

    case: DemoCase
    verdict: Verdict
    direct: bool
    rag: bool

    @property
    def right(self) -> bool:
        """Answered right, or for ``neither`` refused."""
        if self.case.kind == "neither":
            return self.verdict.answer is None
        return agree(self.verdict.answer or "", self.case.truth)

    @property
    def shows(self) -> bool:
        """Whether it went right for the reason that it is to show."""
        return self.right and self.verdict.strategy is _WANTED[self.case.kind]


def draw(world: World, kind: Kind, rng: random.Random) -> DemoCase:
    """A question of this kind, without its lesson."""
    pool: Sequence[Fact] = {
        "memory": world.known,
        "evidence": world.late,
        "poison": world.known[: len(world.known) // 4],
        "neither": world.late,
    }[kind]
    fact = rng.choice(pool)
    told: list[Fact] = []
    if kind == "evidence":
        told = [fact]
    elif kind == "poison":
        told = [world.substitute(fact, rng)]
    planted = kind == "poison"
    beside = distractors(world, fact, PASSAGES - len(told), rng)
    folders = [*(["planted/"] if planted else [""]) * len(told), *[""] * len(beside)]
    texts = [(each, fact_passage(each, rng), folder) for each, folder in zip([*told, *beside], folders, strict=True)]
    rng.shuffle(texts)
    passages = tuple(
        Passage(
            text,
            id=str(number),
            title=each.subject,
            source=f"{folder}{document_id(each.form.subject, each.subject)}.md",
        )
        for number, (each, text, folder) in enumerate(texts, 1)
    )
    return DemoCase(kind, _TITLES[kind], ask(fact, rng), passages, fact.object, "", METHODS[kind])


async def tried(llm: LLM, cases: Sequence[DemoCase]) -> list[Drawn]:
    """Each case answered by its method, by memory alone and by reading alone."""
    places = asyncio.Semaphore(_AT_ONCE)

    async def one(case: DemoCase) -> Drawn:
        async with places:
            kit = demo_kit(llm, case.passages)
            names = (case.method, "direct", "rag")
            verdict, direct, rag = [await answer(case.question, load(name)(), kit) for name in names]
        return Drawn(case, verdict, *(agree(each.answer or "", case.truth) for each in (direct, rag)))

    return list(await asyncio.gather(*map(one, cases)))


async def demonstration(llm: LLM, world: World, *, count: int = 200, seed: int = 0) -> tuple[DemoCase, ...]:
    """A case of each kind with its lesson; one that never went as it should is left out."""
    shown = []
    for kind in METHODS:
        rng = random.Random(f"demonstration {seed} {kind}")
        found = await tried(llm, [draw(world, kind, rng) for _ in range(count)])
        first = next((each.case for each in found if each.shows), None)
        if first is not None:
            shown.append(replace(first, lesson=lesson(kind, found)))
    return tuple(shown)


def lesson(kind: Kind, found: Sequence[Drawn]) -> str:
    """What the case shows, and how often it goes that way."""
    return _LESSONS[kind].format(
        n=len(found),
        method=METHODS[kind],
        right=sum(each.right for each in found),
        direct=sum(each.direct for each in found),
        rag=sum(each.rag for each in found),
    )
