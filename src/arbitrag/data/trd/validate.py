"""Ask models whether a draft is what its category says; the rules of BRIDGE, section 2.3.

=====  ===================================================  ==============================================
code   from memory alone                                    with the passages
=====  ===================================================  ==============================================
FA     right                                                right
FI     right                                                the name that the corrupted passages tell
FE     not right                                            (not asked)
RA     not right                                            not right
=====  ===================================================  ==============================================

With several models a draft is kept when it passes with each of them. Memory is asked by the method ``direct`` and the
passages by the method ``rag``, so that a draft that passed goes the same way in an evaluation; with options shown the
text of one or its letter counts. The paper has a passage written from memory first, and asks for a letter alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from arbitrag.data.trd.draft import Draft
from arbitrag.kit import Kit
from arbitrag.llm.base import LLM
from arbitrag.methods.base import Method
from arbitrag.methods.direct import Direct
from arbitrag.methods.rag import Rag
from arbitrag.retrieve.fixed import FixedRetriever
from arbitrag.run import Failure, attempt, check
from arbitrag.text import agree
from arbitrag.types import Question, Verdict

MEMORY_WRONG = "wrong from memory"
MEMORY_RIGHT = "right from memory"
PASSAGES_WRONG = "wrong with its passages"
PASSAGES_RIGHT = "right with its passages"
NOT_MISLED = "not misled by its passages"


@dataclass(frozen=True, slots=True)
class Checked:
    """A draft and what became of it: ``reason`` is empty where it passed. The answers are by model."""

    draft: Draft
    reason: str
    memory: Mapping[str, str] = field(default_factory=dict)
    passages: Mapping[str, str] = field(default_factory=dict)


class Validator:
    """Asks ``models``, at most ``concurrency`` drafts at a time. The options are shown to them or not."""

    def __init__(self, models: Sequence[LLM], *, show_options: bool, concurrency: int = 32) -> None:
        self._kits = {model.name: Kit.of(model) for model in models}  # names differ
        self._show = show_options
        self._places = asyncio.Semaphore(concurrency)

    async def prepare(self) -> None:
        """Raise CapabilityError when a model cannot be asked at all."""
        for kit in self._kits.values():
            await check(Direct(), kit)

    async def check(self, draft: Draft) -> Checked:
        """Raises what a backend raised."""
        async with self._places:
            return await self._check(draft)

    async def _check(self, draft: Draft) -> Checked:
        memory = await self._ask(draft, Direct())
        right = [_is(answer, draft.fact.answers) for answer in memory.values()]
        if draft.category in ("FA", "FI") and not all(right):
            return Checked(draft, MEMORY_WRONG, memory)
        if draft.category in ("FE", "RA") and any(right):
            return Checked(draft, MEMORY_RIGHT, memory)
        if draft.category == "FE":
            return Checked(draft, "", memory)
        read = await self._ask(draft, Rag(k=len(draft.passages)))
        return Checked(draft, _judged(draft, list(read.values())), memory, read)

    async def _ask(self, draft: Draft, method: Method) -> dict[str, str]:
        """The answer of every model, empty where it declines."""
        question = draft.question if self._show else Question(draft.question.text, id=draft.id)
        kits = [replace(kit, retriever=FixedRetriever(draft.passages)) for kit in self._kits.values()]
        found = await asyncio.gather(*(attempt(question, method, kit) for kit in kits))
        return dict(zip(self._kits, map(_answer, found), strict=True))


def _answer(outcome: Verdict | Failure) -> str:
    if isinstance(outcome, Failure):
        raise outcome.error
    return outcome.answer or ""


def _judged(draft: Draft, read: Sequence[str]) -> str:
    """Why a draft fails with its passages; memory has passed."""
    right = [_is(answer, draft.fact.answers) for answer in read]
    if draft.category == "FA":
        return "" if all(right) else PASSAGES_WRONG
    if draft.category == "RA":
        return PASSAGES_RIGHT if any(right) else ""
    return "" if all(_is(answer, [draft.wrong]) for answer in read) else NOT_MISLED


def _is(answer: str, names: Sequence[str]) -> bool:
    return any(agree(answer, name) for name in names)
