"""A method and a retriever of one's own, which ``arbitrag`` finds by the entry points in pyproject.toml."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from arbitrag import Kit, Passage, Question, Strategy, Verdict
from arbitrag.methods.base import setting
from arbitrag.methods.direct import Direct
from arbitrag.methods.rag import Rag
from arbitrag.text import agree
from arbitrag.types import Need


@dataclass(frozen=True)
class SecondOpinion:
    """Answer only what memory and the passages say alike."""

    name: ClassVar[str] = "second_opinion"
    needs: ClassVar[Need] = Need.GENERATE | Need.RETRIEVE
    cost: ClassVar[str] = "2 answers"
    paper: ClassVar[str] = "none"

    k: int = setting(5, "passages that are looked up")

    async def answer(self, question: Question, kit: Kit) -> Verdict:
        memory = await Direct().answer(question, kit)
        evidence = await Rag(self.k).answer(question, kit)
        both = (*memory.candidates, *evidence.candidates)
        if memory.answer and evidence.answer and agree(memory.answer, evidence.answer):
            why = "memory and the passages agree"
            return Verdict(evidence.answer, Strategy.BOTH, why, candidates=both, kept=evidence.kept)
        return Verdict(None, Strategy.REFUSE, "memory and the passages do not agree", candidates=both)


class Lines:
    """``lines:FILE``: every line of a text file is a passage; those that share most words with the question first."""

    def __init__(self, path: str) -> None:
        self.name = self.identity = f"lines:{path}"
        self._lines = Path(path).read_text(encoding="utf-8").splitlines()

    async def retrieve(self, query: str, k: int, where: Mapping[str, str] | None = None) -> tuple[Passage, ...]:
        words = set(query.lower().split())
        shared = {number: len(words & set(line.lower().split())) for number, line in enumerate(self._lines, 1)}
        best = sorted((number for number in shared if shared[number]), key=lambda number: -shared[number])[:k]
        return tuple(Passage(self._lines[n - 1], id=str(n), source=self.name, line=n, score=shared[n]) for n in best)

    async def aclose(self) -> None:
        pass
