"""RAG: answer from the retrieved passages, whatever they say. The baseline that always trusts the evidence.

Cost: 1 generation, 1 step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from arbitrag.kit import Kit
from arbitrag.text import clean_answer, declines
from arbitrag.types import Candidate, Need, Question, Strategy, Verdict


@dataclass(frozen=True)
class Rag:
    """Read the top ``k`` passages and answer."""

    name: ClassVar[str] = "rag"
    needs: ClassVar[Need] = Need.GENERATE | Need.RETRIEVE
    cost: ClassVar[str] = "1 answer"
    paper: ClassVar[str] = "baseline"

    k: int = 20

    async def answer(self, question: Question, kit: Kit) -> Verdict:
        found = await kit.retrieve(question, k=self.k)
        fit = await kit.llm.fit(found, "rag/answer", question=question)
        if not fit.kept:
            return Verdict(None, Strategy.REFUSE, "no passages to read", dropped=fit.dropped)

        reply = await kit.llm.generate(kit.llm.prompt("rag/answer", question=question, passages=fit.kept))
        evidence = Candidate(clean_answer(reply.text), Strategy.EVIDENCE, tuple(p.id for p in fit.kept))
        answers = bool(evidence.text) and not declines(evidence.text)
        return Verdict(
            answer=evidence.text if answers else None,
            strategy=Strategy.EVIDENCE if answers else Strategy.REFUSE,
            why="only the passages were asked" if answers else "the passages offer no answer",
            candidates=(evidence,),
            kept=fit.kept,
            dropped=fit.dropped,
            cuts=fit.cuts,
        )
